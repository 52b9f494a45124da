"""Engines: a RopeSpec in the words of each. One file each; none needs the engine installed."""
