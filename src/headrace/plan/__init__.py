"""The algebra: what a standing query means, without Spark and without SQL text.

Read in this order: ``types`` and ``durations``, ``windows``, ``expressions``, ``nodes``, then
``times`` (event time through a plan) and the printers ``text``, ``json`` and ``dot``.
"""
