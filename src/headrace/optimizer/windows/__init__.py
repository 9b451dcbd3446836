"""Which windows of an aggregate are computed from which: "Factor Windows", and past it.

``published`` has the paper's Algorithms 1 to 5, ``steiner`` the search over all factor windows that
they leave out, ``layout`` which panes are stored for the windows over one grouping, ``closing`` the
graph from these panes to the windows, ``describe`` what ``explain`` tells of it all.
"""
