"""Hostile inputs by kind, run through the command line: an answer, or one line that refuses them."""
