"""What several readers need of an operator, computed once in an epoch and held for all of them.

A join whose pairs go to three queries would run three times, once within each of their results.
Where that costs more than one job does, its new rows are written first, to a file that lives as
long as the epoch; whoever asks the operator for its rows is then given the file.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.compiler.physical_plan import PhysicalPlan
from headrace.definitions.definition import Definition
from headrace.engine.epochs.running_epoch import RunningEpoch
from headrace.operators.base import Operator, Store
from headrace.operators.rows.probe_join import ProbeJoin
from headrace.operators.write import Write, Writing, run_together
from headrace.state.arrangement import StateFile

#: Rows that are read again for each further reader in the time that one more job takes.
LEAST_ROWS = 200_000


def materialize_shared(epoch: RunningEpoch, physical: PhysicalPlan, ready: Iterable[Store]) -> None:
    """Compute what pays to be computed once, of the operators that read ``ready`` stores alone."""
    advanced = {id(store) for store in ready}
    work: dict[int, Writing[Definition | None]] = {}
    for operator, readers in physical.readers():
        if id(operator) in epoch.tried or isinstance(operator, ProbeJoin):
            # A probed join keeps its results for the epoch itself.
            continue
        if readers < 2 or not all(id(store) in advanced for store in operator.stores):
            continue
        if (readers - 1) * sum(_rows(epoch, store) for store in operator.stores) >= LEAST_ROWS:
            epoch.tried.add(id(operator))
            work[id(operator)] = _hold(epoch, operator, len(epoch.tried))
    for number, ended in run_together(epoch.executor, work).items():
        # What fails here fails again where it is read, and there it is known for whom.
        if not isinstance(ended, Exception):
            epoch.held[number] = ended


def _rows(epoch: RunningEpoch, store: Store) -> int:
    return sum(file.rows for file in epoch.state.arrangement(store.name).files)


def _hold(epoch: RunningEpoch, operator: Operator, number: int) -> Writing[Definition | None]:
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
