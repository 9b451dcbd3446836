"""Epochs: from a set of batches to a commit.

``runner`` runs one after the other over the ``live_plan``; an ``attempt`` is one try, on a copy of
the state, of what operators know as a ``running_epoch``. ``shared_rows`` and ``shared_output``
compute once what several need (with ``renamed_files`` for those who call its columns otherwise),
``compaction`` merges small files in between, and ``report`` tells of it.

When something fails, ``blame`` finds out whose fault it is. What a sink does not take waits in the
``outbox`` and is tried again (``deliveries``); a query that fails is set aside and may go on by
itself (``branch_runs``).
"""
