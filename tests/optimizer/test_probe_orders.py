"""Orders of probes: the graph, Algorithm 4, and the strategies against all there is."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable
from dataclasses import replace
from math import factorial
from typing import Any

import pytest

from headrace.cost.probing import (
    ProbeModel,
    ProbeTuning,
    key_factor,
    match_only,
    query_only,
    sequence_rank,
)
from headrace.errors import PlanError
from headrace.optimizer.probing import dp_pick
from headrace.optimizer.probing.graph import ProbeGraph, ProbeSequence
from headrace.optimizer.probing.sequences import all_sequences, sequence_text, sequences_from
from headrace.optimizer.probing.strategies import STRATEGIES
from headrace.optimizer.probing.strategy import Choice
from headrace.stats.probes import Edge, ProbeStatistics

PAPER, ENGINE = ProbeModel.PAPER, ProbeModel.ENGINE
TUNING = ProbeTuning()


def graph_of(count: int, *classes: Iterable[int]) -> ProbeGraph:
    return ProbeGraph(count, tuple(frozenset(members) for members in classes))


def chain(count: int) -> ProbeGraph:
    return graph_of(count, *((i, i + 1) for i in range(count - 1)))


def star(count: int) -> ProbeGraph:
    return graph_of(count, *((0, i) for i in range(1, count)))


def cycle(count: int) -> ProbeGraph:
    return graph_of(count, *((i, (i + 1) % count) for i in range(count)))


def complete(count: int) -> ProbeGraph:
    """A predicate of its own for each two inputs."""
    return graph_of(count, *((i, j) for i in range(count) for j in range(i)))


def one_key(count: int) -> ProbeGraph:
    """All inputs have the same key."""
    return graph_of(count, range(count))


def mixed(count: int, chance: random.Random) -> ProbeGraph:
    """Classes of any size, some inputs with several predicates between them."""
    linked = [(i, chance.randrange(i)) for i in range(1, count)]
    more = [chance.sample(range(count), chance.randint(2, count)) for _ in range(2)]
    return graph_of(count, *linked, *more)


def random_statistics(
    graph: ProbeGraph, chance: random.Random, known: float = 1.0
) -> ProbeStatistics:
    edges = [edge for edge in graph.edges if chance.random() < known]
    return ProbeStatistics(
        rates={edge: chance.choice((0.0, 1.0, chance.random())) for edge in edges},
        means={edge: 1.0 + chance.expovariate(0.5) for edge in edges},
        keys={edge: 10 ** chance.uniform(0, 6) for edge in edges},
        rows={index: 10 ** chance.uniform(0, 6) for index in range(graph.count)},
    )


def chosen(name: str, *by: Any) -> dict[int, ProbeSequence]:
    """The orders that a strategy chooses."""
    return STRATEGIES[name].orders(Choice(*by))


def rank(
    sequence: ProbeSequence,
    known: ProbeStatistics,
    tuning: ProbeTuning,
    model: ProbeModel,
) -> tuple[int, float]:
    """Unknown pairs, and Eq. 8 in either form, written out once more."""
    unknown, rest = 0, 0.0
    for edge in reversed(sequence):
        if edge not in known.rates:
            unknown += 1
            continue
        rate, mean = known.rates[edge], known.means[edge]
        # That large tables answer later is not part of the published model.
        factors = replace(tuning, miss=0.0) if model is PAPER else tuning
        query = tuning.query * key_factor(known.keys[edge], factors)
        if model is PAPER:
            rest = query + rate * (tuning.match * mean + rest)
        else:
            rest = query + rate * mean * (tuning.match + rest)
    return unknown, rest


def assert_valid(graph: ProbeGraph, orders: dict[int, ProbeSequence]) -> None:
    assert set(orders) == set(range(graph.count))
    for driver, sequence in orders.items():
        present = {driver}
        for left, right in sequence:
            assert left in present
            assert right not in present
            assert graph.shared(left, right)
            present.add(right)
        assert len(present) == graph.count


def shuffled(count: int, chance: random.Random) -> tuple[int, ...]:
    return tuple(chance.sample(range(count), count))


# --- the graph -----------------------------------------------------------------------------------


def test_edges_go_both_ways() -> None:
    assert chain(3).edges == ((0, 1), (1, 0), (1, 2), (2, 1))
    assert graph_of(3, (0, 1), (0, 1, 2)).shared(0, 1) == {0, 1}
    assert graph_of(3, (0, 1), (0, 1, 2)).shared(1, 2) == {1}


def test_equal_keys_are_one_pair() -> None:
    # 3 can be probed by the key of any other; the driver's stands for all.
    same = one_key(4)
    assert same.pairs(0b0111, 1, 3) == ((1, 3),)
    # Input 3 has the key of 1 and 2 and not that of the driver: the first that is present.
    apart = graph_of(4, (0, 1), (1, 2, 3))
    assert apart.pairs(0b0001, 0, 3) == ()
    assert apart.pairs(0b0111, 0, 3) == ((1, 3),)
    assert apart.pairs(0b0101, 0, 3) == ((2, 3),)


def test_one_pair_for_each_set_of_classes() -> None:
    # By both keys from 0, by one of them from 1 or 2, which are the same.
    graph = graph_of(4, (0, 3), (0, 1, 2, 3))
    assert graph.pairs(0b0111, 0, 3) == ((0, 3), (1, 3))
    assert graph.pairs(0b0111, 2, 3) == ((2, 3), (0, 3))
    assert graph.pairs(0b0110, 2, 3) == ((2, 3),)


def test_connected() -> None:
    assert chain(5).connected
    assert graph_of(1).connected
    assert not graph_of(4, (0, 1), (2, 3)).connected
    assert not graph_of(3, (1, 2)).connected


# --- Algorithm 4 ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("graph", "count"),
    [
        (chain(2), 2),
        # 1 from each end, 2 from the middle.
        (chain(3), 4),
        # From each node 2 to go to next, and for the last one 2 to come from: 3 · 4.
        (cycle(3), 12),
        # 3! from the hub, and from each of 3 leaves to the hub, then 2!.
        (star(4), 6 + 3 * 2),
        # 1 from each end; from an inner node there are 3 places for the short arm's one step.
        (chain(4), 1 + 3 + 3 + 1),
        # Two directions at each step but the last, where one node is left with 2 ways to it:
        # 4 · 2 · 2 · 2.
        (cycle(4), 32),
        # 3 · 1 pairs, then 2 · 2, then 1 · 3, from each of 4.
        (complete(4), 144),
        # Algorithm 4 tells pairs of equal keys apart.
        (one_key(4), 144),
    ],
)
def test_sequences_by_hand(graph: ProbeGraph, count: int) -> None:
    found = [*all_sequences(graph)]
    assert len(found) == len(set(found)) == count
    for sequence in found:
        assert len(sequence) == graph.count - 1


def test_complete_graphs_have_too_many() -> None:
    for count in (2, 3, 4, 5):
        expected = count * factorial(count - 1) ** 2
        assert sum(1 for _ in all_sequences(complete(count))) == expected


def test_sequences_of_one_driver() -> None:
    for graph in (chain(4), star(4), cycle(4), complete(4)):
        apart = [sequence for driver in range(4) for sequence in sequences_from(graph, driver)]
        assert sorted(apart) == sorted(all_sequences(graph))
    # One key for all: only the order of inputs counts.
    assert len([*sequences_from(one_key(4), 2)]) == 6


def test_text() -> None:
    names = ("cu", "cr", "wr", "sr")
    assert sequence_text(((3, 0), (0, 2), (0, 1)), names) == "sr → cu → wr → cr"
    assert sequence_text((), names) == ""


# --- strategies ----------------------------------------------------------------------------------


def shapes(count: int, chance: random.Random) -> list[ProbeGraph]:
    found = [chain(count), star(count), one_key(count), mixed(count, chance), mixed(count, chance)]
    if count > 2:
        found.append(cycle(count))
    # Of six inputs that all share keys there are 86,400 sequences; they have a test of their own.
    return found if count > 5 else [*found, complete(count)]


@pytest.mark.parametrize("known", [1.0, 0.6])
@pytest.mark.parametrize("model", ProbeModel)
@pytest.mark.parametrize("count", [2, 3, 4, 5, 6])
def test_dp_pick_is_the_best_of_all(count: int, model: ProbeModel, known: float) -> None:
    chance = random.Random(count)
    for graph in shapes(count, chance):
        statistics = random_statistics(graph, chance, known)
        initial = shuffled(count, chance)
        orders = chosen("dp_pick", graph, statistics, TUNING, model, initial)
        assert_valid(graph, orders)
        for driver, sequence in orders.items():
            listed = [*sequences_from(graph, driver)]
            assert sequence in listed
            best = min(rank(other, statistics, TUNING, model) for other in listed)
            assert rank(sequence, statistics, TUNING, model)[0] == best[0]
            assert rank(sequence, statistics, TUNING, model)[1] == pytest.approx(best[1])


@pytest.mark.parametrize("model", ProbeModel)
@pytest.mark.parametrize("graph", [chain(5), star(5), cycle(5), complete(4)])
def test_dp_pick_is_algorithm_3(graph: ProbeGraph, model: ProbeModel) -> None:
    """Where no keys are equal to a third, the published list has nothing better."""
    statistics = random_statistics(graph, random.Random(graph.count))
    orders = dp_pick.orders(Choice(graph, statistics, TUNING, model, tuple(range(graph.count))))
    least: dict[int, float] = {}
    for sequence in all_sequences(graph):
        driver, cost = sequence[0][0], rank(sequence, statistics, TUNING, model)[1]
        least[driver] = min(cost, least.get(driver, cost))
    for driver, sequence in orders.items():
        cost = sequence_rank(sequence, statistics, TUNING, model)[1]
        assert cost == pytest.approx(least[driver])


def test_dp_pick_of_six_that_all_share_keys() -> None:
    graph, chance = complete(6), random.Random(6)
    statistics = random_statistics(graph, chance)
    orders = chosen("dp_pick", graph, statistics, TUNING, ENGINE, tuple(range(6)))
    best = min(rank(s, statistics, TUNING, ENGINE) for s in sequences_from(graph, 2))
    assert rank(orders[2], statistics, TUNING, ENGINE) == pytest.approx(best)


@pytest.mark.parametrize("known", [1.0, 0.5, 0.0])
@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_is_valid(name: str, known: float) -> None:
    chance = random.Random(name)
    for count in (2, 3, 4, 5, 6):
        for graph in shapes(count, chance):
            statistics = random_statistics(graph, chance, known)
            initial = shuffled(count, chance)
            for model in ProbeModel:
                orders = STRATEGIES[name].orders(Choice(graph, statistics, TUNING, model, initial))
                assert_valid(graph, orders)


@pytest.mark.parametrize("name", STRATEGIES)
def test_without_statistics_the_order_is_the_initial_one(name: str) -> None:
    chance = random.Random(name)
    nothing = ProbeStatistics({}, {}, {}, {})
    for graph in shapes(5, chance):
        initial = shuffled(5, chance)
        fixed = chosen("fixed_order", graph, None, TUNING, ENGINE, initial)
        for statistics in (None, nothing):
            orders = STRATEGIES[name].orders(Choice(graph, statistics, TUNING, ENGINE, initial))
            assert orders == fixed


@pytest.mark.parametrize("name", STRATEGIES)
def test_inputs_must_be_connected(name: str) -> None:
    apart = graph_of(4, (0, 1), (2, 3))
    for statistics in (None, random_statistics(apart, random.Random(1))):
        with pytest.raises(PlanError, match="share no key"):
            chosen(name, apart, statistics, TUNING, ENGINE, (0, 1, 2, 3))


@pytest.mark.parametrize("name", STRATEGIES)
def test_one_input_has_nothing_to_probe(name: str) -> None:
    statistics = ProbeStatistics({}, {}, {}, {})
    assert chosen(name, graph_of(1), statistics, TUNING, ENGINE, (0,)) == {0: ()}


@pytest.mark.parametrize("name", STRATEGIES)
def test_an_initial_order_has_all_inputs(name: str) -> None:
    with pytest.raises(ValueError, match="not an order"):
        chosen(name, chain(3), None, TUNING, ENGINE, (0, 1))


def test_fixed_order_waits_for_a_connection() -> None:
    fixed = STRATEGIES["fixed_order"]
    orders = fixed.orders(Choice(chain(4), None, TUNING, ENGINE, (3, 0, 2, 1)))
    assert orders == {
        # 3 must wait for 2, and 2 for 1.
        0: ((0, 1), (1, 2), (2, 3)),
        # 3 still waits, so 0 and 2 come before it.
        1: ((1, 0), (1, 2), (2, 3)),
        2: ((2, 3), (2, 1), (1, 0)),
        3: ((3, 2), (2, 1), (1, 0)),
    }
    same = fixed.orders(Choice(one_key(3), None, TUNING, ENGINE, (2, 0, 1)))
    assert same == {0: ((0, 2), (0, 1)), 1: ((1, 2), (1, 0)), 2: ((2, 0), (2, 1))}


def from_hub(**figures: dict[Edge, float]) -> ProbeStatistics:
    """Statistics of a star where only those of the hub's probes differ."""
    edges = star(4).edges
    return ProbeStatistics(
        rates=dict.fromkeys(edges, 0.5) | figures.get("rates", {}),
        means=dict.fromkeys(edges, 1.0) | figures.get("means", {}),
        keys=dict.fromkeys(edges, 8.0) | figures.get("keys", {}),
        rows=dict.fromkeys(range(4), 8.0) | {r: n for (_, r), n in figures.get("rows", {}).items()},
    )


