"""What is durable: the state that every plan can share, and how far each clock has got.

``store_names`` says what state is called, and so who shares it. An ``arrangement`` is a list of
files; ``clocks`` are watermarks; ``committed`` is the whole that a commit holds, with the records
of queries that failed (``branches``) and of output that is still to appear (``publication``).
``sealed`` and ``places`` are how all that is written: files that know whether they are whole, and
paths that move with their folder.
"""
