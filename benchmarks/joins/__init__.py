"""The experiments of the paper on window join reordering: ``join_queries`` (its queries and arrival
rates), ``join_order`` (every order of each, and which is chosen).
"""
