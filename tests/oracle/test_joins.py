"""Hand-computed examples: which pairs come out, when, and which rows come out alone."""

from __future__ import annotations

from itertools import chain

from headrace.plan.expressions import Call, Column, Literal
from headrace.plan.nodes import IntervalBound, Join, JoinKind, SameWindow, Source
from headrace.plan.types import BIGINT, BOOLEAN, STRING, WINDOW
from headrace.plan.windows import InheritedWindow
from tests.oracle.plans import (
    NAMES,
    SCHEMA,
    column,
    hopping,
    join,
    per_key,
    rows,
    same_session,
    same_window,
    short,
    stream,
    within,
)
from tests.support.oracle import run_batch, run_epochs

S, T = stream("s"), stream("t")


def pairs(out: list[list[tuple[object, ...]]]) -> list[list[tuple[object, ...]]]:
    """Only the values of both sides: column 1 and 4."""
    return [[(row[1], row[4]) for row in epoch] for epoch in short(out)]


def test_both_bounds_of_an_interval_are_inclusive_to_the_microsecond() -> None:
    plan = join(S, T, within(-2, 3))
    epochs = [
        {
            "s": rows(("x", 1, 10)),
            "t": rows(
                ("x", 2, 7.999999), ("x", 3, 8), ("x", 4, 13), ("x", 5, 13.000001), ("y", 6, 10)
            ),
        }
    ]
    assert pairs(run_epochs(plan, epochs)) == [[(1, 3), (1, 4)]]


def test_a_pair_comes_out_with_its_later_row_unless_that_is_late() -> None:
    plan = join(S, T, within(-5, 5))
    epochs = [
        {"s": rows(("x", 1, 10))},
        {"t": rows(("x", 2, 9), ("x", 3, 12))},  # W is 10 from here on
        {"t": rows(("x", 4, 9.999999), ("x", 5, 10))},  # the first is below W: late
    ]
    assert pairs(run_epochs(plan, epochs)) == [[], [(1, 2), (1, 3)], [(1, 5)]]


def test_null_keys_match_nothing_and_come_out_alone() -> None:
    plan = join(S, T, within(0, 5), JoinKind.FULL)
    epochs = [
        {"s": rows((None, 1, 1)), "t": rows((None, 2, 1))},
        {"s": rows(("x", 3, 6)), "t": rows(("x", 4, 6))},
        {"s": rows(("x", 5, 6.001)), "t": rows(("x", 6, 6.001))},
    ]
    # Left row 1 may match up to 6, right row 2 (lower bound 0) only up to its own time 1.
    out = pairs(run_epochs(plan, epochs))
    assert out[0] == []
    assert out[1] == [(3, 4), (None, 2)]
    assert sorted(out[2], key=repr) == [(1, None), (3, 6), (5, 6)]


def test_a_residual_decides_who_is_alone() -> None:
    less = Call("<", (column("a.v"), column("b.v")), BOOLEAN)
    plan = join(S, T, within(0, 1), JoinKind.LEFT, residual=less)
    epochs = [
        {"s": rows(("x", 1, 1), ("x", 9, 1)), "t": rows(("x", 2, 1))},
        {"s": rows(("z", 0, 3)), "t": rows(("z", 0, 3))},
    ]
    assert pairs(run_epochs(plan, epochs)) == [[(1, 2)], [(9, None)]]


def test_an_interval_that_ends_before_the_left_row() -> None:
    # b.ts in [a.ts - 5, a.ts - 2]: the left row comes out alone once W is beyond a.ts - 2.
    plan = join(S, T, within(-5, -2), JoinKind.LEFT)
    epochs = [{"s": rows(("x", 1, 10)), "t": rows(("x", 2, 8))}, {"s": rows(("y", 3, 11))}]
    epochs.append({"t": rows(("z", 0, 9.001))})
    assert pairs(run_epochs(plan, epochs)) == [[(1, 2)], [], [(3, None)]]


