"""The rows of an operator that several read, computed once in an epoch and kept for all of them.

Where the planner finds that it pays, the new rows are written first, to a file that lives as long
as the epoch; whoever asks the operator for its rows is then given the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.definitions.definition import Definition
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.operators.base import Operator, Store
from headrace.operators.rows.probe_join import ProbeJoin
from headrace.operators.write import Write, Writing, run_together
from headrace.planner.shared_rows import pays_to_share
from headrace.state.arrangement import StateFile


def materialize_shared(epoch: RunningEpoch, physical: PhysicalPlan, ready: Iterable[Store]) -> None:
    """Compute what pays to be computed once, of the operators that read ``ready`` stores alone."""
    advanced = {id(store) for store in ready}
    work: dict[int, Writing[Definition | None]] = {}
    for operator, readers in physical.readers():
        if id(operator) in epoch.shared_attempts or isinstance(operator, ProbeJoin):
            # A probed join keeps its results for the epoch itself.
            continue
        if not all(id(store) in advanced for store in operator.stores):
            continue
        rows = sum(epoch.stored_rows(store.name) for store in operator.stores)
        if pays_to_share(readers, rows, physical.policy):
            epoch.shared_attempts.add(id(operator))
            work[id(operator)] = _materialize(epoch, operator, len(epoch.shared_attempts))
    for number, ended in run_together(epoch.executor, work).items():
        # What fails here fails again where it is read, and there it is known for whom.
        if not isinstance(ended, Exception):
            epoch.shared_rows[number] = ended


def _materialize(
    epoch: RunningEpoch, operator: Operator, number: int
) -> Writing[Definition | None]:
    rows = operator.delta(epoch)
    if rows is None:
        return None
    path = epoch.checkpoint.path("state", f"shared-{number}", f"{epoch.number:010d}")
    # Nobody needs it after the epoch, nor what a write that fails leaves behind.
    epoch.state.garbage.append((epoch.number, path))
    written = yield Write(f"shared-{number}", rows.query, rows.schema, path=path)
    files = [StateFile(f.path, epoch.number, f.rows, f.size, None, None) for f in written.files]
    if not written.rows:
        return None
    return Definition(epoch.inputs.bind_files(files, rows.schema), rows.schema)
