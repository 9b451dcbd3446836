"""Ingest: which batches meet, streams that are silent, and input that cannot be read."""
