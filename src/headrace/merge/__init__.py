"""Merging: which standing queries mean the same, wholly or in part, and one plan for all of them.

After *Incremental Stream Query Merging* (Chaudhary, Karimov, Zeuch, Markl, EDBT 2023). A query goes
through these files from top to bottom: ``terms`` and ``conditions`` write what it computes in one
spelling (``spelling``, ``constants``, ``polynomials``, ``ranges``, ``comparisons``, ``bounds``,
``rebuilding``), ``signer`` says what each of its operators means (``signature``,
``normal_blocks``, ``join_signer``, ``aggregate_forms``), ``equality`` finds others that mean the
same (``fingerprints``,
``witnesses``, ``solver``), ``syntax`` is what strategies see that do not look at meaning,
``strategies`` are the ways to do so, and ``global_plan`` keeps all queries merged while they come
and go. ``rewriting`` gives each query the plan that it runs (``containing_operators``,
``containment``, ``contained_groups``: what is within another), ``describe`` and ``printing`` show
the whole.
"""

from __future__ import annotations

from headrace.merge.global_plan import GlobalPlan, Placed, Scope
from headrace.merge.strategies import MergeStrategy

__all__ = ["GlobalPlan", "MergeStrategy", "Placed", "Scope"]
