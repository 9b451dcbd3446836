"""The SMT solver: the last word on predicates that their spelling does not decide.

It is asked whether two predicates can ever differ, never whether they can agree; only a proof that
they cannot (``unsat``) counts. A condition that is not arithmetic stands for a truth of its own,
which may be anything: what is proved holds whatever it is. Running out of time proves nothing.

Paper: Query Merging, Section 6.1.
"""

from __future__ import annotations

from functools import cached_property
from importlib.util import find_spec
from typing import Any

from headrace.merge.conditions import Predicate, prefixes, raising_parts
from headrace.merge.terms import Terms


def is_installed() -> bool:
    """Whether there is a solver; without one, what it would decide is taken to be unequal."""
    return find_spec("z3") is not None


class Solver:
    """Proofs about predicates, with a budget of time for each."""

    def __init__(self, terms: Terms, budget_ms: int) -> None:
        self._terms = terms
        self._budget_ms = budget_ms
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

    def _never(self, formula: Any) -> bool:
        solver = self._z3.Solver()
        solver.set("timeout", self._budget_ms)
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
        return self._z3.And(parts) if parts else self._z3.BoolVal(True)

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
                return z3.BoolVal(False)
            case "isnull":
                return self._null(form[1])
            case "notnull":
                return z3.Not(self._null(form[1]))
            case "linear" if not self._terms.raises(condition):
                return self._linear(form)
            case _:
                return z3.Bool(f"c{condition}")

    def _linear(self, form: tuple[Any, ...]) -> Any:
        """A comparison is true only where nothing in it is NULL."""
        z3 = self._z3
        _, op, items, vanished = form
        total = z3.IntVal(0)
        variables = set(vanished)
        for monomial, coefficient in items:
            product = z3.IntVal(coefficient)
            for variable in monomial:
                variables.add(variable)
                product = product * z3.Int(f"v{variable}")
            total = total + product
        holds = {"<=": total <= 0, "=": total == 0, "!=": total != 0}[op]
        return z3.And([holds, *(z3.Not(self._null(v)) for v in sorted(variables))])

    def _null(self, variable: int) -> Any:
        return self._z3.Bool(f"n{variable}")
