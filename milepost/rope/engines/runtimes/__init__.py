"""Engines besides those of servers and trainers: one file each, as in the folder above."""
