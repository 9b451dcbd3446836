"""Which windows of an aggregate are computed from which: "Factor Windows", and past it.

``published`` has the paper's Algorithms 1 to 5. ``steiner`` is the search over all factor windows
that they leave out: ``candidates`` says which ones that are (by the ``divisors`` of lengths),
``arborescence`` finds the best of them. ``layout`` says which panes are stored for the windows over
one grouping, ``closing`` the graph from these panes to the windows, ``describe`` what ``explain``
tells of it all.
"""
