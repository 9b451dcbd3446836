"""Sinks: whose folders are, and functions that are called."""
