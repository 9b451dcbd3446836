"""Operators and stores: what is computed in an epoch, and what is kept for the next ones.

Read ``base`` (what they are), ``epoch`` (what they may ask for), ``inputs`` (what their definitions
are over) ``write`` (how they ask for something to be written) and ``output_rows``
(what queries hand to their sinks). ``stateless`` operators remember
nothing; ``counting`` counts a stream's rows on the way. The others are in rooms by what they keep:
``rows``, ``panes``, ``sessions``, and ``sets`` for aggregates over joins. ``old_and_new`` tells
rows of this epoch from those before it.

Nothing here knows Spark: an epoch hands operators a small protocol (``EpochServices``), and whoever
runs the epoch runs their definitions.
"""
