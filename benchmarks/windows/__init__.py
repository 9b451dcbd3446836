"""The experiments of the paper on factor windows: ``window_sets`` (its sets of windows),
``factor_windows`` (many windows of one aggregate, against plain Spark and against other plans).
"""
