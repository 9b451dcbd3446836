"""What rows cost on this machine, measured on this engine: the parameters of the cost models.

Read in this order: ``calibrate`` (how much is measured, and what comes of it), ``join_setting``
(the streams that are joined for it), ``row_costs`` (storing, probing, grouping and joining rows, by
the time of epochs), ``probe_costs`` (looking keys up in an index). ``planner.calibration`` keeps
the figures, and reads them where plans are chosen.
"""
