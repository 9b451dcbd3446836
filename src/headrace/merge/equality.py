"""When two operators mean the same: signatures by number, and a proof where numbers do not tell.

Signatures with equal numbers are equal; a hash finds them. Where the spelling of both
predicates is complete (bounds of single columns) signatures with different numbers are unequal.
Disjunctions, sums of several columns and products may be equal in different spellings. Those are
shown to the solver, but only with a candidate that has the same leaves (the paper's heuristic
checks), gives the same answers on sampled rows, and is not told apart by rows at the bounds that
either predicate names. What is proved of a block holds for everything that is made of it.

Paper: Query Merging, Section 6.1.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain, islice

from headrace.merge.comparisons import is_ordered
from headrace.merge.conditions import Predicate, raising_parts, safe_parts
from headrace.merge.fingerprints import Fingerprints
from headrace.merge.polynomials import is_linear, variables_of
from headrace.merge.signature import SelectBlock, Signature
from headrace.merge.signer import Signer
from headrace.merge.solver import Solver, is_installed
from headrace.merge.witnesses import Witnesses

#: Candidates that are shown to the solver for one operator.
MOST_CANDIDATES = 4
#: Candidates that rows at the bounds are tried on.
MOST_COMPARED = 16


@dataclass(slots=True)
class _Alike:
    """Blocks over the same leaves, which only their predicates tell apart.

    Answers on sampled rows are computed only once some predicate needs more than its spelling.
    """

    undecided: bool = False
    unsampled: list[SelectBlock] = field(default_factory=list)
    #: By answers, and then by the conditions whose spelling is enough.
    by_answers: dict[int, dict[frozenset[int], list[SelectBlock]]] = field(default_factory=dict)


class Equality:
    """Gives equal signatures one key, for as long as a global plan lives.

    ``named`` asks for equal names of columns too, as the paper does; without it columns may be
    named and ordered otherwise, and who merges puts a projection between.
    """

    def __init__(self, signer: Signer, solver_steps: int, named: bool = True) -> None:
        self.signer = signer
        self._named = named
        asks = solver_steps > 0 and is_installed()
        self.solver = Solver(signer.terms, solver_steps) if asks else None
        self.fingerprints = Fingerprints(signer.terms)
        self.witnesses = Witnesses(signer.terms)
        self._hard: dict[int, bool] = {}
        self._settled: dict[tuple[tuple[int, ...], int], SelectBlock] = {}
        self._alike: dict[object, _Alike] = {}
        if self.solver is not None:
            signer.settle = self.settle

    def key(self, signature: Signature) -> int:
        """A number that equal operators share: their rows, and what they show of them."""
        columns = self.signer.columns(signature)
        shown = sorted(
            (f.name if self._named else "", f.type.name, columns[f.name]) for f in signature.schema
        )
        core = self.signer.core(signature)
        return self.signer.terms.intern(("relation", core, tuple(shown)))

    def settle(self, branch: SelectBlock) -> SelectBlock:
        """A block, or one before it whose predicate is proved equal."""
        place = branch.leaves, self.signer.normal(branch).where
        first = self._settled.get(place)
        if first is None:
            first = self._settled[place] = self._found(branch)
        return first

    def _found(self, branch: SelectBlock) -> SelectBlock:
        parts = safe_parts(self._normal(branch))
        if self.signer.conditions.false in parts:
            # Nothing comes out, whatever else it says; that is not worth a proof.
            return branch
        shape = branch.leaves, raising_parts(self._normal(branch))
        alike = self._alike.setdefault(shape, _Alike())
        if not alike.undecided and not any(map(self._is_hard_part, parts)):
            alike.unsampled.append(branch)
            return branch
        alike.undecided = True
        for other in alike.unsampled:
            self._file(other, alike)
        alike.unsampled.clear()
        equal = self._proved(self._normal(branch), self._candidates(branch, alike))
        if equal is not None:
            return self.settle(equal)
        self._file(branch, alike)
        return branch

    def _file(self, branch: SelectBlock, alike: _Alike) -> None:
        groups = alike.by_answers.setdefault(self.fingerprints.of(self._normal(branch)), {})
        groups.setdefault(self._plain_parts(self._normal(branch)), []).append(branch)

    def _candidates(self, branch: SelectBlock, alike: _Alike) -> Iterator[SelectBlock]:
        """Those that give the same answers, first of all those that agree on what is plain."""
        groups = alike.by_answers.get(self.fingerprints.of(self._normal(branch)), {})
        plain = self._plain_parts(self._normal(branch))
        others = (group for form, group in groups.items() if form != plain)
        return chain(groups.get(plain, ()), chain.from_iterable(others))

    def _proved(
        self, predicate: Predicate, candidates: Iterator[SelectBlock]
    ) -> SelectBlock | None:
        """One of the candidates whose predicate is proved equal."""
        assert self.solver is not None
        proofs_tried = 0
        for other in islice(candidates, MOST_COMPARED):
            if proofs_tried == MOST_CANDIDATES:
                return None
            if self.witnesses.differ(predicate, self._normal(other)):
                continue
            proofs_tried += 1
            if self.solver.equal(predicate, self._normal(other)):
                return other
        return None

    def _normal(self, branch: SelectBlock) -> Predicate:
        return self.signer.normal(branch).predicate

    def _plain_parts(self, predicate: Predicate) -> frozenset[int]:
        return frozenset(part for part in safe_parts(predicate) if not self._is_hard_part(part))

    def _is_hard_part(self, condition: int) -> bool:
        is_hard = self._hard.get(condition)
        if is_hard is None:
            form = self.signer.terms.forms[condition]
            match form[0]:
                case "linear":
                    is_hard = not is_linear(form[2]) or len(variables_of(form[2])) > 1
                case "compare":
                    is_hard = is_ordered(form[2]) and not self.signer.terms.is_constant(form[4])
                case kind:
                    is_hard = kind == "any"
            self._hard[condition] = is_hard
        return is_hard