def hub_order(
    name: str,
    statistics: ProbeStatistics,
    model: ProbeModel = ENGINE,
    tuning: ProbeTuning = TUNING,
) -> list[int]:
    orders = chosen(name, star(4), statistics, tuning, model, (0, 1, 2, 3))
    return [right for _, right in orders[0]]


def test_selectivity_is_a_share_of_the_cross_product() -> None:
    # 0.5 · 4 of 8 rows, 0.5 of 8 and 0.5 of 1,000.
    known = from_hub(means={(0, 1): 4.0}, rows={(0, 3): 1_000.0})
    assert hub_order("selectivity_first", known) == [3, 2, 1]


def test_greedy_looks_at_the_next_probe_only() -> None:
    # With α_q = 8 and a factor of log κ, looking 1, 2 and 3 up costs 16, 24 and 32, and what is
    # found, with α_m = 2, costs 1, 1 and 0. As nothing is found in 3, it is best to begin there.
    known = from_hub(keys={(0, 1): 4.0, (0, 2): 8.0, (0, 3): 16.0}, rates={(0, 3): 0.0})
    # Tables of which every doubling costs as much again, and in which no two keys collide.
    tuning = ProbeTuning(query=8.0, match=2.0, slots=2.0**40, miss=1.0, near=2.0)
    assert hub_order("cost_greedy", known, tuning=tuning) == [1, 2, 3]
    # 3 first costs 32; 1, then 3 costs 16 + 0.5 · (2 + 32) = 33.
    assert hub_order("dp_pick", known, tuning=tuning)[0] == 3


