"""A YAML value and where it stands; what is not of the expected shape is collected, not raised.

A value of the wrong shape is read as if it were empty, so that the rest is looked at too. The
result may be used only if nothing was collected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.names import nearest_name
from omnigraph.strict_yaml import NonText, Value, kind_of, quoted
from omnigraph.texts import on_one_line

INVALID: Final = "invalid_cluster_yaml"
FILE_NAME: Final = "cluster.yaml"
_SHOWN_MAX: Final = 120
_TRUE: Final = frozenset({"true", "yes", "on"})


def below(path: str, name: str) -> str:
    """Return the path of a member."""
    shown = on_one_line(name[:_SHOWN_MAX])
    return f"{path}.{shown}" if path else shown


@dataclass(frozen=True)
class Node:
    """A value with its path; the path of the whole file is empty."""

    value: Value
    path: str
    found: list[Diagnostic]

    def reject(self, message: str) -> None:
        """Collect that this value has the wrong shape."""
        self.found.append(error(INVALID, self.path or FILE_NAME, message))

    def members(self, known: Iterable[str]) -> dict[str, Node]:
        """Return the members of a map that may have only these keys; empty ones are left out."""
        names = tuple(known)
        entries = self.entries()
        for name, node in entries.items():
            if name not in names:
                node.reject(f"unknown key {quoted(name)}; {_remedy(name, names)}")
        return {name: node for name, node in entries.items() if not node.is_null}

    def entries(self) -> dict[str, Node]:
        """Return the members of a map with names of the writer's choice, sorted."""
        if self.is_null:
            return {}
        if not isinstance(self.value, dict):
            self.reject(f"expected a map, found {kind_of(self.value)}")
            return {}
        return {
            name: Node(self.value[name], below(self.path, name), self.found)
            for name in sorted(self.value)
        }

    def items(self) -> tuple[Node, ...]:
        """Return the items of a list."""
        if not isinstance(self.value, list):
            self.reject(f"expected a list, found {kind_of(self.value)}")
            return ()
        return tuple(
            Node(item, f"{self.path}[{index}]", self.found) for index, item in enumerate(self.value)
        )

    def text(self) -> str:
        """Return a text."""
        if isinstance(self.value, str):
            return self.value
        remedy = "; put it in quotes" if isinstance(self.value, NonText) else ""
        self.reject(f"expected text, found {kind_of(self.value)}{remedy}")
        return ""

    def flag(self) -> bool:
        """Return true or false."""
        if isinstance(self.value, NonText) and self.value.kind == "bool":
            return self.value.text.lower() in _TRUE
        self.reject(f"expected true or false, found {kind_of(self.value)}")
        return False

    def check_choice(self, text: str, choices: Iterable[str]) -> None:
        """Collect that the text of this value is none of the choices."""
        names = tuple(choices)
        if isinstance(self.value, str) and text not in names:
            self.reject(f"unknown value {quoted(text)}; {_remedy(text, names)}")

    def require(self, members: dict[str, Node], name: str) -> str:
        """Return the text of a member that may not be left out."""
        if name in members:
            return members[name].text()
        self.note_missing(name)
        return ""

    def note_missing(self, name: str, remedy: str = "") -> None:
        """Collect that a member is missing, unless this is no map, which is known already."""
        if isinstance(self.value, dict) or self.is_null:
            message = f"{quoted(name)} is missing{remedy}"
            self.found.append(error(INVALID, below(self.path, name), message))

    @property
    def is_null(self) -> bool:
        """Whether nothing is written behind the key."""
        return isinstance(self.value, NonText) and self.value.kind == "null"


def _remedy(name: str, known: tuple[str, ...]) -> str:
    near = nearest_name(name, known)
    return f"did you mean {quoted(near)}?" if near else f"expected {', '.join(known)}"
