"""Time propagation (Section 5.3): which window belongs to which pair of streams.

A join of AB with C that looks at a.ts is a condition on (A, C). Whatever the order, that pair is
joined by that window. The conditions of a join graph are kept by their pairs, so there is nothing
to compute here (``plan.join_graph``); a pair that no condition names is joined by the largest of
the nested windows on its way (``largest_window``), or by what the others imply (``containment``).

Paper: Window Join Reordering, Section 5.3.
"""

from __future__ import annotations

NAME = "time_propagation"
