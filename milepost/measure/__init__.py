"""Measure: one question a file, one answer as plain data.

A model is any callable from tokens (B L) to logits (B L V).
"""
