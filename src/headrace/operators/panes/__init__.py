"""Operators over panes: partial aggregates per group and pane of time.

``pane_store`` keeps them, ``partial_rows`` reads, merges and finishes them. ``window_aggregate``
makes tumbling and hopping windows of them, through each other where that is cheaper
(``window_tree``), and ``pane_aggregate`` windows that the rows bring along, and landmarks;
``split_aggregate`` has some functions from panes and others from rows.
"""
