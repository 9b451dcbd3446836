"""The engine, room by room as in ``headrace.engine``: ``ingest``, ``epochs``, ``execution``,
``checkpoint``, ``sinks``, ``introspection``. ``results`` is what comes out of all of it together,
against the oracle; ``crashes`` kills it.
"""
