"""What people are told: before a query runs, and while it does.

``check`` asks Spark whether it reads expressions as the plan does, once for each of the
``agreed_shapes``. ``explain`` answers from the
plan that runs, or would; ``dry_run`` is the epoch by which it tells who would run what.
``progress`` is what a running query says of itself.
"""
