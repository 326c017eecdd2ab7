"""Changes as lines for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

ABSENT: Final = "<absent>"
NULL: Final = "<null>"


def change_lines(change: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one change.

    >>> after = {"properties": {"note": None, "age": 3}}
    >>> change = {"op": "insert", "kind": "node", "type": {"name": "Doc"}, "id": "d"}
    >>> list(change_lines(change | {"after": after}))
    ['insert node Doc d', '  + age: 3', '  + note: <null>']
    """
    before, after = change.get("before"), change.get("after")
    yield f"{change['op']} {change['kind']} {change['type']['name']} {change['id']}{_ends(change)}"
    old = {} if before is None else before["properties"]
    new = {} if after is None else after["properties"]
    for name in sorted(old.keys() | new.keys()):
        if before is None:
            yield f"  + {name}: {_shown(new, name)}"
        elif after is None:
            yield f"  - {name}: {_shown(old, name)}"
        elif old.get(name, ABSENT) != new.get(name, ABSENT):
            yield f"  {name}: {_shown(old, name)} -> {_shown(new, name)}"


def _ends(change: Mapping[str, Any]) -> str:
    if change["kind"] != "edge":
        return ""
    pairs = [
        f"{image['endpoints']['from']} -> {image['endpoints']['to']}"
        for image in (change.get("before"), change.get("after"))
        if image is not None
    ]
    return " " + " => ".join(dict.fromkeys(pairs))


def _shown(values: Mapping[str, Any], name: str) -> str:
    if name not in values:
        return ABSENT
    value = values[name]
    if value is None:
        return NULL
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
