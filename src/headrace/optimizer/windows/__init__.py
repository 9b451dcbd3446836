"""Which windows of an aggregate are computed from which: "Factor Windows", and past it.

``published`` has the paper's Algorithms 1 to 5, ``steiner`` the search over all factor windows that
they leave out, ``sharing`` the choice for all aggregates over one grouping of one stream.
"""
