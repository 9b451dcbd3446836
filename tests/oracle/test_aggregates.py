"""Hand-computed examples: when windows close, and what counts in them."""

from __future__ import annotations

from headrace.plan.expressions import AggregateCall, Call, Column, Literal, Named, window_time
from headrace.plan.nodes import WINDOW_COLUMN, Aggregate, Filter, OutputMode, Project, Union
from headrace.plan.types import BIGINT, BOOLEAN, TIMESTAMP, WINDOW
from headrace.plan.windows import Landmark, Session, Trailing
from tests.oracle.plans import column, hopping, ms, per_key, rows, short, stream
from tests.support.oracle import run_batch, run_epochs


def test_a_window_comes_out_in_the_epoch_in_which_the_watermark_reaches_its_end() -> None:
    epochs = [
        {"s": rows(("a", 1, 1), ("a", 2, 9.999999))},
        {"s": rows(("a", 4, 5), ("a", 8, 10))},  # 10 belongs to the next window and closes this
        {"s": rows(("a", 16, 19))},
    ]
    out = run_epochs(per_key(stream(), hopping(10)), epochs)
    assert short(out) == [[], [("a", (0, 10), 3, 7)], []]


def test_a_late_row_is_dropped_and_changes_nothing_that_came_out() -> None:
    epochs = [{"s": rows(("a", 1, 1), ("a", 1, 12))}, {"s": rows(("a", 1, 2), ("a", 1, 20))}]
    out = run_epochs(per_key(stream(), hopping(10)), epochs)
    assert short(out) == [[("a", (0, 10), 1, 1)], [("a", (10, 20), 1, 1)]]


def test_a_late_row_counts_in_the_windows_that_are_open() -> None:
    plan = per_key(stream(), hopping(10), hopping(30))
    epochs = [{"s": rows(("a", 1, 1), ("a", 1, 12))}, {"s": rows(("a", 5, 2), ("a", 1, 30))}]
    assert short(run_epochs(plan, epochs)) == [
        [("a", (0, 10), "10 seconds", 1, 1)],
        [("a", (0, 30), "30 seconds", 3, 7), ("a", (10, 20), "10 seconds", 1, 1)],
    ]


def test_rows_of_the_same_epoch_are_never_late_for_each_other() -> None:
    epochs = [{"s": rows(("a", 1, 50), ("a", 2, 1))}]
    out = run_epochs(per_key(stream(), hopping(10)), epochs)
    assert short(out) == [[("a", (0, 10), 1, 2)]]


def test_the_delay_holds_the_watermark_back() -> None:
    epochs = [{"s": rows(("a", 1, 1), ("a", 1, 14.999))}, {"s": rows(("a", 2, 9), ("a", 1, 15))}]
    out = run_epochs(per_key(stream(delay=5), hopping(10)), epochs)
    assert short(out) == [[], [("a", (0, 10), 2, 3)]]


def test_the_watermark_is_in_whole_milliseconds() -> None:
    plan = per_key(stream(delay=0.001), hopping(10))
    # 10.0009 floors to 10.000, less 0.001 is 9.999: still open. 10.001 closes it.
    epochs = [{"s": rows(("a", 1, 1), ("a", 1, 10.0009))}, {"s": rows(("a", 1, 10.001))}]
    assert short(run_epochs(plan, epochs)) == [[], [("a", (0, 10), 1, 1)]]


def test_rows_without_a_time_are_dropped_and_without_a_key_are_a_group() -> None:
    epochs = [{"s": rows(("a", 1, None), (None, 2, 1), (None, 3, 2), ("b", None, 3), ("b", 0, 10))}]
    out = run_epochs(per_key(stream(), hopping(10)), epochs)
    assert short(out) == [[("b", (0, 10), 1, None), (None, (0, 10), 2, 5)]]


