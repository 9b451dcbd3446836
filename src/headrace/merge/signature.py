"""Signatures: what a plan means, whatever operators in whatever order say it.

The paper's signature is a triple of predicates, tuple transformations and windows, made from the
source to the sink. Ours is the same with one difference: a signature is a *union of branches*, and
each branch has predicates and transformations of its own. So ``A.filter(p) UNION B`` and ``A UNION
B.filter(p)`` differ, which a conjunction over the whole union could not tell.

A branch is a select-project-join block: leaf relations, a predicate over their columns, and a term
per output column. Leaves are streams, tables, and whatever a block cannot look into: aggregates,
outer and session joins. A column of an aggregate is named by what it computes (``sum of this
term``), so queries that ask the same groups for different sums share the leaf. ``signer`` makes
signatures, ``join_signer`` those of joins.

Paper: Query Merging, Section 4.1.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.merge.conditions import Predicate
from headrace.merge.normal_blocks import NormalBlock
from headrace.plan.types import Schema


@dataclass(slots=True)
class SelectBlock:
    """A select-project-join block, as it is built on; ``Signer.normal`` spells it as a whole."""

    leaves: tuple[int, ...]
    predicate: Predicate
    columns: dict[str, int]
    known_normal: NormalBlock | None = None


@dataclass(slots=True)
class Signature:
    """What one operator puts out. ``known_columns`` are its columns with the number of
    their meaning.

    What two relations with an equal core have in common are their rows, whatever columns they show
    of them; ``Signer.core`` finds it when it is asked for, and ``Signer.columns`` what they show.
    Either may take a proof.
    """

    branches: tuple[SelectBlock, ...]
    schema: Schema
    known_core: int | None = None
    known_columns: dict[str, int] | None = None