def test_without_an_upper_bound_a_left_row_never_comes_out_alone() -> None:
    plan = join(S, T, within(0, None), JoinKind.FULL)
    epochs = [{"s": rows(("x", 1, 1)), "t": rows(("y", 2, 1))}, {"s": rows(("z", 0, 99))}]
    epochs.append({"t": rows(("w", 0, 98))})
    assert pairs(run_epochs(plan, epochs)) == [[], [], [(None, 2)]]


def test_a_window_join_pairs_rows_of_a_common_window_once() -> None:
    plan = join(S, T, same_window(10, 5))
    # 4 is in [-5, 5) and [0, 10); 6 in [0, 10) and [5, 15); 9 likewise; 11 in [5, 15), [10, 20).
    epochs = [{"s": rows(("x", 1, 4), ("x", 2, 6)), "t": rows(("x", 3, 9), ("x", 4, 11))}]
    assert pairs(run_epochs(plan, epochs)) == [[(1, 3), (2, 3), (2, 4)]]


def test_with_the_window_selected_a_pair_comes_out_per_common_window() -> None:
    plan = join(S, T, same_window(10, 5), emits_window=True)
    epochs = [{"s": rows(("x", 1, 6)), "t": rows(("x", 2, 9), ("x", 3, 4))}]
    (out,) = short(run_epochs(plan, epochs))
    assert [(row[1], row[4], row[6]) for row in out] == [
        (1, 2, (0, 10)),
        (1, 2, (5, 15)),
        (1, 3, (0, 10)),
    ]


def test_a_row_alone_comes_out_when_its_last_window_closes() -> None:
    plan = join(S, T, same_window(10, 5), JoinKind.LEFT)
    epochs = [
        {"s": rows(("x", 1, 6)), "t": rows(("y", 2, 6))},
        {"s": rows(("z", 0, 14.999)), "t": rows(("w", 0, 20))},
        {"s": rows(("z", 9, 15))},
    ]
    # [5, 15) is the last window of the row at 6.
    assert pairs(run_epochs(plan, epochs)) == [[], [], [(1, None)]]


def test_a_session_join_pairs_what_one_session_of_both_inputs_holds() -> None:
    plan = join(S, T, same_session(5), JoinKind.LEFT)
    epochs = [
        {"s": rows(("x", 1, 1), ("x", 2, 11), ("y", 3, 1)), "t": rows(("x", 4, 6), ("x", 5, 17))},
        {"s": rows(("z", 0, 16)), "t": rows(("z", 0, 16))},
        {"s": rows(("w", 9, 22)), "t": rows(("w", 9, 22))},
    ]
    # 1, 6 and 11 are a session that closes at 16; the right row at 17 is more than 5 after 11.
    assert pairs(run_epochs(plan, epochs)) == [[(3, None)], [(1, 4), (2, 4)], [(0, 0)]]


def test_a_state_based_join_remembers_for_the_ttl() -> None:
    plan = join(stream("s", ttl=10), stream("t"), None)
    epochs = [
        {"s": rows(("x", 1, 1), ("x", 2, 5)), "t": rows(("y", 0, 1))},
        {"s": rows(("y", 0, 12)), "t": rows(("y", 0, 12))},  # W_before 1; y matches (0 0) thrice
        {"t": rows(("x", 3, 2))},  # W_before 12: alive from 2 on, so row 1 is dead, row 2 alive
    ]
    out = pairs(run_epochs(plan, epochs))
    assert out[0] == []
    assert out[1] == [(0, 0), (0, 0)]
    assert out[2] == [(2, 3)]


def test_a_state_based_join_without_ttl_has_no_late_rows() -> None:
    plan = join(S, T, None)
    epochs = [
        {"s": rows(("x", 1, 1))},
        {"s": rows(("z", 0, 999)), "t": rows(("z", 0, 999))},
        {"t": rows(("x", 2, 1))},
    ]
    assert pairs(run_epochs(plan, epochs)) == [[], [(0, 0)], [(1, 2)]]


