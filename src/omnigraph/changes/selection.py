"""Which changes a reader wants: kinds, types and operations."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Literal, TypeAlias

from omnigraph.names import TableKey, choice, one_of

EntityKind: TypeAlias = Literal["node", "edge"]
KINDS: Final[tuple[EntityKind, ...]] = ("node", "edge")


class Op(StrEnum):
    """What happened to a row, in the order in which changes of one id are returned."""

    INSERT = "insert"
    UPDATE = "update"
    DELETE = "delete"

    @property
    def rank(self) -> int:
        """The position of the operation in that order."""
        return tuple(Op).index(self)


@dataclass(frozen=True)
class Selection:
    """A filter of changes; a dimension that is None selects everything, an empty one nothing."""

    kinds: frozenset[str] | None = None
    types: frozenset[str] | None = None
    ops: frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        kinds: Iterable[str] | None = None,
        types: Iterable[str] | None = None,
        ops: Iterable[str] | None = None,
    ) -> Selection:
        """Return the filter in normal form: all kinds, or all operations, is no filter.

        >>> Selection.of(kinds=["edge", "node"]) == Selection()
        True
        """
        kind_set = (
            None if kinds is None else frozenset(one_of(KINDS, k, "kind of entity") for k in kinds)
        )
        op_set = None if ops is None else frozenset(str(choice(Op, o, "operation")) for o in ops)
        return cls(
            None if kind_set == frozenset(KINDS) else kind_set,
            None if types is None else frozenset(types),
            None if op_set == frozenset(str(op) for op in Op) else op_set,
        )

    def takes_type(self, table_key: str) -> bool:
        """Whether any change of a type is wanted."""
        kind, name = TableKey(table_key).parts
        is_kind = self.kinds is None or kind in self.kinds
        return is_kind and (self.types is None or name in self.types)

    def takes_op(self, op: Op) -> bool:
        """Whether changes of this operation are wanted."""
        return self.ops is None or str(op) in self.ops

    @property
    def digest(self) -> str:
        """A name of the filter that is the same for equal filters."""
        parts = [
            None if part is None else sorted(part) for part in (self.kinds, self.types, self.ops)
        ]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()
