"""What comes out: random queries, known cases, and every plan against the oracle."""
