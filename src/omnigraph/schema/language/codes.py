"""The codes of schema errors.

Codes below `S200` are about the text of one declaration and open with `parse error`; those from
`S200` on are about names and how declarations fit together, and open with `catalog error`.
"""

from __future__ import annotations

from typing import Final

from omnigraph.syntax.grammar import SYNTAX_CODES

SCHEMA_LETTER: Final = "S"

SCHEMA_CODES: Final[dict[str, str]] = {
    SCHEMA_LETTER + suffix: meaning for suffix, meaning in SYNTAX_CODES.items()
}
"""Every code of the schema language, with its meaning in one line."""


def _code(code: str, meaning: str) -> str:
    SCHEMA_CODES[code] = meaning
    return code


ENUM_DUPLICATE: Final = _code("S101", "an enum names a value twice")
LIST_OF_BLOB: Final = _code("S102", "a list of blobs")
VECTOR_DIMENSION: Final = _code("S103", "a vector dimension is zero or too large")
NUMBER_TOO_LARGE: Final = _code("S104", "a number is too large")
CARD_MIN_EXCEEDS_MAX: Final = _code("S105", "the lower bound of `@card` is above the upper one")
CHECK_PATTERN: Final = _code(
    "S106", "the pattern of `@check` is not a regular expression that RE2 knows"
)
INTERFACE_RULE: Final = _code("S107", "a rule in the body of an interface")
ANNOTATION_VALUE: Final = _code("S108", "a note lacks its value, or the value is empty")
ANNOTATION_KEYWORD: Final = _code("S109", "a note has a keyword that it does not know")
ANNOTATION_REPEATED: Final = _code("S110", "a note that may stand once is repeated")
EMBED_PLACE: Final = _code("S111", "`@embed` on something that is not a vector property of a node")
EMBED_SOURCE: Final = _code(
    "S112", "the source of `@embed` is not a String property of the same type"
)
DEFAULT_VALUE: Final = _code(
    "S113", "the value of `@default` does not fit the type of its property"
)
METRIC_VALUE: Final = _code(
    "S114", "`@metric` names no metric, or does not stand on a vector property"
)

TYPE_DUPLICATE: Final = _code("S201", "two declarations of one kind have the same name")
EDGE_NAME_COLLISION: Final = _code("S202", "two edge names differ only in upper and lower case")
PROPERTY_DUPLICATE: Final = _code("S203", "two properties of a type have the same name")
PROPERTY_RESERVED: Final = _code("S204", "a property has a name that the engine uses itself")
ENDPOINT_UNKNOWN: Final = _code(
    "S205", "an edge starts or ends at something that is not a node type"
)
INTERFACE_UNKNOWN: Final = _code("S206", "a node implements an interface that is not declared")
INTERFACE_TYPE: Final = _code(
    "S207", "a node declares a property of its interface with another type"
)
INTERFACE_CLASH: Final = _code("S208", "two interfaces of a node disagree about a property")
ANNOTATION_MISPLACED: Final = _code("S209", "a note stands where it has no meaning")
NOT_ON_EDGES: Final = _code("S210", "a note or rule that edges do not take")
NOT_ON_EDGE_PROPERTIES: Final = _code("S211", "a note that properties of edges do not take")
NOT_ON_TYPE: Final = _code("S212", "a note or rule on a property of a type that it does not take")
MEMBER_UNKNOWN: Final = _code("S213", "a rule names a property that its type does not have")
KEY_REPEATED: Final = _code("S214", "a type has more than one `@key`")
KEY_NULLABLE: Final = _code("S215", "a member of `@key` is nullable")
RANGE_TYPE: Final = _code("S216", "`@range` on a property that is not a number")
CHECK_TYPE: Final = _code("S217", "`@check` on a property that is not a String or enum")
EDGE_KEY_ENDS: Final = _code("S218", "the `@key` of an edge lacks `src` or `dst`")
