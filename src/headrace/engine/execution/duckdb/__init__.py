"""The bucket executor: definitions run by DuckDB inside Spark's tasks, a share of the rows each.

From the driver to the task and back: ``executor`` takes what is to be written; ``translation`` says
it in DuckDB's terms, or why it cannot (``untranslatable``; ``render``; ``meanings``: what means the
same in both, with ``calendars``, ``texts``, ``patterns`` and ``decimals``; ``states``: partial
aggregates); ``splits`` and ``pieces`` cut it into tasks, ``parts`` says which
rows are of a part. ``kernel`` is what runs in the task, and ``answers`` what is made of what tasks
say. Joins that probe have a kernel of their own (``probe_specs``, ``probe_kernel``) over indexes on
local disks (``local_index``), and tell what they found and could have found (``probe_samples``);
what others give is read from DuckDB's own counts (``join_profile``). ``stores`` finds out which
file systems tasks reach, ``remote_files`` and ``s3_access`` are how.
"""
