"""Whether the planner chooses well: every plan of many workloads, forced and measured.

Read in this order: ``choices`` (the bench), ``judging`` (the work of a choice against the best),
``measuring`` (one run, and what a decision must tell of its work), ``streams`` (rows by chance, in
phases), and for each kind of decision its workloads and how its plans are forced:
``probed_workloads`` and ``probing``, ``joined_workloads`` and ``joining``, ``window_workloads`` and
``laying_out``, ``early_workloads`` and ``aggregating``. ``timed`` runs some on Spark; ``__main__``
judges some by name, without Spark.
"""
