"""Physical operators and the stores they keep.

``base`` says what an operator and a store are. Then ``stateless`` (sources, filters, projections,
unions, table joins), ``row_store`` and what reads it (``delta_join`` with ``join_tree``,
``outer_join``, ``row_aggregate``), ``pane_store`` and what reads it (``window_aggregate`` with
``window_tree``, ``pane_aggregate``), ``session_store`` and ``session_aggregate``. ``expansion`` and
``join_conditions`` hold the window arithmetic as SQL.
"""
