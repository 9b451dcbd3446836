"""Execution: definitions run by DuckDB, in tasks and in the driver."""
