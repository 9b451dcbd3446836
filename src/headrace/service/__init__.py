"""Queries that come and go by request: one engine that runs for good, and who may ask it what.

Read in this order: ``rights`` (who asks, and what they may), ``tokens`` (how they show it),
``limits`` (how much, and which formats and paths), ``definitions`` (what was created, durable),
``engine_life`` (the engine runs, and runs again), ``workspace`` (statements done, one after the
other), ``described`` (what is told of streams, tables, views and queries), ``plans`` (and of their
plans), ``commands`` (the one thread that all of this runs on).

Over HTTP: ``app`` puts together ``about_queries``, ``about_relations``, ``about_plans``,
``about_results`` and ``about_health``; ``requests`` are their bodies, ``caller`` who sends them,
``problems`` their errors, ``gatekeeper`` what is refused before anybody reads it; ``result_rows``
reads result tables beside the engine, ``metrics`` is for Prometheus.
"""
