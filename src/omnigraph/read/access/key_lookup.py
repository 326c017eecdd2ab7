"""Look-ups by key: from filters to the id of a node.

1. The id of a keyed node is the spelling of its key (`omnigraph.schema.values.ids`), whatever the
   types of its members are. Filters that fix every member by `=` therefore name one id, and the map
   of ids that is in memory answers them.
2. A value that the type of a member cannot hold is left to the other ways of evaluating a filter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import orjson
import pyarrow as pa

from omnigraph.dataclass import dataclass
from omnigraph.query.bindings import Bindings
from omnigraph.query.check.cast import constant_cast_to
from omnigraph.query.plan.plan import Compare, Constant, ParameterValue, Predicate, PropertyValue
from omnigraph.schema import NodeType
from omnigraph.schema.values.ids import spell
from omnigraph.values import PropType, Scalar


@dataclass(frozen=True)
class Lookup:
    """An id that filters name, and the filters that it answers."""

    key_id: str
    answers: tuple[Predicate, ...]

    def rest_of(self, predicates: Sequence[Predicate]) -> tuple[Predicate, ...]:
        """Return the filters that are left to check."""
        return tuple(one for one in predicates if not any(one is known for known in self.answers))


def key_lookup(
    predicates: Sequence[Predicate], bindings: Bindings, node_type: NodeType
) -> Lookup | None:
    """Return the look-up of the id that filters on the key name; None when they name none."""
    if not node_type.key:
        return None
    found: dict[str, tuple[Predicate, PropertyValue, Constant | ParameterValue]] = {}
    for predicate in predicates:
        match = _equality(predicate)
        if match is not None and match[0].property in node_type.key:
            found.setdefault(match[0].property, (predicate, *match))
    if len(found) < len(node_type.key):
        return None
    members = {
        name: _key_value(stored.prop_type, other, bindings)
        for name, (_, stored, other) in found.items()
    }
    if any(value is None for value in members.values()):
        return None
    text = _spelled(node_type, members)
    answers = tuple(predicate for predicate, _, _ in found.values())
    return None if text is None else Lookup(text, answers)


def _spelled(node_type: NodeType, members: Mapping[str, object]) -> str | None:
    """Return the id of a key; None when no node can have it."""
    spellings = [
        _spelling(members[name], node_type.properties[name].prop_type) for name in node_type.key
    ]
    texts = [text for text in spellings if text is not None]
    if len(texts) < len(spellings):
        return None
    return texts[0] if len(texts) == 1 else orjson.dumps(texts).decode()


def _spelling(value: object, prop_type: PropType) -> str | None:
    """Spell one value as `spell` does; plain values without the way over Arrow."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int):
        return str(value)
    if isinstance(value, float) and not math.isfinite(value):
        return None
    found: str | None = spell(pa.array([value], PropType(prop_type.scalar).arrow_type))[0].as_py()
    return found


def _equality(
    predicate: Predicate,
) -> tuple[PropertyValue, Constant | ParameterValue] | None:
    match predicate:
        case Compare(PropertyValue() as stored, "=", Constant() | ParameterValue() as other):
            return stored, other
        case Compare(Constant() | ParameterValue() as other, "=", PropertyValue() as stored):
            return stored, other
        case _:
            return None


def _key_value(prop_type: PropType, other: Constant | ParameterValue, bindings: Bindings) -> object:
    """Return a value in the type of a key member; None when that type cannot hold it."""
    constant = bindings.value_of(other).constant
    if constant is None:
        return None
    fitted = constant_cast_to(constant, prop_type)
    if fitted.prop_type.scalar is not prop_type.scalar:
        return None
    value = fitted.value
    if prop_type.scalar is Scalar.F32 and float(np.float32(float(str(value)))) != value:
        return None
    return value
