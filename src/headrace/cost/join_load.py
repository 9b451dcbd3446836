"""What is known of the inputs of a graph of joins, and of what came out of joining them."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field

#: An input and the position of a class of equal keys.
KeyEnd = tuple[int, int]


@dataclass(frozen=True)
class JoinLoad:
    """The load of a graph of joins.

    ``rates`` are rows per millisecond of their own time, ``keys`` how many values each key takes,
    by input and position of the key's class, and ``stretch`` the milliseconds that are looked at
    where nothing bounds the times of two inputs. All else may be missing:

    - ``shares``: by the position of a predicate of the graph, the share of rows that it leaves;
    - ``frequent``: the most frequent values of a key, with the share of rows that have each;
    - ``seen``: rows per millisecond that came out of joins of sets of inputs when they ran.
    """

    rates: tuple[float, ...]
    keys: Mapping[KeyEnd, float]
    stretch: float
    shares: Mapping[int, float] = field(default_factory=dict)
    frequent: Mapping[KeyEnd, Mapping[Hashable, float]] = field(default_factory=dict)
    seen: Mapping[frozenset[int], float] = field(default_factory=dict)
