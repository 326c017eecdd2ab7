"""Property types from their spelling, without the schema language."""

from __future__ import annotations

import re

from omnigraph.values import PropType, Scalar


def prop_type(text: str) -> PropType:
    """Read a spelling like `I32?`, `[Date]`, `Vector(3)?` or `enum(a, b)`."""
    nullable = text.endswith("?")
    body = text.rstrip("?")
    if match := re.fullmatch(r"Vector\((\d+)\)", body):
        return PropType(Scalar.VECTOR, nullable, dimension=int(match[1]))
    if match := re.fullmatch(r"enum\((.*)\)", body):
        return PropType(
            Scalar.STRING, nullable, enum_values=tuple(sorted(re.split(r",\s*", match[1])))
        )
    if match := re.fullmatch(r"\[(\w+)\]", body):
        return PropType(Scalar(match[1]), nullable, is_list=True)
    return PropType(Scalar(body), nullable)
