"""Processes that are killed: at every step, again and again, while queries come and go."""
