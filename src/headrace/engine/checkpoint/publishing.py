"""Moving staged files to where readers see them, file by file, under names fixed in the commit."""

from __future__ import annotations

from dataclasses import replace

from headrace.engine.checkpoint.files import FileSystem
from headrace.errors import CheckpointError
from headrace.state.publication import Publication


def listed(publication: Publication, files: FileSystem, owner: str) -> Publication:
    """The publication with the files that are staged now, and the names under which they appear."""
    if publication.files is not None:
        return publication
    staged = [n for n in files.names(publication.staged) if not n.startswith(("_", "."))]
    mark = f"{publication.query}-{publication.epoch}-{owner}"
    # What Spark adds to a name tells the codec.
    pairs = ((name, f"part-{i}-{mark}{_endings(name)}") for i, name in enumerate(staged))
    return replace(publication, files=tuple(pairs))


def publish(publication: Publication, files: FileSystem) -> bool:
    """Move what is still staged to its place; the staged folder itself goes when that lasts.

    Whether all of it is there now: what is neither staged nor published was taken away.
    """
    is_whole = True
    for staged, final in publication.files or ():
        source, target = f"{publication.staged}/{staged}", f"{publication.final}/{final}"
        try:
            if files.exists(source):
                files.move(source, target)
            elif not files.exists(target):
                is_whole = False
        except CheckpointError:
            # A former owner of the checkpoint may be about the same.
            if files.exists(source) or not files.exists(target):
                raise
    return is_whole


def _endings(name: str) -> str:
    _, dot, endings = name.partition(".")
    return dot + endings
