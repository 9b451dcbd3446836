"""YAML read as nodes with positions: the ground under pipeline files.

The text is walked as YAML *nodes*, not as loaded values, because only nodes know where they stand.
``compose`` makes the tree, ``put_in_values`` those from the environment into it, and ``Fields`` is
the walk over one mapping of it: it knows which keys there may be, and each of its methods takes one
key as one kind of value or says what is wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TypeVar

import yaml

from headrace.environment import (
    Nested,
    Substituted,
    Unset,
    position_in,
    references,
    substituted,
)
from headrace.errors import DurationError, HeadraceError, Position

T = TypeVar("T")

# A path with a scheme (s3://…, file:/…) is Hadoop's business and is left as it is.
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")


class PipelineError(HeadraceError):
    """A pipeline file that cannot be read, or that says something it must not."""

    condition = "INVALID_PIPELINE"


def compose(text: str, file: str) -> yaml.Node:
    try:
        root: yaml.Node | None = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = Position(mark.line + 1, mark.column + 1, file) if mark else None
        # Between braces, and nowhere else, YAML takes those of a reference for its own.
        hint = "quote values with ${…} that stand inside { }" if _is_reference(text, mark) else None
        raise PipelineError(f"not YAML: {error.problem}", hint=hint, position=position) from None
    except yaml.reader.ReaderError as error:
        before = text[: error.position]
        line = before.count("\n") + 1
        column = error.position - (before.rfind("\n") + 1) + 1
        raise PipelineError(
            f"not YAML: {error.reason}", position=Position(line, column, file)
        ) from None
    except RecursionError:
        raise PipelineError(
            "not a pipeline: nested too deeply", position=Position(1, 1, file)
        ) from None
    if root is None:
        raise PipelineError("the pipeline is empty", position=Position(1, 1, file))
    return root


def _is_reference(text: str, mark: yaml.Mark | None) -> bool:
    return mark is not None and text[max(0, mark.index - 1) : mark.index + 1] == "${"


def put_in_values(
    root: yaml.Node, text: str, file: str, environment: Mapping[str, str]
) -> dict[yaml.Node, Substituted]:
    """Replace references to the environment in all values of the tree; those that have any."""
    changed: dict[yaml.Node, Substituted] = {}
    for node in _values(root):
        try:
            done = substituted(node.value, environment.get)
        except Unset as error:
            raise PipelineError(
                f"the environment has no {error.name}",
                hint=f"set it, or write ${{{error.name}:-default}}; $${{ stands for ${{ itself",
                position=_place_of(node, error.number, text, file),
            ) from None
        except Nested as error:
            raise PipelineError(
                "a default cannot name another value",
                hint="write it out, or set the variable",
                position=_place_of(node, error.number, text, file),
            ) from None
        if done.pieces:
            changed[node] = done
            node.value = done.text
    return changed


def _values(root: yaml.Node) -> Iterator[yaml.ScalarNode]:
    """All scalars that are not keys, each once, however often it is referred to."""
    seen: set[int] = set()
    due = [root]
    while due:
        node = due.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        if isinstance(node, yaml.ScalarNode):
            yield node
        elif isinstance(node, yaml.MappingNode):
            due += [value for _, value in reversed(node.value)]
        else:
            due += reversed(node.value)


def _place_of(node: yaml.ScalarNode, number: int, text: str, file: str) -> Position:
    """Where one of the references of a scalar stands in the file."""
    begin = node.start_mark.index
    places = references(text[begin : node.end_mark.index])
    if len(places) != len(references(node.value)):
        # Escapes, or a comment behind the | of a block.
        return Position(node.start_mark.line + 1, node.start_mark.column + 1, file)
    return position_in(text, begin + places[number], file)


@dataclass(frozen=True)
class Context:
    file: str
    text: str
    base: Path | None
    #: Values that are not as written in the file.
    substituted: Mapping[yaml.Node, Substituted] = field(default_factory=dict)
    #: Values that everybody sees, such as names.
    public: set[yaml.Node] = field(default_factory=set)

    def position(self, node: yaml.Node) -> Position:
        return Position(node.start_mark.line + 1, node.start_mark.column + 1, self.file)


def _kind(node: yaml.Node) -> str:
    """What a person would call the node."""
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    if isinstance(node, yaml.SequenceNode):
        return "a list"
    kinds = {"str": "text", "int": "a number", "float": "a number", "null": "nothing"}
    kinds |= {"bool": "true or false", "timestamp": "a date"}
    return kinds.get(node.tag.rpartition(":")[2], "a value of an unknown kind")


class Fields:
    """One mapping of the file. ``keys`` are those it may have; None allows any."""

    def __init__(
        self, node: yaml.Node, context: Context, what: str, keys: tuple[str, ...] | None = None
    ) -> None:
        self._node, self._context, self._what = node, context, what
        self._values: dict[str, yaml.Node] = {}
        if not isinstance(node, yaml.MappingNode):
            raise self._error(f"{what} must be a mapping, not {_kind(node)}", node)
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise self._error(f"a key of {what} must be text", key)
            if key.value in self._values:
                raise self._error(f"{key.value!r} is given twice", key)
            if keys is not None and key.value not in keys:
                near = get_close_matches(key.value, keys, 1)
                hint = f"did you mean {near[0]!r}?" if near else f"its keys are {', '.join(keys)}"
                raise self._error(f"{what} has no key {key.value!r}", key, hint)
            self._values[key.value] = value

    def _error(self, message: str, node: yaml.Node, hint: str | None = None) -> PipelineError:
        return PipelineError(message, hint=hint, position=self._context.position(node))

    def here(self, key: str) -> Position:
        """Where the key's value stands, or the mapping if the key is absent."""
        return self._context.position(self._values.get(key, self._node))

    def _get(self, key: str, required: bool = False) -> yaml.Node | None:
        value = self._values.get(key)
        if value is None and required:
            raise self._error(f"{self._what} needs {key!r}", self._node, f"add '{key}: …'")
        # `key:` with nothing after it is an absent key, unless there must be one.
        if isinstance(value, yaml.ScalarNode) and _kind(value) == "nothing" and not required:
            return None
        return value

    def _scalar(self, key: str, value: yaml.Node) -> str:
        if isinstance(value, yaml.ScalarNode) and value.tag.endswith(":str"):
            return str(value.value)
        hint = f'quote it: "{value.value}"' if isinstance(value, yaml.ScalarNode) else None
        hint = None if _kind(value) == "nothing" else hint
        raise self._error(f"{key!r} must be text, not {_kind(value)}", value, hint)

    def optional_text(self, key: str, required: bool = False) -> str | None:
        value = self._get(key, required)
        if value is None:
            return None
        text = self._scalar(key, value)
        if not text.strip():
            raise self._error(f"{key!r} is empty", value)
        return text

    def text(self, key: str, *, required: bool) -> str:
        return self.optional_text(key, required) or ""

    def public_text(self, key: str, *, required: bool = True) -> str:
        """A text that is no secret whatever it is made of: it is shown everywhere."""
        self._publish(key)
        return self.text(key, required=required)

    def _publish(self, key: str) -> None:
        if key in self._values:
            self._context.public.add(self._values[key])

    def written(self, key: str) -> Substituted | None:
        """How a value was written, if that is not how it reads."""
        return self._context.substituted.get(self._values[key])

    def name(self, key: str, advice_for: Callable[[str], str | None]) -> str:
        """A name, of which ``advice_for`` says what to do about it if it is not a good one."""
        name = self.public_text(key)
        advice = advice_for(name)
        if advice is not None:
            raise self._error(f"{name!r} cannot be a name", self._values[key], advice)
        return name

    def choice(self, key: str, choices: tuple[str, ...], default: str) -> str:
        self._publish(key)
        value = self.optional_text(key)
        if value is None:
            return default
        if value not in choices:
            near = get_close_matches(value, choices, 1)
            hint = f"did you mean {near[0]!r}?" if near else f"one of {', '.join(choices)}"
            raise self._error(f"no {key} {value!r}", self._values[key], hint)
        return value

    def duration(self, key: str, read: Callable[[str], int]) -> str | None:
        self._publish(key)
        text = self.optional_text(key)
        if text is not None:
            try:
                if read(text) < 0:
                    raise DurationError(f"{key} must not be negative, but is {text!r}")
            except DurationError as error:
                raise self._error(error.message, self._values[key], error.hint) from None
        return text

    def path(self, key: str, required: bool = False) -> str | None:
        text = self.optional_text(key, required)
        base = self._context.base
        if text is None or base is None or _SCHEME.match(text):
            return text
        # Kept as text: a trailing slash or a glob is for Spark to understand.
        return text if Path(text).is_absolute() else str(base.absolute() / text)

    def options(self, key: str) -> dict[str, tuple[str, Position]]:
        """Options as Spark takes them, text whatever YAML thinks 4 or true is, with positions."""
        node = self._get(key)
        if node is None:
            return {}
        inner = Fields(node, self._context, repr(key))
        return {name: (inner._option(name), inner.here(name)) for name in inner._values}

    def _option(self, key: str) -> str:
        value = self._values[key]
        kind = _kind(value)
        if not isinstance(value, yaml.ScalarNode) or kind in ("nothing", "a date"):
            message = f"{key!r} must be text, a number or true or false, not {kind}"
            raise self._error(message, value, "quote it" if kind == "a date" else None)
        if kind == "true or false":
            return "true" if value.value.lower() in ("true", "yes", "on") else "false"
        return str(value.value)

    def one(self, key: str, read: Callable[[yaml.Node, Context], T]) -> T | None:
        node = self._get(key)
        return None if node is None else read(node, self._context)

    def each(self, key: str, read: Callable[[yaml.Node, Context], T]) -> tuple[T, ...]:
        node = self._get(key)
        if node is None:
            return ()
        if not isinstance(node, yaml.SequenceNode):
            hint = "write each as an item, beginning with '- name:'"
            raise self._error(f"{key!r} must be a list, not {_kind(node)}", node, hint)
        return tuple(read(item, self._context) for item in node.value)

    def is_block(self, key: str) -> bool:
        return getattr(self._values[key], "style", None) == "|"

    def text_start(self, key: str) -> Position:
        """Where the text itself begins, which for a block scalar is below the | sign."""
        start = self.here(key)
        if not self.is_block(key):
            return start
        # Blank lines at the top are part of the text; the first line with words has the indent.
        below = self._context.text.splitlines()[start.line :]
        first = next((line for line in below if line.strip()), "")
        return Position(start.line + 1, len(first) - len(first.lstrip(" ")) + 1, start.file)
