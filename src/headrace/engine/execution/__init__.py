"""Execution: who runs definitions.

``executor`` chooses for each, and names its inputs. ``spark_executor`` runs any of them as Spark
SQL, in jobs that can be told apart and cancelled (``spark_jobs``), with errors in one line
(``spark_errors``) and the rows of joins counted (``spark_joins``). ``duckdb`` runs them inside
Spark's tasks.
"""
