"""The SMT solver: the last word on predicates that their spelling does not decide.

It is asked whether two predicates can ever differ, never whether they can agree; only a proof that
they cannot (``unsat``) counts. A condition that is not arithmetic stands for a truth of its own,
which may be anything: what is proved holds whatever it is. Running out of steps proves nothing.
Steps are the solver's own count, not time: what is proved does not depend on what else the machine
does.

Paper: Query Merging, Section 6.1.
"""

from __future__ import annotations

import operator
from functools import cached_property
from importlib.util import find_spec
from typing import Any

from headrace.merge.comparisons import is_ordered
from headrace.merge.conditions import Predicate, prefixes, raising_parts
from headrace.merge.constants import place
from headrace.merge.terms import Terms

#: Steps for one proof: five times what the longest of the published query sets takes. Most take
#: some hundreds, and a millisecond; one that fails takes all, and about a hundredth of a second.
SOLVER_STEPS = 20_000
_COMPARE = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_installed() -> bool:
    """Whether there is a solver; without one, what it would decide is taken to be unequal."""
    return find_spec("z3") is not None


class Solver:
    """Proofs about predicates, with a budget of steps for each."""

    def __init__(self, terms: Terms, steps: int) -> None:
        self._terms = terms
        self._steps = steps
        self._made: dict[int, Any] = {}
        #: How often it was asked, and how often it proved what was asked.
        self.asked = 0
        self.proved = 0

    def equal(self, one: Predicate, other: Predicate) -> bool:
        """Whether it is proved that both keep the same rows, and raise for the same.

        Conditions that might raise are met by the rows that those before them let through. So they
        must be the same in the same order, and what stands before each of them must be equal too.
        """
        if raising_parts(one) != raising_parts(other):
            return False
        return all(map(self._keep_the_same, prefixes(one), prefixes(other)))

    def _keep_the_same(self, one: Predicate, other: Predicate) -> bool:
        z3 = self._z3
        return one == other or self._never(z3.Xor(self._predicate(one), self._predicate(other)))

    def implies(self, stronger: Predicate, weaker: Predicate) -> bool:
        """Whether it is proved that every row that one keeps the other keeps too."""
        z3 = self._z3
        return self._never(z3.And(self._predicate(stronger), z3.Not(self._predicate(weaker))))

    @cached_property
    def _z3(self) -> Any:
        # Imported when it is needed: most predicates never come here.
        import z3

        return z3

    @cached_property
    def _context(self) -> Any:
        # One of its own: others in the process neither wait for it nor change what it tries first.
        return self._z3.Context()

    def _never(self, formula: Any) -> bool:
        solver = self._z3.Solver(ctx=self._context)
        solver.set("rlimit", self._steps)
        solver.add(formula)
        self.asked += 1
        proved = solver.check() == self._z3.unsat
        self.proved += proved
        return bool(proved)

    def _predicate(self, predicate: Predicate) -> Any:
        parts = [
            self._condition(part)
            for segment in predicate
            for part in (sorted(segment) if isinstance(segment, frozenset) else (segment,))
        ]
        return self._z3.And(parts) if parts else self._z3.BoolVal(True, self._context)

    def _condition(self, condition: int) -> Any:
        formula = self._made.get(condition)
        if formula is None:
            formula = self._made[condition] = self._translated(condition)
        return formula

    def _translated(self, condition: int) -> Any:
        z3 = self._z3
        form = self._terms.forms[condition]
        match form[0]:
            case "all":
                return z3.And([self._condition(part) for part in form[1]])
            case "any":
                return z3.Or([self._condition(part) for part in form[1]])
            case "false":
                return z3.BoolVal(False, self._context)
            case "isnull":
                return self._null(form[1])
            case "notnull":
                return z3.Not(self._null(form[1]))
            case "linear" if not self._terms.raises(condition):
                return self._linear(form)
            case "compare" if is_ordered(form[2]) and not self._terms.raises(condition):
                return self._ordered(form)
            case "fails":
                # A flag is neither true nor false where it is NULL.
                flag = z3.Bool(f"c{form[1]}", self._context)
                return z3.And(z3.Not(flag), z3.Not(self._null(form[1])))
            case "var" | "call" | "cast":
                flag = z3.Bool(f"c{condition}", self._context)
                return z3.And(flag, z3.Not(self._null(condition)))
            case _:
                return z3.Bool(f"c{condition}", self._context)

    def _ordered(self, form: tuple[Any, ...]) -> Any:
        """A comparison of doubles or texts: what has an order has places among the reals."""
        z3 = self._z3
        _, op, _, first, second = form
        sides, there = [], []
        for term in (first, second):
            value = self._terms.value_of(term)
            where = None if value is None else place(value)
            if where is not None:
                sides.append(z3.Q(where.numerator, where.denominator, self._context))
            else:
                sides.append(z3.Real(f"r{term}", self._context))
                there.append(z3.Not(self._null(term)))
        return z3.And([_COMPARE[op](*sides), *there])

    def _linear(self, form: tuple[Any, ...]) -> Any:
        """A comparison is true only where nothing in it is NULL."""
        z3 = self._z3
        _, op, items, vanished = form
        total = z3.IntVal(0, self._context)
        variables = set(vanished)
        for monomial, coefficient in items:
            product = z3.IntVal(coefficient, self._context)
            for variable in monomial:
                variables.add(variable)
                product = product * z3.Int(f"v{variable}", self._context)
            total = total + product
        holds = {"<=": total <= 0, "=": total == 0, "!=": total != 0}[op]
        return z3.And([holds, *(z3.Not(self._null(v)) for v in sorted(variables))])

    def _null(self, variable: int) -> Any:
        return self._z3.Bool(f"n{variable}", self._context)
