"""All sequences of probes: Algorithm 4 as published, and those that differ in more than name.

``dp_pick`` finds the best one without listing them; these are for its tests, and to tell people
how many there are.

Paper: Multi-Way Joins, Section 4.2, Algorithm 4.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.stats.probes import Edge


def all_sequences(graph: ProbeGraph) -> Iterator[ProbeSequence]:
    """Algorithm 4: from each input in turn, every edge from what is visited to what is not.

    A chain of three is walked once from each end, and in two orders from the middle.

    >>> chain = ProbeGraph(3, (frozenset({0, 1}), frozenset({1, 2})))
    >>> for sequence in all_sequences(chain):
    ...     print(*sequence)
    (0, 1) (1, 2)
    (1, 0) (1, 2)
    (1, 2) (1, 0)
    (2, 1) (1, 0)
    """
    for start in range(graph.count):
        yield from _depth_first(graph, {start}, [])


def _depth_first(
    graph: ProbeGraph, visited: set[int], current: list[Edge]
) -> Iterator[ProbeSequence]:
    if len(visited) == graph.count:
        yield tuple(current)
        return
    for edge in graph.edges:
        left, right = edge
        if left in visited and right not in visited:
            visited.add(right)
            current.append(edge)
            yield from _depth_first(graph, visited, current)
            visited.remove(right)
            current.pop()


def sequences_from(graph: ProbeGraph, driver: int) -> Iterator[ProbeSequence]:
    """Sequences for new rows of one input, with one pair for each set of classes.

    Algorithm 4 lists four here: input 2 may also be probed by input 1's key, which is the same.

    >>> [*sequences_from(ProbeGraph(3, (frozenset({0, 1, 2}),)), 0)]
    [((0, 1), (0, 2)), ((0, 2), (0, 1))]
    """
    return _from(graph, driver, 1 << driver, ())


def _from(
    graph: ProbeGraph, driver: int, present: int, current: ProbeSequence
) -> Iterator[ProbeSequence]:
    if present == graph.everything:
        yield current
        return
    for right in range(graph.count):
        if not present >> right & 1:
            for pair in graph.pairs(present, driver, right):
                yield from _from(graph, driver, present | 1 << right, (*current, pair))


def sequence_text(sequence: Sequence[Edge], names: Sequence[str]) -> str:
    """A sequence by the names of its inputs, the driver first.

    >>> sequence_text(((3, 0), (0, 2), (3, 1)), ("cu", "cr", "wr", "sr"))
    'sr → cu → wr → cr'
    """
    if not sequence:
        return ""
    return " → ".join(names[index] for index in (sequence[0][0], *(r for _, r in sequence)))
