"""The experiments of the paper on run-time optimized multi-way joins.

Read in this order: ``probe_order`` (the bench, its parts and sizes), ``runs`` (one run, which all
parts are made of), ``tpcds_streams`` and ``drifting_streams`` (what is joined), and the parts:
``tpcds`` (the paper's query by every strategy), ``counted`` (the same by work, without Spark;
``__main__`` runs that alone), ``drift`` (data that change), ``native`` (plain Spark's joins),
``state`` (a state that outgrows its batches, and the time that a choice takes).
"""
