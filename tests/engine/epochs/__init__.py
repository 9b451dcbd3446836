"""Epochs: queries that share them, that fail in them, and sinks that do not take their rows."""
