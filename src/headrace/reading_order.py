"""The views of pipeline files in the order in which they can be made."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import HeadraceError
from headrace.names import folded
from headrace.pipeline import PipelineError, ViewSpec


def in_reading_order(views: Sequence[ViewSpec]) -> list[ViewSpec]:
    """The views so that each comes after those it reads, wherever they stand in the file."""
    from headrace.sql.refusals import refusal
    from headrace.sql.views import names_read, reading_order

    reads = {}
    for view in views:
        try:
            reads[folded(view.name)] = names_read(view.sql)
        except HeadraceError:
            # What is wrong with the text is said when the view is made.
            reads[folded(view.name)] = {}
    by_name = {folded(view.name): view for view in views}
    order = reading_order(reads)
    if isinstance(order, list):
        return [by_name[name] for name in order]
    first, after = by_name[order[0]], order[1] if len(order) > 1 else order[0]
    inside = reads[order[0]][after]
    others = " and ".join(by_name[name].name for name in order[1:])
    through = f" by way of {others}" if others else ""
    error = refusal("VIEW_CYCLE", None, name=first.name, through=through)
    place = first.at if inside is None else first.position_in_file(inside)
    raise PipelineError(error.message, hint=error.hint, position=place, condition=error.condition)