def test_models_differ_where_matches_have_many_rows() -> None:
    # Input 1 matches more rarely, but then with ten rows, each of which is probed on with.
    known = from_hub(
        rates={(0, 1): 0.5, (0, 2): 0.6, (0, 3): 0.9}, means={(0, 1): 10.0, (0, 3): 2.0}
    )
    queries = query_only(TUNING)
    assert hub_order("dp_pick", known, PAPER, queries) == [1, 2, 3]
    assert hub_order("dp_pick", known, ENGINE, queries) == [2, 3, 1]


def test_ablations_are_dp_pick_with_half_a_model() -> None:
    chance = random.Random(3)
    graph = complete(5)
    for _ in range(5):
        statistics = random_statistics(graph, chance)
        for name, tuning in (
            ("query_cost_only", query_only(TUNING)),
            ("match_cost_only", match_only(TUNING)),
        ):
            half = STRATEGIES[name].orders(
                Choice(graph, statistics, TUNING, PAPER, (0, 1, 2, 3, 4))
            )
            assert half == dp_pick.orders(Choice(graph, statistics, tuning, PAPER, (0, 1, 2, 3, 4)))


@pytest.mark.parametrize("name", ["dp_pick", "selectivity_first", "cost_greedy"])
def test_the_unknown_is_the_last_choice(name: str) -> None:
    known = from_hub(rates={(0, 2): 1.0, (0, 3): 0.9}, means={(0, 2): 50.0})
    without = ProbeStatistics(
        {edge: rate for edge, rate in known.rates.items() if edge != (0, 1)},
        known.means,
        known.keys,
        known.rows,
    )
    order = hub_order(name, without)
    # All orders have the one unknown pair. Greedy ones put it off; to dp_pick its place is equal.
    assert order.index(3) < order.index(2)
    if name != "dp_pick":
        assert order == [3, 2, 1]