def test_a_table_join_is_row_by_row() -> None:
    keys = ((column("a.k"), Column("n.id", STRING)),)
    known = [{"id": "x", "name": "ex"}, {"id": "x", "name": "eks"}, {"id": None, "name": "none"}]
    epochs = [{"s": rows(("x", 1, 50))}, {"s": rows(("y", 2, 1), (None, 3, 1))}]
    for kind, alone in ((JoinKind.INNER, []), (JoinKind.LEFT, [(2, None), (3, None)])):
        plan = Join(S, NAMES, kind, "a", "n", keys)
        out = run_epochs(plan, epochs, {"names": known})
        assert pairs(out) == [[(1, "eks"), (1, "ex")], alone]
        everything = [row for epoch in epochs for row in epoch["s"]]
        batch = run_batch(plan, {"s": everything, "names": known})
        assert short([batch])[0] == sorted(chain(*short(out)), key=repr)


def test_an_aggregate_over_a_join_waits_for_pairs_with_old_rows() -> None:
    # A pair may be completed by a right row 3 s younger, so windows on a.ts close 3 s later.
    joined = join(S, T, within(0, 3))
    plan = per_key(joined, hopping(10), time=column("a.ts"), key="a.k")
    epochs = [
        {"s": rows(("x", 1, 9)), "t": rows(("x", 0, 9))},
        {"s": rows(("z", 0, 12.999)), "t": rows(("x", 0, 12), ("z", 9, 12.999))},
        {"s": rows(("w", 0, 13)), "t": rows(("w", 9, 13))},
    ]
    assert short(run_epochs(plan, epochs)) == [[], [], [("x", (0, 10), 2, 2)]]


def test_open_sessions_of_a_self_join_hold_back_the_windows_above() -> None:
    plan = per_key(join(S, S, same_session(2)), hopping(2), time=column("a.ts"), key="a.k")
    epochs = [
        {"s": rows(("x", 1, 0.5), ("x", 2, 2), ("y", 3, 1))},
        {"s": rows(("x", 4, 3.5))},
        {"s": rows(("z", 5, 6))},
        {"s": rows(("w", 0, 20))},
    ]
    # Each row is on both sides, so a session of n rows gives n times n pairs.
    # Epoch 1: W is 2, the end of [0, 2), but the sessions of x (since 0.5) and y (since 1) are
    # open and will still give pairs of [0, 2).
    # Epoch 2: W is 3.5. The session of y closed at 3 and gives its one pair. That of x now lasts
    # until 5.5, so [0, 2) waits on.
    # Epoch 3: W is 6. The session of x gives 9 pairs: three with a.ts 0.5 and v 1 in [0, 2), and
    # in [2, 4) three with a.ts 2 and v 2 and three with a.ts 3.5 and v 4. What is still open, the
    # session of z, began at 6: both windows close.
    # Epoch 4: W is 20. The session of z closed at 8, and that of w began at 20.
    assert short(run_epochs(plan, epochs)) == [
        [],
        [],
        [("x", (0, 2), 3, 3), ("x", (2, 4), 6, 18), ("y", (0, 2), 1, 3)],
        [("z", (6, 8), 1, 5)],
    ]
    (batch,) = short([run_batch(plan, {"s": [row for epoch in epochs for row in epoch["s"]]})])
    assert batch == [
        ("w", (20, 22), 1, 0),
        ("x", (0, 2), 3, 3),
        ("x", (2, 4), 6, 18),
        ("y", (0, 2), 1, 3),
        ("z", (6, 8), 1, 5),
    ]


def test_open_sessions_hold_back_the_join_above() -> None:
    first = join(S, T, same_session(5))
    keys = ((column("a.k"), column("c.k")),)
    time = IntervalBound(column("a.ts"), column("c.ts"), -500, 0)
    plan = Join(first, stream("u"), JoinKind.INNER, None, "c", keys, time)
    epochs = [
        {"s": rows(("x", 1, 1)), "t": rows(("x", 2, 6)), "u": rows(("x", 3, 1))},
        {"s": rows(("y", 0, 8)), "t": rows(("y", 0, 8)), "u": rows(("y", 0, 8))},
        # W_before is 8. The session of x, since 1, is open until 11: above it, what is below 1 is
        # late. That is row 5, but neither row 4 nor the pair that comes out now.
        {
            "s": rows(("z", 0, 30)),
            "t": rows(("z", 0, 30)),
            "u": rows(("x", 4, 1), ("x", 5, 0.999), ("z", 0, 30)),
        },
    ]
    out = short(run_epochs(plan, epochs))
    assert [[(row[1], row[4], row[7]) for row in epoch] for epoch in out] == [
        [],
        [],
        # The session of y closed at 13.
        [(1, 2, 3), (1, 2, 4), (0, 0, 0)],
    ]