def test_hopping_windows_with_offset() -> None:
    # Starts are …, -3, 2, 7, 12: 8 is in [2, 12) and [7, 17), and 3 in [-3, 7) and [2, 12).
    plan = per_key(stream(), hopping(10, 5, offset=2))
    epochs = [{"s": rows(("a", 1, 8), ("a", 2, 3), ("z", 0, 40))}]
    assert short(run_epochs(plan, epochs)) == [
        [("a", (-3, 7), 1, 2), ("a", (2, 12), 2, 3), ("a", (7, 17), 1, 1)]
    ]


def test_windows_with_pauses_between_them() -> None:
    plan = per_key(stream(), hopping(4, 10))
    epochs = [{"s": rows(("a", 1, 3.9), ("a", 2, 4), ("a", 4, 13), ("z", 0, 30))}]
    assert short(run_epochs(plan, epochs)) == [[("a", (0, 4), 1, 1), ("a", (10, 14), 1, 4)]]


def test_update_puts_out_what_changed_and_was_open() -> None:
    epochs = [
        {"s": rows(("a", 1, 1), ("b", 1, 2))},
        {"s": rows(("a", 2, 3), ("a", 4, 12))},  # closes [0, 10) at its end
        {"s": rows(("b", 8, 4))},  # late
        {},
    ]
    out = run_epochs(per_key(stream(), hopping(10)), epochs, mode=OutputMode.UPDATE)
    assert short(out) == [
        [("a", (0, 10), 1, 1), ("b", (0, 10), 1, 1)],
        [("a", (0, 10), 2, 3), ("a", (10, 20), 1, 4)],
        [],
        [],
    ]


def test_sessions_hold_rows_up_to_one_gap_apart() -> None:
    plan = per_key(stream(), Session(ms(5)))
    epochs = [{"s": rows(("a", 1, 1), ("a", 2, 6), ("a", 4, 11.000001), ("z", 0, 20))}]
    assert short(run_epochs(plan, epochs)) == [
        [("a", (1, 11), 2, 3), ("a", (11.000001, 16.000001), 1, 4)]
    ]


def test_sessions_merge_close_and_are_forgotten() -> None:
    plan = per_key(stream(), Session(ms(5)))
    epochs = [
        {"s": rows(("a", 1, 1), ("a", 2, 9))},  # W 9: [1, 6) is closed, [9, 14) open
        {"s": rows(("a", 4, 4.000001))},  # 4.000001 + 5 > 9, accepted: it opens a new session,
        {"s": rows(("a", 8, 4))},  # 4 + 5 <= 9, late
        {"s": rows(("a", 16, 14))},  # with gap 5 of 9: one session [4.000001, 19)
        {"s": rows(("z", 0, 19))},
    ]
    assert short(run_epochs(plan, epochs)) == [
        [("a", (1, 6), 1, 1)],
        [],
        [],
        [],
        [("a", (4.000001, 19), 3, 22)],
    ]


def test_a_row_within_the_gap_of_a_closed_session_opens_a_new_one() -> None:
    plan = per_key(stream(), Session(ms(5)))
    epochs = [{"s": rows(("a", 1, 1), ("z", 0, 6))}, {"s": rows(("a", 2, 5)), "": []}]
    epochs.append({"s": rows(("z", 0, 10))})
    assert short(run_epochs(plan, epochs)) == [
        [("a", (1, 6), 1, 1)],
        [],
        [("a", (5, 10), 1, 2)],
    ]


def test_trailing_is_computed_anew_whenever_the_watermark_advances() -> None:
    plan = per_key(stream(), Trailing(ms(10)))
    epochs = [
        {"s": rows(("a", 1, 1), ("a", 2, 12))},  # [2, 12): nothing, 12 is not before 12
        {"s": rows(("b", 4, 3))},  # the watermark stays
        {"s": rows(("a", 8, 13))},  # [3, 13)
        {"s": rows(("z", 0, 40))},  # [30, 40)
    ]
    assert short(run_epochs(plan, epochs)) == [
        [],
        [],
        [("a", (3, 13), 1, 2), ("b", (3, 13), 1, 4)],
        [],
    ]


