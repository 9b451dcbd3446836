"""The experiments of the paper on aggregation join queries: ``settings`` (its streams, sweeps and
showcases), ``early_aggregation`` (all plans of each, measured and predicted).
"""