def test_an_aggregate_over_the_windows_of_a_join() -> None:
    joined = join(S, T, same_window(10), emits_window=True)
    plan = per_key(joined, InheritedWindow(), time=Column("window", WINDOW), key="a.k")
    epochs = [
        {"s": rows(("x", 1, 1), ("x", 2, 2)), "t": rows(("x", 0, 9))},
        {"s": rows(("z", 0, 10)), "t": rows(("z", 0, 10))},
    ]
    assert short(run_epochs(plan, epochs)) == [[], [("x", (0, 10), 2, 3)]]


def test_the_second_join_takes_the_time_that_the_first_hands_on() -> None:
    first = join(S, T, within(0, 3))
    third = stream("u")
    keys = ((column("a.k"), column("c.k")),)
    time = within(0, 0)
    on = type(time)(column("a.ts"), column("c.ts"), 0, 0)
    plan = Join(first, third, JoinKind.INNER, None, "c", keys, on)
    epochs = [
        {"s": rows(("x", 1, 9)), "t": rows(("y", 0, 12)), "u": rows(("x", 7, 9), ("y", 0, 12))},
        # W_before is 9; the join of s and t lags 3, so the pair (9, 12) is not late here.
        {"s": rows(("z", 0, 12)), "t": rows(("x", 2, 11.5))},
        {"t": rows(("x", 3, 12))},
    ]
    out = short(run_epochs(plan, epochs))
    assert [[(row[1], row[4], row[7]) for row in epoch] for epoch in out] == [
        [],
        [(1, 2, 7)],
        [(1, 3, 7)],
    ]


def test_a_missing_time_shares_no_window() -> None:
    """A row of an outer join without a partner has no time of the other side."""
    first = join(S, T, within(0, 3), JoinKind.LEFT)
    on = SameWindow(column("b.ts"), column("c.ts"), hopping(10))
    keys = ((column("a.k"), column("c.k")),)
    plan = Join(first, stream("u"), JoinKind.INNER, None, "c", keys, on)
    epoch = {
        "s": rows(("x", 1, 1), ("y", 2, 1), ("z", 0, 60)),
        "t": rows(("y", 3, 2), ("z", 0, 60)),
        "u": rows(("x", 5, 3), ("y", 6, 3), ("z", 0, 60)),
    }
    (found,) = short(run_epochs(plan, [epoch]))
    assert [(row[1], row[4], row[7]) for row in found] == [(2, 3, 6), (0, 0, 0)]


def test_a_literal_condition_stays_exact() -> None:
    one = Call("=", (column("b.v"), Literal(2, BIGINT)), BOOLEAN)
    plan = join(S, T, within(None, None), residual=one)
    epochs = [{"s": rows(("x", 1, 1)), "t": rows(("x", 2, 99), ("x", 3, 0))}]
    assert pairs(run_epochs(plan, epochs)) == [[(1, 2)]]


def test_two_reads_of_one_stream_may_name_different_columns() -> None:
    left = Source("s", SCHEMA.select(["k", "ts"]), "ts")
    right = Source("s", SCHEMA.select(["k", "v", "ts"]), "ts")
    plan = join(left, right, within(0, 0))
    everything = rows(("x", 1, 1), ("x", 2, 2))
    (out,) = short(run_epochs(plan, [{"s": everything}]))
    assert [row[3] for row in out] == [1, 2]
    assert short([run_batch(plan, {"s": everything})]) == [out]
