"""Codes of everything that can be wrong with the text or the parameters of a query.

`Q0xx` come from the parser, `Q1xx` are about the text of one query, `P1xx` about parameter values
and `R1xx` about registries of stored queries. The codes of types and lint are in
`query/check/codes.py`.
"""

from __future__ import annotations

from typing import Final

from omnigraph.syntax.grammar import SYNTAX_CODES

QUERY_LETTER: Final = "Q"

PARAMETER_TYPE_UNKNOWN: Final = "Q101"
PARAMETER_TYPE_WRONG: Final = "Q102"
PARAMETER_REPEATED: Final = "Q103"
PARAMETER_RESERVED: Final = "Q104"
ANNOTATION_UNKNOWN: Final = "Q105"
ANNOTATION_REPEATED: Final = "Q106"
EDGE_NOT: Final = "Q107"
TEXT_CALL_COMBINED: Final = "Q108"
INT_TOO_LARGE: Final = "Q109"
FLOAT_TOO_LARGE: Final = "Q110"
NULL_LITERAL: Final = "Q111"
EMPTY: Final = "Q120"
BOUNDS: Final = "Q121"
FUNCTION_UNKNOWN: Final = "Q122"
NOT_MISPLACED: Final = "Q123"
COMMA: Final = "Q124"
FOREIGN: Final = "Q125"
LETTER_CASE: Final = "Q126"
PART_ORDER: Final = "Q127"
NOT_HERE: Final = "Q128"
EDGE_WORD: Final = "Q129"

PARAMS_NOT_AN_OBJECT: Final = "P101"
PARAM_MISSING: Final = "P102"
PARAM_NULL: Final = "P103"
PARAM_KIND: Final = "P104"
PARAM_RANGE: Final = "P105"
PARAM_MOMENT: Final = "P106"
PARAM_LENGTH: Final = "P107"
PARAM_OBJECT: Final = "P108"
PARAM_UNKNOWN: Final = "P109"
PARAM_ENUM: Final = "P110"

REGISTRY_KEY_UNKNOWN: Final = "R101"
REGISTRY_KEY_REPEATED: Final = "R102"
QUERY_REPEATED: Final = "R103"
TOOL_NAME_REPEATED: Final = "R104"
VECTOR_PARAMETER_EXPOSED: Final = "R105"

QUERY_CODES: Final[dict[str, str]] = {
    **{QUERY_LETTER + suffix: meaning for suffix, meaning in SYNTAX_CODES.items()},
    PARAMETER_TYPE_UNKNOWN: "a parameter has a type that does not exist",
    PARAMETER_TYPE_WRONG: "the dimension or list form of a parameter type is wrong",
    PARAMETER_REPEATED: "a parameter is declared twice",
    PARAMETER_RESERVED: "a parameter has a name that the engine uses itself",
    ANNOTATION_UNKNOWN: "a query has a note that does not exist",
    ANNOTATION_REPEATED: "a query has the same note twice",
    EDGE_NOT: "an edge is called `not`",
    TEXT_CALL_COMBINED: "a text call stands inside `and`, `or` or `not ( … )`",
    INT_TOO_LARGE: "an integer does not fit 64 bits",
    FLOAT_TOO_LARGE: "a number is too large for a float",
    NULL_LITERAL: "`null` is used as a value",
    EMPTY: "braces or parentheses that must hold something are empty",
    BOUNDS: "the bounds of a hop are incomplete",
    FUNCTION_UNKNOWN: "a function does not exist",
    NOT_MISPLACED: "`not` is followed by something that it cannot negate",
    COMMA: "a comma is missing, or stands where none can",
    FOREIGN: "a mark or word of another language",
    LETTER_CASE: "a name starts with a letter of the wrong case",
    PART_ORDER: "the parts of a query are in the wrong order or do not go together",
    NOT_HERE: "an expression cannot stand at this place",
    EDGE_WORD: "a hop over an edge called like an operator stands where a condition must",
    PARAMS_NOT_AN_OBJECT: "the parameters are not a JSON object",
    PARAM_MISSING: "a required parameter is not provided",
    PARAM_NULL: "null is given for a parameter, or for a list element, that cannot be null",
    PARAM_KIND: "a parameter value has the wrong JSON type",
    PARAM_RANGE: "a number is outside the range of the declared type",
    PARAM_MOMENT: "a Date or DateTime cannot be read",
    PARAM_LENGTH: "a vector has the wrong number of elements",
    PARAM_OBJECT: "a JSON object is given as a parameter value",
    PARAM_UNKNOWN: "a parameter is given that the query does not declare",
    PARAM_ENUM: "a parameter is compared with an enum property and is none of its values",
    REGISTRY_KEY_UNKNOWN: "a registry key names no query of its file",
    REGISTRY_KEY_REPEATED: "two registry entries have the same key",
    QUERY_REPEATED: "the file of a registered query has two queries of that name",
    TOOL_NAME_REPEATED: "two exposed queries have the same tool name",
    VECTOR_PARAMETER_EXPOSED: "an exposed query takes a vector (a warning)",
}
"""Every code of the query text, its parameters and registries, with its meaning in one line."""
