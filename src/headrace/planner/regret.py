"""Plans that did not keep their promise: when to go back, and what it takes to be tried again.

Every decision has a plan that it need not choose: the query as it is *written*. Others are chosen
because less work is predicted for them, and predictions err: samples miss what is rare, and figures
that are taken for independent are not. So whoever decides tells afterwards what the plan that ran
has taken. If that is more than what was predicted for the written plan, the choice is regretted,
and the decision goes back. Predictions are for the rows that came, by whatever is known of them
once they have come; so a plan is not blamed for work that any other would have had.

A plan that was regretted once looks as promising in the next epoch, or it would not have been
chosen. It is admitted again by new evidence alone:

- it promises more than what it was wrong by: its prediction, times what it was exceeded by, is
  still below that for the written plan;
- things have changed: its prediction has fallen, or the written plan's risen, by ``CHANGE`` and by
  as much again for each time that it was regretted before;
- the written plan has been seen to take no less than what was regretted.

And while predictions of a subject have just been wrong, those of its other plans are *doubted* as
much: they too must promise more than that. Each prediction that comes true takes the root of it.

So of a stream that is made to deceive, every plan is paid for in one epoch, and then only if what
it promises grows by a factor each time. Work has any unit, as long as it is the same for what is
predicted and what is observed: seconds for a row, for instance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from typing import Any

#: By how much observed work may exceed the written plan's before a choice is regretted: as much as
#: samples differ by chance.
LEEWAY = 1.1
#: A prediction has come true if no more than so many times of it were observed.
TRUE = 1.5
#: How many times a prediction must change to be about something else.
CHANGE = 1.5
#: Doubt of less than this is none.
NO_DOUBT = 1.05
#: So many plans of a subject are remembered, those that were regretted last.
MOST_LESSONS = 8
#: Less work than this is none.
_NONE = 1e-12


@dataclass(frozen=True)
class Subject:
    """What is decided: by which decision, of which store or join, and of which part of it."""

    decision: str
    name: str
    part: str = ""


@dataclass(frozen=True)
class Promise:
    """The work that is predicted for a plan, and for the written one."""

    chosen: float
    written: float


@dataclass(frozen=True)
class Lesson:
    """What was promised of a plan and what came of it, when it was regretted last."""

    promise: Promise
    observed: float
    #: How often it was regretted.
    times: int = 1

    @property
    def error(self) -> float:
        """How many times the predicted work it took.

        >>> Lesson(Promise(2.0, 5.0), 8.0).error
        4.0
        """
        return _times(self.observed, self.promise.chosen)

    def is_outdated(self, promise: Promise) -> bool:
        """Whether predictions are so different that they are about something else."""
        change = CHANGE**self.times
        return (
            promise.chosen * change <= self.promise.chosen
            or promise.written >= self.promise.written * change
        )


@dataclass(frozen=True)
class Experience:
    """What is known of one subject's plans: lessons, the oldest first, and how far predictions are
    doubted."""

    lessons: Mapping[str, Lesson] = field(default_factory=dict)
    doubt: float = 1.0

    def admits(self, plan: str, promise: Promise) -> bool:
        """Whether a plan may be chosen for what is now predicted."""
        lesson = self.lessons.get(plan)
        needed = self.doubt
        if lesson is not None and not lesson.is_outdated(promise):
            needed = max(needed, lesson.error)
        return promise.chosen * needed <= promise.written

    def regret(self, plan: str) -> Regret | None:
        """What is held against a plan."""
        lesson = self.lessons.get(plan)
        return None if lesson is None else Regret(lesson.promise, lesson.observed)

    def after(self, plan: str | None, promise: Promise, observed: float) -> Experience:
        """Once a plan has run; None is the written one, whose promise is its own prediction."""
        if plan is None:
            lessons = {name: one for name, one in self.lessons.items() if observed < one.observed}
            return Experience(lessons, self._doubt(observed, promise.written))
        others = {name: one for name, one in self.lessons.items() if name != plan}
        if not is_regretted(promise, observed):
            return Experience(others, self._doubt(observed, promise.chosen))
        before = self.lessons.get(plan)
        lesson = Lesson(promise, observed, 1 if before is None else before.times + 1)
        remembered = dict([*others.items(), (plan, lesson)][-MOST_LESSONS:])
        return Experience(remembered, max(self.doubt, lesson.error))

    def _doubt(self, observed: float, predicted: float) -> float:
        if observed > predicted * TRUE:
            return self.doubt
        doubt = sqrt(self.doubt)
        return doubt if doubt >= NO_DOUBT else 1.0

    @property
    def is_empty(self) -> bool:
        return not self.lessons and self.doubt == 1.0


NO_EXPERIENCE = Experience()


def is_regretted(promise: Promise, observed: float) -> bool:
    """Whether a plan that promised less took more than was predicted for the written one.

    >>> is_regretted(Promise(2.0, 5.0), 8.0), is_regretted(Promise(2.0, 5.0), 5.2)
    (True, False)

    One that promises more by now is left because of that.

    >>> is_regretted(Promise(6.0, 5.0), 8.0)
    False
    """
    return promise.chosen <= promise.written and observed > promise.written * LEEWAY


@dataclass(frozen=True)
class Regret:
    """That a plan did not keep its promise, for people."""

    promise: Promise
    observed: float

    @property
    def text(self) -> str:
        """What is said of the plan that was left.

        >>> Regret(Promise(2.0, 5.0), 8.0).text
        'took 4 times the work that was predicted, and 1.6 times that of the written plan'
        """
        more = _times(self.observed, self.promise.chosen)
        than_written = _times(self.observed, self.promise.written)
        return (
            f"took {more:.3g} times the work that was predicted, and {than_written:.3g} times that "
            "of the written plan"
        )


@dataclass
class Regrets:
    """The experience of all subjects, which commits keep."""

    known: dict[Subject, Experience] = field(default_factory=dict)

    def of(self, subject: Subject) -> Experience:
        return self.known.get(subject, NO_EXPERIENCE)

    def admits(self, subject: Subject, plan: str, promise: Promise) -> bool:
        """Whether a plan may be chosen; the written one always may, and is not asked for."""
        return self.of(subject).admits(plan, promise)

    def judge(
        self, subject: Subject, plan: str | None, promise: Promise, observed: float
    ) -> Regret | None:
        """Take in what a plan has taken (None: the written one); a regret if it must be left."""
        experience = self.of(subject).after(plan, promise, observed)
        if experience.is_empty:
            self.known.pop(subject, None)
        else:
            self.known[subject] = experience
        if plan is None or not is_regretted(promise, observed):
            return None
        return Regret(promise, observed)

    def forget_all_but(self, used: Collection[str]) -> None:
        self.known = {s: experience for s, experience in self.known.items() if s.name in used}

    def copy(self) -> Regrets:
        return replace(self, known=dict(self.known))

    def to_json(self) -> list[Any]:
        return [
            [
                *(subject.decision, subject.name, subject.part, experience.doubt),
                [
                    [plan, one.promise.chosen, one.promise.written, one.observed, one.times]
                    for plan, one in experience.lessons.items()
                ],
            ]
            for subject, experience in self.known.items()
        ]

    @classmethod
    def from_json(cls, value: Sequence[Any]) -> Regrets:
        return cls(
            {
                Subject(decision, name, part): Experience(
                    {
                        plan: Lesson(Promise(chosen, written), observed, times)
                        for plan, chosen, written, observed, times in lessons
                    },
                    doubt,
                )
                for decision, name, part, doubt, lessons in value
            }
        )


#: For who plans without experience.
NOTHING_REGRETTED = Regrets()


def _times(one: float, other: float) -> float:
    return max(one, _NONE) / max(other, _NONE)
