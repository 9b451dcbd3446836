"""SQL statements about streams, tables, views and queries: what people type into a shell.

``words`` reads a text word by word, ``statement`` says what there is to say, and ``parse`` makes
the one of the other. What a statement creates is described by the same objects as in a pipeline
file (``headrace.pipeline``), so whoever runs one can run the other.
"""

from headrace.statements.parse import parse_script, parse_statement
from headrace.statements.statement import (
    Create,
    Describe,
    Drop,
    Explain,
    ExplainMode,
    Kind,
    Pause,
    Resume,
    Select,
    Show,
    ShowResults,
    Spec,
    Statement,
    StatementError,
    kind_of_spec,
)

__all__ = [
    "Create",
    "Describe",
    "Drop",
    "Explain",
    "ExplainMode",
    "Kind",
    "Pause",
    "Resume",
    "Select",
    "Show",
    "ShowResults",
    "Spec",
    "Statement",
    "StatementError",
    "kind_of_spec",
    "parse_script",
    "parse_statement",
]