def test_dp_pick_goes_round_the_unknown() -> None:
    # In a triangle from 0: by (0, 1) and (0, 2) at a great cost, or by (0, 1) and the unknown.
    known = ProbeStatistics(
        rates={(0, 1): 1.0, (0, 2): 1.0},
        means={(0, 1): 90.0, (0, 2): 90.0},
        keys={(0, 1): 9.0, (0, 2): 9.0},
        rows={},
    )
    orders = chosen("dp_pick", cycle(3), known, TUNING, ENGINE, (0, 1, 2))
    assert orders[0] == ((0, 1), (0, 2))


@pytest.mark.parametrize("known", [1.0, 0.7])
@pytest.mark.parametrize("model", ProbeModel)
def test_many_inputs(model: ProbeModel, known: float) -> None:
    chance = random.Random(11)
    count = dp_pick.MOST_EXACT + 1
    for graph in (chain(count), star(count), one_key(count), mixed(count, chance)):
        statistics = random_statistics(graph, chance, known)
        initial = shuffled(count, chance)
        orders = chosen("dp_pick", graph, statistics, TUNING, model, initial)
        assert_valid(graph, orders)
        for name in ("fixed_order", "cost_greedy"):
            others = STRATEGIES[name].orders(Choice(graph, statistics, TUNING, model, initial))
            for driver, sequence in orders.items():
                mine = rank(sequence, statistics, TUNING, model)
                assert mine <= rank(others[driver], statistics, TUNING, model)


def test_a_beam_is_near_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(7)
    graph, initial = complete(6), (0, 1, 2, 3, 4, 5)
    for _ in range(10):
        statistics = random_statistics(graph, chance)
        exact = chosen("dp_pick", graph, statistics, TUNING, ENGINE, initial)
        with monkeypatch.context() as patch:
            patch.setattr(dp_pick, "MOST_EXACT", 1)
            beam = chosen("dp_pick", graph, statistics, TUNING, ENGINE, initial)
        for driver, sequence in exact.items():
            best = rank(sequence, statistics, TUNING, ENGINE)[1]
            found = rank(beam[driver], statistics, TUNING, ENGINE)[1]
            assert best <= found * (1 + 1e-9)
            assert found <= 1.5 * best


@pytest.mark.parametrize("graph", [one_key(8), complete(8)])
def test_eight_inputs_take_no_time(graph: ProbeGraph) -> None:
    statistics = random_statistics(graph, random.Random(8))
    begin = time.perf_counter()
    chosen("dp_pick", graph, statistics, TUNING, ENGINE, tuple(range(8)))
    # A fiftieth of it on an idle machine.
    assert time.perf_counter() - begin < 0.5
