"""Changes as lines for people.

Changes carry dates as numbers and blobs as text, in the form that a load takes back. People see
dates, and the size of what is too long to read. What the schema does not know is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from omnigraph.cli.output.json_writer import json_text
from omnigraph.errors import DeniedError
from omnigraph.texts import on_one_line

if TYPE_CHECKING:
    from omnigraph.client import RemoteGraph
    from omnigraph.graph import Graph

ABSENT: Final = "<absent>"
NULL: Final = "<null>"
_DAY_ZERO: Final = date(1970, 1, 1)
_MOMENT_ZERO: Final = datetime(1970, 1, 1, tzinfo=UTC)
_BASE64: Final = "base64:"
_BLOB_SHOWN_MAX: Final = 64


class ChangeText:
    """Spells changes of one graph; `kinds` is the scalar of each property, by table and name."""

    def __init__(self, kinds: Mapping[tuple[str, str], str] | None = None) -> None:
        self._kinds = kinds or {}

    @classmethod
    def of(cls, graph: Graph | RemoteGraph) -> ChangeText:
        """Take the scalars from the schema of a graph, where a server shows it."""
        try:
            catalog = graph.catalog()
        except DeniedError:
            return cls()
        kinds: dict[tuple[str, str], str] = {}
        for node in catalog.node_types.values():
            for prop in node.properties.values():
                kinds[node.table_key, prop.name] = str(prop.prop_type.scalar)
        for edge in catalog.edge_types.values():
            for prop in edge.properties.values():
                kinds[edge.table_key, prop.name] = str(prop.prop_type.scalar)
        return cls(kinds)

    def lines(self, change: Mapping[str, Any]) -> Iterator[str]:
        """Yield the lines of one change.

        >>> after = {"properties": {"note": None, "age": 3, "born": 0}}
        >>> change = {"op": "insert", "kind": "node", "type": {"name": "Doc"}, "id": "d"}
        >>> list(ChangeText({("node:Doc", "born"): "Date"}).lines(change | {"after": after}))
        ['insert node Doc d', '  + age: 3', '  + born: 1970-01-01', '  + note: <null>']
        """
        before, after = change.get("before"), change.get("after")
        owner = change["type"]["name"]
        key = f"{change['kind']}:{owner}"
        subject = on_one_line(f"{change['id']}{_ends(change)}")
        yield f"{change['op']} {change['kind']} {owner} {subject}"
        old = {} if before is None else before["properties"]
        new = {} if after is None else after["properties"]
        for name in sorted(old.keys() | new.keys()):
            kind = self._kinds.get((key, name))
            if before is None:
                yield f"  + {name}: {_shown(new, name, kind)}"
            elif after is None:
                yield f"  - {name}: {_shown(old, name, kind)}"
            elif old.get(name, ABSENT) != new.get(name, ABSENT):
                yield f"  {name}: {_shown(old, name, kind)} -> {_shown(new, name, kind)}"


def step_lines(steps: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each step by which the schema changed."""
    for step in steps:
        yield f"schema: {on_one_line(str(step.get('text', step['kind'])))}"


def _ends(change: Mapping[str, Any]) -> str:
    if change["kind"] != "edge":
        return ""
    pairs = [
        f"{image['endpoints']['from']} -> {image['endpoints']['to']}"
        for image in (change.get("before"), change.get("after"))
        if image is not None
    ]
    return " " + " => ".join(dict.fromkeys(pairs))


def _shown(values: Mapping[str, Any], name: str, kind: str | None) -> str:
    if name not in values:
        return ABSENT
    value = values[name]
    if value is None:
        return NULL
    spelled = [_spelled(each, kind) for each in value] if isinstance(value, list) else None
    value = _spelled(value, kind) if spelled is None else spelled
    return on_one_line(value) if isinstance(value, str) else json_text(value)


def _spelled(value: object, kind: str | None) -> object:
    """Return a stored value as people read it.

    >>> _spelled(18262, "Date"), _spelled(86_400_500, "DateTime")
    ('2020-01-01', '1970-01-02T00:00:00.500Z')
    """
    if kind == "Blob" and isinstance(value, str) and len(value) > _BLOB_SHOWN_MAX:
        return _size(value)
    if not isinstance(value, int):
        return value
    try:
        if kind == "Date":
            return (_DAY_ZERO + timedelta(days=value)).isoformat()
        if kind == "DateTime":
            moment = _MOMENT_ZERO + timedelta(milliseconds=value)
            return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
    except OverflowError:
        # Python has no such date; the number is shown instead.
        return value
    return value


def _size(value: str) -> str:
    if not value.startswith(_BASE64):
        return value
    text = value.removeprefix(_BASE64)
    return f"({len(text) // 4 * 3 - text.count('=')} bytes)"
