"""The codes of schema errors.

Codes below `S200` are about the text of one declaration and open with `parse error`; those from
`S200` on are about names and how declarations fit together, and open with `catalog error`.
"""

from __future__ import annotations

from typing import Final

from omnigraph.syntax.grammar import SYNTAX_CODES

SCHEMA_LETTER: Final = "S"

ENUM_DUPLICATE: Final = "S101"
LIST_OF_BLOB: Final = "S102"
VECTOR_DIMENSION: Final = "S103"
NUMBER_TOO_LARGE: Final = "S104"
CARD_MIN_EXCEEDS_MAX: Final = "S105"
CHECK_PATTERN: Final = "S106"
INTERFACE_RULE: Final = "S107"
ANNOTATION_VALUE: Final = "S108"
ANNOTATION_KEYWORD: Final = "S109"
ANNOTATION_REPEATED: Final = "S110"
EMBED_PLACE: Final = "S111"
EMBED_SOURCE: Final = "S112"
DEFAULT_VALUE: Final = "S113"
METRIC_VALUE: Final = "S114"

TYPE_DUPLICATE: Final = "S201"
EDGE_NAME_COLLISION: Final = "S202"
PROPERTY_DUPLICATE: Final = "S203"
PROPERTY_RESERVED: Final = "S204"
ENDPOINT_UNKNOWN: Final = "S205"
INTERFACE_UNKNOWN: Final = "S206"
INTERFACE_TYPE: Final = "S207"
INTERFACE_CLASH: Final = "S208"
ANNOTATION_MISPLACED: Final = "S209"
NOT_ON_EDGES: Final = "S210"
NOT_ON_EDGE_PROPERTIES: Final = "S211"
NOT_ON_TYPE: Final = "S212"
MEMBER_UNKNOWN: Final = "S213"
KEY_REPEATED: Final = "S214"
KEY_NULLABLE: Final = "S215"
RANGE_TYPE: Final = "S216"
CHECK_TYPE: Final = "S217"

SCHEMA_CODES: Final[dict[str, str]] = {
    **{SCHEMA_LETTER + suffix: meaning for suffix, meaning in SYNTAX_CODES.items()},
    ENUM_DUPLICATE: "an enum names a value twice",
    LIST_OF_BLOB: "a list of blobs",
    VECTOR_DIMENSION: "a vector dimension is zero or too large",
    NUMBER_TOO_LARGE: "a number is too large",
    CARD_MIN_EXCEEDS_MAX: "the lower bound of `@card` is above the upper one",
    CHECK_PATTERN: "the pattern of `@check` is not a regular expression that RE2 knows",
    INTERFACE_RULE: "a rule in the body of an interface",
    ANNOTATION_VALUE: "a note lacks its value, or the value is empty",
    ANNOTATION_KEYWORD: "a note has a keyword that it does not know",
    ANNOTATION_REPEATED: "a note that may stand once is repeated",
    EMBED_PLACE: "`@embed` on something that is not a vector property of a node",
    EMBED_SOURCE: "the source of `@embed` is not a String property of the same type",
    DEFAULT_VALUE: "the value of `@default` does not fit the type of its property",
    METRIC_VALUE: "`@metric` names no metric, or does not stand on a vector property",
    TYPE_DUPLICATE: "two declarations of one kind have the same name",
    EDGE_NAME_COLLISION: "two edge names differ only in upper and lower case",
    PROPERTY_DUPLICATE: "two properties of a type have the same name",
    PROPERTY_RESERVED: "a property has a name that the engine uses itself",
    ENDPOINT_UNKNOWN: "an edge starts or ends at something that is not a node type",
    INTERFACE_UNKNOWN: "a node implements an interface that is not declared",
    INTERFACE_TYPE: "a node declares a property of its interface with another type",
    INTERFACE_CLASH: "two interfaces of a node disagree about a property",
    ANNOTATION_MISPLACED: "a note stands where it has no meaning",
    NOT_ON_EDGES: "a note or rule that edges do not take",
    NOT_ON_EDGE_PROPERTIES: "a note that properties of edges do not take",
    NOT_ON_TYPE: "a note or rule on a property of a type that it does not take",
    MEMBER_UNKNOWN: "a rule names a property that its type does not have",
    KEY_REPEATED: "a node has more than one `@key`",
    KEY_NULLABLE: "a member of `@key` is nullable",
    RANGE_TYPE: "`@range` on a property that is not a number",
    CHECK_TYPE: "`@check` on a property that is not a String or enum",
}
"""Every code of the schema language, with its meaning in one line."""
