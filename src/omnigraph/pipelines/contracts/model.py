"""What a contract declares, as frozen values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.names import TableKey
from omnigraph.pipelines.file.expect import Expect
from omnigraph.schema import Catalog, EntityType

RuleKind: TypeAlias = Literal["unique", "not_null", "range", "fresh", "rows", "gq"]
Bound: TypeAlias = int | float | str


@dataclass(frozen=True)
class ContractRule:
    """One rule of a type: what is measured, and what must hold of the measured value."""

    type_name: str
    kind: RuleKind
    name: str
    """Unique among the rules of a file."""
    expect: Expect
    path: str
    """Where the rule stands in its file."""
    columns: tuple[str, ...] = ()
    low: Bound | None = None
    high: Bound | None = None
    text: str = ""
    """The query of a `gq` rule."""
    is_warning: bool = False
    owner: str | None = None


def find_type(catalog: Catalog, name: str) -> EntityType | None:
    """Return the type of a rule; a node type wins where an edge type has the same name.

    `edge:Knows` and `node:Person` name the kind too.
    """
    key = TableKey(name)
    if key.is_valid:
        kind, bare = key.parts
        return catalog.node_types.get(bare) if kind == "node" else catalog.lookup_edge(bare)
    return catalog.node_types.get(name) or catalog.lookup_edge(name)
