"""Operators over rows that are kept: joins, and aggregates that cannot be taken apart.

``row_store`` keeps them. ``delta_join`` finds the results of an epoch that have a new row,
``probe_join`` the same by indexes, ``outer_join`` the rows that found no partner. ``row_aggregate``
is for holistic functions and trailing windows.
"""
