"""The experiments of the paper on aggregation join queries: ``settings`` (its streams, sweeps and
showcases), ``early_aggregation`` (all plans of each, measured and predicted), and
``moving_windows`` (the same with sliding windows of each stream, by CPU and by rows).
"""
