"""Operators over sessions: ``session_store`` keeps those that are open, with partial aggregates;
``session_aggregate`` emits those that are over, ``session_join`` joins the rows of one session.
"""
