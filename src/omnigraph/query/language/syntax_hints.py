"""Known mistakes: what the parser calls unexpected, said in the words of the language.

The parser knows what could follow, not what was meant. Each row of `MISTAKES` recognizes one
mistake by the text before and after the point where the parser stopped, and says what is missing
or what to write instead. A text that no row recognizes keeps the parser's own message.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from omnigraph.names import nearest_name
from omnigraph.query.language import codes
from omnigraph.query.language.functions import FUNCTIONS
from omnigraph.syntax import Diagnostic

_LOOK_BACK: Final = 400
_LOOK_AHEAD: Final = 80


@dataclass(frozen=True)
class Mistake:
    """One known mistake.

    `before` must match the end of the text before that point (comments left out, blanks
    reduced to one, strings emptied), `found` the start of the text behind it, and `expecting` must
    stand in the parser's message. Message and hint may mention the groups of both patterns.
    """

    code: str
    before: re.Pattern[str]
    found: re.Pattern[str]
    message: str
    hint: str | None
    expecting: str


def _row(
    code: str,
    message: str,
    hint: str | None = None,
    *,
    before: str = "",
    found: str = "",
    expecting: str = "",
) -> Mistake:
    return Mistake(
        code, re.compile(rf"(?:{before})\Z"), re.compile(found), message, hint, expecting
    )


MISTAKES: Final = (
    # -- something is empty
    _row(
        codes.EMPTY,
        "`{block}` needs at least one clause",
        "write a clause such as `$c: Crew` between the braces",
        before=r"\b(?P<block>match|not|optional) ?\{ ?",
        found=r"\}",
    ),
    _row(
        codes.EMPTY,
        "`return` needs at least one column",
        "write a column such as `$c` between the braces",
        before=r"\breturn(?: distinct)? ?\{ ?",
        found=r"\}",
    ),
    _row(
        codes.EMPTY,
        "`order` needs at least one key",
        "write a key, or leave `order` out",
        before=r"\border ?\{ ?",
        found=r"\}",
    ),
    _row(
        codes.EMPTY,
        "`{act}` needs at least one `property: value`",
        before=r"\b(?P<act>insert|create|upsert|set)(?: [A-Z]\w*)? ?\{ ?",
        found=r"\}",
    ),
    _row(
        codes.EMPTY,
        "the query is empty: it needs a `match` and a `return`, or at least one statement",
        before=r"\) ?(?:@\w+ ?\( ?\"\" ?\) ?)*\{ ?",
        found=r"\}",
        expecting="`match`",
    ),
    _row(
        codes.EMPTY,
        "a condition is missing between the parentheses",
        before=r"\( ?",
        found=r"\)",
        expecting="`not`",
    ),
    # -- hop bounds
    _row(
        codes.BOUNDS,
        "hop bounds need both ends: a comma is missing after {lowest}",
        "write `{{{lowest},{lowest}}}` for exactly {lowest}",
        before=r"[\w>] ?\{ ?(?P<lowest>[0-9]+) ?",
        found=r"\}",
        expecting="`,`",
    ),
    _row(
        codes.BOUNDS,
        "hop bounds need a lower end",
        "write `{{1,3}}` for one to three steps",
        before=r"[\w>] ?\{ ?",
        found=r"[,}]",
        expecting="a whole number",
    ),
    _row(
        codes.BOUNDS,
        "hop bounds are separated by a comma",
        "write `{{1,3}}` for one to three steps",
        before=r"[\w>] ?\{ ?[0-9]+ ?",
        found=r"\.\.",
    ),
    _row(
        codes.BOUNDS,
        "unexpected '*'",
        "write `{{1,3}}` for one to three steps",
        before=r"\$\w+ (?:\$\w+ ?: ?)?[a-z_]\w* ?",
        found=r"\*",
        expecting="`{`",
    ),
    # -- marks and words of other languages
    _row(codes.FOREIGN, "unexpected '#'", "comments start with //", found="#"),
    _row(codes.FOREIGN, "unexpected '--'", "comments start with //", found=r"--(?!>)"),
    _row(
        codes.FOREIGN,
        "unexpected ';'",
        "leave it out: braces end a query",
        found=";",
    ),
    _row(
        codes.FOREIGN,
        "there is no arithmetic in queries",
        "pass the number as a parameter, or compute with the result",
        before=r"\$\w+\.\w+ ?",
        found=r"[+*/%]|-[\s0-9]",
    ),
    _row(codes.FOREIGN, "unexpected '''", 'strings stand in double quotes: "…"', found="'"),
    _row(codes.FOREIGN, "unexpected '=='", "equality is written `=`", before=r"=", found=r"="),
    _row(codes.FOREIGN, "unexpected '<>'", "inequality is written `!=`", before=r"<", found=r">"),
    _row(codes.FOREIGN, "unexpected '&'", "write `and`", found="&"),
    _row(codes.FOREIGN, "unexpected '|'", "write `or`", found=r"\|"),
    _row(codes.FOREIGN, "unexpected '!'", "negation is written `not ( … )`", found=r"!(?!=)"),
    _row(
        codes.FOREIGN,
        "unexpected '*'",
        "all properties of a variable are `$c.*`, and `count(*)` counts rows",
        found=r"\*",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "write `contains` or `starts_with`; neither has wildcards",
        found=r"(?P<word>like|ilike|matches)\b",
        expecting="`contains`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected 'between'",
        "write two comparisons joined by `and`",
        found=r"between\b",
        expecting="`contains`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "a read is written `match {{ … }} return {{ … }}`",
        found=r"(?P<word>(?i:select\b)|(?i:match)(?= ?\())",
        expecting="`match`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "a mutation is written `query name() {{ insert Type {{ … }} }}`",
        found=r"(?P<word>(?i:insert|create|upsert|update|delete|merge)\b)",
        expecting="`match`, `query`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "conditions are clauses in `match {{ … }}`, such as `$c.age > 3`",
        found=r"(?P<word>(?i:where)\b)",
        expecting="`optional`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "conditions are clauses in `match {{ … }}`, such as `$c.age > 3`",
        found=r"(?P<word>(?i:where)\b)",
        expecting="expected `return`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "write `order {{ $c.name desc }}`",
        before=r"\border ",
        found=r"(?P<word>(?i:by)\b)",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "write `limit 20 offset 40`",
        found=r"(?P<word>(?i:skip)\b)",
        expecting="`limit`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{word}'",
        "names of functions have small letters, as in `count(*)`",
        found=r"(?P<word>(?:COUNT|SUM|AVG|MIN|MAX)\b)",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{mark}'",
        "braces hold `property: value`; a comparison is a clause of its own",
        found=r"(?P<mark>[<>]=?|!=|=)",
        expecting="expected `:`",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{file}', which looks like the name of a file",
        "a file is given as `Path('{file}')`, on the command line by `--query {file}`",
        before=r"\A",
        found=r"(?P<file>[\w./~-]+\.gq)\s*\Z",
    ),
    _row(
        codes.FOREIGN,
        "unexpected '{arrow}'",
        "a hop is written `$a edge $b`, or `$a <edge> $b` for both directions",
        found=r"(?P<arrow>-\[|<?-+>?)(?!\s*[0-9])",
        expecting="`<edge>`",
    ),
    _row(
        codes.FOREIGN,
        "a variable starts with a dollar sign",
        "write `${name}`",
        before=r"(?<![$\w.])(?P<name>[a-z_]\w*) ?",
        found=r":",
        expecting="`contains`",
    ),
    _row(
        codes.FOREIGN,
        "a variable starts with a dollar sign",
        "write `${name}`",
        before=r"[{,(] ?(?P<name>[a-z_]\w*) ?",
        found=r"\.",
    ),
    _row(codes.FOREIGN, "a number takes no plus sign", "leave the `+` out", found=r"\+ ?[0-9.]"),
    _row(
        codes.NOT_HERE,
        "a whole number is needed here",
        before=r"(?<![\w$])[0-9]+",
        found=r"\.[0-9]",
    ),
    _row(
        codes.FOREIGN, "a number starts with a digit", "write `0.5`, not `.5`", found=r"-?\.[0-9]"
    ),
    _row(
        codes.FOREIGN,
        "a digit is missing after the decimal point",
        "write `5.0`, not `5.`",
        before=r"(?<![\w$])[0-9]+",
        found=r"\.",
    ),
    _row(
        codes.FOREIGN,
        "a sign stands right in front of its number",
        "no blank after `-`",
        found=r"-\s",
    ),
    _row(
        codes.FOREIGN,
        "comparisons do not chain",
        "write two comparisons joined by `and`",
        found=r"[<>=!]",
        expecting="`and`",
    ),
    _row(
        codes.FOREIGN,
        "an invisible character that is not a blank",
        "replace it by a space, or leave it out",
        found="[\u00a0\u1680\u2000-\u200f\u2028\u2029\u202f\u205f\u2060\u3000\ufeff]",
    ),
    _row(
        codes.FOREIGN,
        "a curly quotation mark",
        'strings stand in straight double quotes: "…"',
        found="[\u2018-\u201f]",
    ),
    _row(
        codes.FOREIGN,
        "names have letters from a to z, digits and `_`, found '{letter}'",
        found=r"(?P<letter>[^\W\x00-\x7f])",
    ),
    # -- hops that look like conditions
    _row(
        codes.EDGE_WORD,
        "`${left} {word} ${right}` is a hop over an edge called `{word}`",
        "for a condition write it in parentheses: `(${left} {word} ${right})`",
        before=r"\$(?P<left>\w+) (?P<word>contains|starts_with|in) \$(?P<right>\w+) (?:and|or) ",
    ),
    # -- not
    _row(
        codes.EDGE_NOT,
        "an edge cannot be called `not`",
        "rename the edge in the schema",
        before=r"\$\w+ not ?",
        found=r"\$|\{",
        expecting="`in`",
    ),
    _row(
        codes.NOT_MISPLACED,
        "`not {{ … }}` is a clause of a match",
        "in a `where` write `not ( … )`",
        before=r"\b(?:where|and|or) not ?|\( ?not ?",
        found=r"\{",
    ),
    _row(
        codes.NOT_MISPLACED,
        "after a value `not` can only be followed by `in`",
        "negate a whole condition with `not ( … )`",
        before=r"\bnot ",
        expecting="`in`",
    ),
    _row(
        codes.NOT_MISPLACED,
        "`not` takes a block `{{ … }}` or a condition in parentheses `( … )`",
        before=r"\bnot ",
        expecting="`(`",
    ),
    # -- commas
    _row(
        codes.COMMA,
        "clauses are not separated by commas",
        "leave the comma out; each clause may take its own line",
        found=",",
        expecting="`optional`",
    ),
    _row(
        codes.COMMA,
        "a comma cannot stand in front of `{close}` here",
        "leave the comma out",
        before=r", ?",
        found=r"(?P<close>[])}}])",
    ),
    _row(codes.COMMA, "a comma too many", "leave one of the two out", before=r", ?", found=","),
    _row(
        codes.COMMA,
        "a comma is missing in front of '{name}'",
        "inline properties are separated by commas",
        found=r"(?P<name>[a-z_]\w*) ?:",
        expecting="expected `,` or `}`",
    ),
    _row(
        codes.COMMA,
        "a comma is missing between two keys of `order`",
        found=r"\$|[a-z_]\w*\b",
        expecting="`,`, `asc`, `desc` or `}`",
    ),
    # -- upper and lower case
    _row(
        codes.LETTER_CASE,
        "variable '${name}' starts with an upper-case letter",
        "variables start with a lower-case letter or `_`",
        found=r"\$(?P<name>[A-Z]\w*)",
    ),
    _row(
        codes.LETTER_CASE,
        "an edge starts with a lower-case letter in a hop, found '{name}'",
        "declared `{name}`, it is written `{lowered}` here",
        before=r"\$\w+ (?:\$\w+ ?: ?)?",
        found=r"(?P<name>[A-Z]\w*)",
        expecting="`<edge>`",
    ),
    _row(
        codes.LETTER_CASE,
        "a type name starts with an upper-case letter, found '{name}'",
        found=r"(?P<name>[a-z_]\w*)",
        expecting="expected a type name",
    ),
    _row(
        codes.LETTER_CASE,
        "a property starts with a lower-case letter, found '{name}'",
        "write `{lowered}`",
        found=r"(?P<name>[A-Z]\w*)",
        expecting="expected `*` or a name",
    ),
    _row(
        codes.LETTER_CASE,
        "a name starts with a lower-case letter, found '{name}'",
        found=r"(?P<name>[A-Z]\w*)",
        expecting="expected a name",
    ),
    # -- the order of parts
    _row(
        codes.PART_ORDER,
        "`offset` needs a `limit` in front of it",
        "write `limit 20 offset 40`",
        found=r"offset\b",
        expecting="`limit`",
    ),
    _row(
        codes.PART_ORDER,
        "`order` stands in front of `limit`",
        "move it there",
        before=r"\blimit (?:[0-9]+|\$\w+)(?: offset (?:[0-9]+|\$\w+))? ",
        found=r"order\b",
    ),
    _row(
        codes.PART_ORDER,
        "`nearest` takes no direction",
        "the closest rows always come first; leave `{direction}` out",
        found=r"(?P<direction>asc|desc)\b",
        expecting="expected `,` or `}`",
    ),
    _row(
        codes.PART_ORDER,
        "a query reads or writes, not both",
        "write two queries",
        found=r"(?:insert|create|upsert|update|delete) [A-Z]",
        expecting="`limit`",
    ),
    _row(
        codes.PART_ORDER,
        "a query reads or writes, not both",
        "write two queries",
        found=r"match\b",
        expecting="`insert`, `update`, `upsert` or `}`",
    ),
    _row(
        codes.PART_ORDER,
        "`return` stands behind the braces of `match`",
        "close the match block with `}}`",
        before=r"\breturn ?",
        found=r"\{",
        expecting="`contains`",
    ),
    _row(
        codes.PART_ORDER,
        "a query needs its parentheses, also without parameters",
        "write `query {name}()`",
        before=r"\bquery (?P<name>\w+) ?",
        found=r"[{@]",
        expecting="expected `(`",
    ),
    # -- functions
    _row(
        codes.NOT_HERE,
        "only `count` takes `distinct`",
        before=r"\b(?:sum|avg|min|max) ?\( ?distinct ",
        expecting="`)`",
    ),
    _row(
        codes.NOT_HERE,
        "`{function}` needs another argument",
        before=r"\b(?P<function>search|match_text|fuzzy|bm25|rrf) ?\([^()]+",
        found=r"\)",
        expecting="expected `,`",
    ),
    _row(
        codes.NOT_HERE,
        "`nearest` compares a vector property, such as `$d.embedding`",
        before=r"\bnearest ?\( ?\$\w+ ?",
        expecting="expected `.`",
    ),
    # -- values
    _row(
        codes.NULL_LITERAL,
        "there is no null literal",
        "leave the property out, or pass a nullable parameter",
        found=r"null\b",
        expecting="a string",
    ),
    _row(
        codes.NOT_HERE,
        "a list holds constants, found '${name}'",
        "pass the whole list as a parameter, such as `$names: [String]`",
        before=r"[\[,] ?",
        found=r"\$(?P<name>\w+)",
        expecting="`[`",
    ),
    _row(
        codes.NOT_HERE,
        "`in` takes a list of constants or a list parameter",
        "for a list property write `${name}.… contains …`",
        before=r"\bin \$(?P<name>\w+) ?",
        found=r"\.",
    ),
    _row(
        codes.NOT_HERE,
        "a hop ends at a variable, not at a property",
        "compare the property in a clause of its own",
        before=r"[\w>}] \$\w+ ?",
        found=r"\.",
        expecting="`optional`",
    ),
    _row(
        codes.NOT_HERE,
        "an inline property takes a constant, a parameter or `now()`",
        "compare two properties in a clause of its own",
        before=r": ?\$\w+ ?",
        found=r"\.",
        expecting="expected `,` or `}`",
    ),
    _row(
        codes.NOT_HERE,
        "a mutation has no variables with properties",
        "write the property's name alone; `$name` is a parameter",
        before=r"(?<![\w.])\$\w+ ?",
        found=r"\.",
    ),
)


_OPAQUE: Final = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*+")|//[^\n]*|/\*(?:[^*]|\*(?!/))*+\*/', re.DOTALL
)
_BLANKS: Final = re.compile(r"[ \t\r\n]+")
_CALL: Final = re.compile(r"(?<![$\w.@])(?P<name>[a-z_]\w*) ?\Z")


def explain(diagnostic: Diagnostic) -> Diagnostic:
    """Return the diagnostic with a message of its own, if the mistake is a known one."""
    if not diagnostic.code.endswith("001"):
        return diagnostic
    before, behind = _surroundings(diagnostic)
    recognized = recognize(diagnostic.message, before, behind)
    if recognized is not None:
        return _reworded(diagnostic, *recognized)
    call = _CALL.search(before)
    if behind[:1] == "(" and call is not None and call["name"] != "query":
        return _explain_call(diagnostic, call["name"])
    return diagnostic


def recognize(message: str, before: str, behind: str) -> tuple[Mistake, dict[str, str]] | None:
    """Return the first row that fits, with the words that its patterns found."""
    for mistake in MISTAKES:
        if mistake.expecting not in message:
            continue
        left, right = mistake.before.search(before), mistake.found.match(behind)
        if left and right:
            groups = left.groupdict() | right.groupdict()
            return mistake, {name: text or "" for name, text in groups.items()}
    return None


def _surroundings(diagnostic: Diagnostic) -> tuple[str, str]:
    text, at = diagnostic.source.text, diagnostic.span.start
    return _plain(text[max(at - _LOOK_BACK, 0) : at]), text[at : at + _LOOK_AHEAD]


def _plain(text: str) -> str:
    without = _OPAQUE.sub(lambda match: '""' if match["string"] else " ", text)
    return _BLANKS.sub(" ", without)


def _reworded(diagnostic: Diagnostic, mistake: Mistake, words: dict[str, str]) -> Diagnostic:
    name = words.get("name", "")
    known = words | {"lowered": name[:1].lower() + name[1:]}
    return replace(
        diagnostic,
        code=mistake.code,
        message=mistake.message.format(**known),
        hint=mistake.hint.format(**known) if mistake.hint else diagnostic.hint,
    )


def _explain_call(diagnostic: Diagnostic, name: str) -> Diagnostic:
    if name in FUNCTIONS:
        message = f"`{name}(…)` cannot stand here"
        return replace(diagnostic, code=codes.NOT_HERE, message=message, hint=None)
    known = nearest_name(name, FUNCTIONS)
    hint = f"did you mean `{known}`?" if known else f"functions are {', '.join(FUNCTIONS)}"
    return replace(
        diagnostic, code=codes.FUNCTION_UNKNOWN, message=f"unknown function '{name}'", hint=hint
    )