def test_landmark_totals_grow_and_nothing_is_late() -> None:
    plan = per_key(stream(), Landmark())
    epochs = [{"s": rows(("a", 1, 100), ("b", 2, 1))}, {"s": rows(("a", 4, 1))}, {}]
    assert short(run_epochs(plan, epochs)) == [[("a", 1, 1), ("b", 1, 2)], [("a", 2, 5)], []]


def test_having_looks_at_what_comes_out() -> None:
    aggregate = per_key(stream(), hopping(10))
    enough = Call(">", (Column("n", BIGINT), Literal(1, BIGINT)), BOOLEAN)
    epochs = [{"s": rows(("a", 1, 1), ("a", 1, 2), ("b", 1, 3), ("z", 0, 10))}]
    assert short(run_epochs(Filter(aggregate, enough), epochs)) == [[("a", (0, 10), 2, 2)]]


def test_a_filter_does_not_hold_the_watermark_back() -> None:
    only_a = Call("=", (column("k"), Literal("a", column("k").type)), BOOLEAN)
    plan = per_key(Filter(stream(), only_a), hopping(10))
    epochs = [{"s": rows(("a", 1, 1), ("z", 0, 10))}]
    assert short(run_epochs(plan, epochs)) == [[("a", (0, 10), 1, 1)]]


def test_a_union_waits_for_the_slower_stream() -> None:
    plan = per_key(Union((stream("s"), stream("t", delay=1))), hopping(10))
    epochs = [
        {"s": rows(("a", 1, 1), ("a", 0, 50))},  # t has no watermark: none for the union
        {"t": rows(("a", 2, 2), ("a", 0, 10.999))},
        {"t": rows(("a", 0, 11))},
    ]
    assert short(run_epochs(plan, epochs)) == [[], [], [("a", (0, 10), 2, 3)]]


def test_windows_of_windows_close_in_the_same_epoch() -> None:
    lower = per_key(stream(), hopping(10))
    last = Named("at", window_time(Column(WINDOW_COLUMN, WINDOW)))
    handed_on = Project(lower, (Named("k", column("k")), last, Named("n", Column("n", BIGINT))))
    most = AggregateCall("max", (Column("n", BIGINT),), BIGINT)
    plan = Aggregate(handed_on, (), Column("at", TIMESTAMP), (hopping(20),), (Named("m", most),))
    epochs = [
        {"s": rows(("a", 1, 1), ("a", 1, 2), ("a", 1, 12))},
        {"s": rows(("b", 1, 19.9), ("z", 0, 20))},
        {"s": rows(("z", 0, 39.999999))},
        {"s": rows(("z", 0, 40))},
    ]
    assert short(run_epochs(plan, epochs)) == [[], [((0, 20), 2)], [], [((20, 40), 1)]]


def test_in_update_mode_lower_aggregates_still_hand_on_final_rows() -> None:
    lower = per_key(stream(), hopping(10))
    last = Named("at", window_time(Column(WINDOW_COLUMN, WINDOW)))
    handed_on = Project(lower, (last,))
    number = Named("windows", AggregateCall("count", (), BIGINT))
    plan = Aggregate(handed_on, (), Column("at", TIMESTAMP), (hopping(20),), (number,))
    epochs = [{"s": rows(("a", 1, 1))}, {"s": rows(("a", 1, 2), ("a", 1, 12))}, {}]
    out = run_epochs(plan, epochs, mode=OutputMode.UPDATE)
    assert short(out) == [[], [((0, 20), 1)], []]


def test_the_batch_meaning_closes_everything() -> None:
    plan = per_key(stream(delay=60), hopping(10))
    everything = rows(("a", 1, 1), ("a", 2, 12), ("a", 4, None))
    assert short([run_batch(plan, {"s": everything})]) == [
        [("a", (0, 10), 1, 1), ("a", (10, 20), 1, 2)]
    ]
