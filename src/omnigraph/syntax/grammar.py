"""Grammar files, and the parser that turns text into declarations.

A text is a sequence of declarations. One pass parses all of it. Only when that fails, the text is
cut where declarations seem to start and each piece is parsed alone, so that one
mistake does not hide the next. The cut is a guess and is never used on a text that parses. The work
of recovery is bounded: so many mistakes per piece, so many per text.

The parser is LALR(1) and builds nodes while it reduces, so neither it nor the tree builders recurse
over the input; brackets are nested at most `NESTING_MAX` deep, so later passes may recurse.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from typing import Any, Final, Generic, TypeVar

from lark import Lark, TextSlice, Token, Transformer
from lark.exceptions import UnexpectedInput, UnexpectedToken
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from omnigraph.dataclass import dataclass
from omnigraph.names import nearest_name
from omnigraph.syntax.diagnostics import Diagnostic, Phase, SourceError
from omnigraph.syntax.parser_tables import built_parser, stored_parser
from omnigraph.syntax.source import SOURCE_BYTES_MAX, SourceText, Span

__all__ = ["Grammar", "Parsed", "Token", "TreeBuilder", "TreeWalker", "decode_source", "span_of"]

NESTING_MAX: Final = 64
_ERRORS_PER_DECLARATION_MAX: Final = 8
_ERRORS_MAX: Final = 100
_EXPECTED_SHOWN_MAX: Final = 8
_FOUND_SHOWN_MAX: Final = 40

SYNTAX_CODES: Final = {
    "001": "unexpected text",
    "002": "the text ends too early",
    "003": "a string is not closed",
    "004": "unsupported escape sequence",
    "005": "a comment is not closed",
    "006": "brackets are nested too deeply",
    "007": "the text is too large",
    "008": "the text is not UTF-8",
}
"""Suffixes of the codes that every grammar can report; the grammar's letter goes in front."""

Declaration = TypeVar("Declaration")

TreeBuilder = Transformer
"""Base class of tree builders: one method per grammar rule, named like it, without state."""
TreeWalker = Transformer_NonRecursive
"""The same for a tree that the parser has kept; may have state."""


def span_of(part: Token | Meta) -> Span:
    """Return the characters that a token or rule covers."""
    start = part.start_pos
    if start is None:
        return Span(0, 0)
    return Span(start, part.end_pos if part.end_pos is not None else start)


@dataclass(frozen=True)
class Parsed(Generic[Declaration]):
    """The declarations that could be read, and everything that could not."""

    source: SourceText
    declarations: tuple[Declaration, ...]
    diagnostics: tuple[Diagnostic, ...]
    unread: tuple[Span, ...] = ()
    """The pieces of the text whose declarations are missing in `declarations`."""

    def raise_on_errors(self) -> tuple[Declaration, ...]:
        """Return the declarations of a text without mistakes, else raise `SourceError`."""
        if self.diagnostics:
            raise SourceError(self.diagnostics)
        return self.declarations


class Grammar(Generic[Declaration]):
    """One language: its grammar file, tree builder and error vocabulary.

    The file's `start` rule must yield a list of declarations. `declaration` matches where one
    starts and has the groups `kind` and `name`. `terminals` says how messages name a terminal;
    one without an entry is shown by its own text. `advise(text, at, expected)` may know a hint for
    the position of a syntax error where one of the terminals `expected` had to follow.
    """

    def __init__(
        self,
        *,
        package: str,
        file: str,
        builder: Transformer[Token, Any],
        letter: str,
        declaration: str,
        terminals: Mapping[str, str],
        advise: Callable[[str, int, frozenset[str]], str | None] | None = None,
    ) -> None:
        self._package = package
        self._file = file
        self._builder = builder
        self._letter = letter
        self._declaration = re.compile(declaration)
        self._terminals = terminals
        self._advise = advise

    @cached_property
    def _lark(self) -> Lark:
        return stored_parser(self._package, self._file, self._builder) or built_parser(
            self._package, self._file, self._builder
        )

    def parse(self, source: SourceText) -> Parsed[Declaration]:
        """Parse a whole text; never raises for anything that the text contains."""
        refused = self._refuse_outright(source)
        if refused is not None:
            return Parsed(source, (), (refused,), (Span(0, len(source.text)),))
        try:
            return Parsed(source, tuple(self._run(source.text, 0, len(source.text))), ())
        except UnexpectedInput as whole:
            return self._recover(source, whole)

    def _run(self, text: str, start: int, end: int) -> list[Declaration]:
        result: list[Declaration] = self._lark.parse(TextSlice(text, start, end))  # type: ignore[assignment]  # the builder's start rule returns the list
        return result

    # -- limits ---------------------------------------------------------------------------------

    def _refuse_outright(self, source: SourceText) -> Diagnostic | None:
        text = source.text
        if len(text) > SOURCE_BYTES_MAX or source.byte_length > SOURCE_BYTES_MAX:
            message = f"the text is larger than {SOURCE_BYTES_MAX} bytes"
            return self._diagnostic(source, "007", Span(0, 1), message)
        surrogate = None if text.isascii() else _SURROGATE.search(text)
        if surrogate is not None:
            message = f"the text is not UTF-8: it has half a character, {surrogate[0]!r}"
            return self._diagnostic(source, "008", Span(*surrogate.span()), message)
        depth = 0
        for match in _LANDMARKS.finditer(text):
            mark = match[0]
            if mark in "{[(":
                depth += 1
                if depth > NESTING_MAX:
                    message = f"brackets are nested deeper than {NESTING_MAX}"
                    return self._diagnostic(source, "006", Span(*match.span()), message)
            elif mark in "}])":
                depth = max(depth - 1, 0)
        return None

    # -- recovery -------------------------------------------------------------------------------

    def _recover(self, source: SourceText, whole: UnexpectedInput) -> Parsed[Declaration]:
        declarations: list[Declaration] = []
        diagnostics: list[Diagnostic] = []
        unread: list[Span] = []
        for piece in self._pieces(source.text):
            if len(diagnostics) >= _ERRORS_MAX:
                unread.append(Span(piece.start, len(source.text)))
                break
            try:
                declarations += self._run(source.text, piece.start, piece.end)
            except UnexpectedInput:
                unread.append(Span(piece.start, piece.end))
                diagnostics += self._mistakes(source, piece)
        if not diagnostics:
            everything = _Piece(0, len(source.text), None, is_last=True)
            diagnostics.append(self._explain(source, whole, source.text, everything))
        return Parsed(source, tuple(declarations), tuple(diagnostics), tuple(unread))

    def _pieces(self, text: str) -> Iterator[_Piece]:
        starts: list[tuple[int, str | None]] = []
        depth = 0
        for match in self._piece_marks.finditer(text):
            mark = match[0]
            if match["kind"]:
                at_line_start = match.start() == 0 or text[match.start() - 1] == "\n"
                if depth == 0 or at_line_start:
                    starts.append((match.start(), f"{match['kind']} '{match['name']}'"))
                    depth = 0
            elif mark == "{":
                depth += 1
            elif mark == "}":
                depth = max(depth - 1, 0)
        if not starts or _OPAQUE_OR_BLANK.fullmatch(text, 0, starts[0][0]) is None:
            starts.insert(0, (0, None))
        ends = [start for start, _ in starts[1:]] + [len(text)]
        for (start, subject), end in zip(starts, ends, strict=True):
            yield _Piece(start, end, subject, is_last=end == len(text))

    @cached_property
    def _piece_marks(self) -> re.Pattern[str]:
        starts = rf"(?<![A-Za-z0-9_$@.]){self._declaration.pattern}"
        return re.compile(f"{_OPAQUE_LINES}|[{{}}]|{starts}", re.DOTALL)

    def _mistakes(self, source: SourceText, piece: _Piece) -> Iterator[Diagnostic]:
        """Report the mistakes of a piece that does not parse.

        After each one the piece is parsed again without it. A second mistake right behind the same
        text is not a new one: the parser still waits for what was missing the first time.
        """
        text = source.text[piece.start : piece.end]
        stuck_after = -1
        for _ in range(_ERRORS_PER_DECLARATION_MAX):
            problem = self._first_problem(text)
            if problem is None:
                return
            found = self._explain(source, problem, text, piece)
            before = len(text[: found.span.start - piece.start].rstrip())
            if before == stuck_after:
                return
            stuck_after = before
            yield found
            local = Span(found.span.start - piece.start, found.span.end - piece.start)
            repaired = _examined(text, local, found.code.removeprefix(self._letter))
            if repaired is None:
                return
            text = repaired

    def _first_problem(self, text: str) -> UnexpectedInput | None:
        try:
            self._run(text, 0, len(text))
        except UnexpectedInput as problem:
            return problem
        return None

    # -- explanations ---------------------------------------------------------------------------

    def _explain(
        self, source: SourceText, problem: UnexpectedInput, text: str, piece: _Piece
    ) -> Diagnostic:
        if isinstance(problem, UnexpectedToken) and problem.token.type == "$END":
            end = problem.token.end_pos or 1
            suffix, local = "002", Span(end - 1, end)
            what = f"the {'text' if piece.is_last else 'declaration'} ends too early"
        else:
            at: int = getattr(problem, "pos_in_stream", 0)
            lexical = _lexical_problem(text, at)
            if lexical is not None:
                suffix, local, what = lexical
                return self._diagnostic(
                    source, suffix, _shifted(local, piece), what, subject=piece.subject
                )
            found = _word_at(text, at)
            suffix, local = "001", Span(at, at + len(found))
            what = f"unexpected {_shown(found)}"
        terminals = _expected_terminals(problem)
        expected = sorted({self._terminal_text(name) for name in terminals})
        if expected:
            what += f", expected {_one_of(expected)}"
        if suffix == "002":
            hint = "is a `}` missing?" if "RBRACE" in terminals else None
        else:
            hint = self._hint(text, local, terminals, expected)
        return self._diagnostic(
            source, suffix, _shifted(local, piece), what, hint=hint, subject=piece.subject
        )

    def _hint(
        self, text: str, span: Span, terminals: frozenset[str], expected: list[str]
    ) -> str | None:
        advice = self._advise(text, span.start, terminals) if self._advise else None
        if advice is not None:
            return advice
        found = text[span.start : span.end]
        words = [word[1:-1] for word in expected if word.startswith("`")]
        typo = nearest_name(found, words) if found[:1].isalpha() else None
        return f"did you mean `{typo}`?" if typo and typo != found else None

    def _terminal_text(self, name: str) -> str:
        known = self._terminals.get(name)
        if known is not None:
            return known
        for terminal in self._lark.terminals:
            if terminal.name == name:
                return f"`{_plain(terminal.pattern.value)}`"
        return "the end of the text" if name == "$END" else name.lower()

    def _diagnostic(
        self,
        source: SourceText,
        suffix: str,
        span: Span,
        message: str,
        *,
        hint: str | None = None,
        subject: str | None = None,
    ) -> Diagnostic:
        return Diagnostic(
            self._letter + suffix, Phase.PARSE, message, source, span, hint=hint, subject=subject
        )


@dataclass(frozen=True)
class _Piece:
    """A part of the text that seems to hold one declaration."""

    start: int
    end: int
    subject: str | None
    is_last: bool


def decode_source(data: bytes, name: str, letter: str) -> SourceText:
    """Decode UTF-8 bytes; a text that is not UTF-8 is a `SourceError` that names the position."""
    body = data.removeprefix(codecs.BOM_UTF8)
    try:
        return SourceText(body.decode(), name)
    except UnicodeDecodeError as error:
        readable = SourceText(body.decode(errors="replace"), name)
        at = len(body[: error.start].decode())
        offset = error.start + len(data) - len(body)
        message = f"the text is not UTF-8: byte {body[error.start]:#04x} at offset {offset}"
        raise SourceError(
            [Diagnostic(f"{letter}008", Phase.PARSE, message, readable, Span(at, at + 1))]
        ) from None


_COMMENT: Final = r"//[^\n]*|/\*(?:[^*]|\*(?!/))*+(?:\*/)?"
_OPAQUE: Final = rf'"(?:[^"\\]|\\.)*+"?|{_COMMENT}'
# A quote without a partner on its line is more likely a mistake than a string of several lines.
_OPAQUE_LINES: Final = rf'"(?:[^"\\\n]|\\.)*+"?|{_COMMENT}'
_OPAQUE_OR_BLANK: Final = re.compile(rf"(?:\s|{_COMMENT})*+", re.DOTALL)
_LANDMARKS: Final = re.compile(rf"{_OPAQUE}|[][(){{}}]", re.DOTALL)
_WORD: Final = re.compile(r'"(?:[^"\\]|\\.)*+"|[@$]?[A-Za-z0-9_]+|->|\.\.|.', re.DOTALL)
_BAD_STRING: Final = re.compile(r'"(?:[^"\\]|\\["\\nrt])*+', re.DOTALL)
_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")


def _lexical_problem(text: str, at: int) -> tuple[str, Span, str] | None:
    """Explain a string or comment that the lexer could not read at all."""
    if text.startswith("/*", at) and text.find("*/", at + 2) < 0:
        return "005", Span(at, at + 2), "the comment is not closed"
    if text[at : at + 1] != '"':
        return None
    stop = _BAD_STRING.match(text, at)
    end = stop.end() if stop else at + 1
    if end < len(text) and text[end] == "\\" and end + 1 < len(text):
        escape = text[end : end + 2]
        return "004", Span(end, end + 2), f"unsupported escape sequence {_shown(escape)}"
    if end >= len(text) or text[end] == "\\":
        return "003", Span(at, at + 1), "the string is not closed"
    return None


def _examined(text: str, span: Span, suffix: str) -> str | None:
    """Return the text without a mistake, if it can be left out without causing another one."""
    if suffix == "004":
        return _overwritten(text, span, "x")
    return _without_line(text, span) if suffix == "001" else None


def _without_line(text: str, span: Span) -> str | None:
    """Blank the line of a mistake, unless that would tear apart what spans several lines."""
    start = text.rfind("\n", 0, span.start) + 1
    end = text.find("\n", span.start)
    line = Span(start, len(text) if end < 0 else end)
    if not _is_closed(text[:start], braces=False) or not _is_closed(
        text[start : line.end], braces=True
    ):
        return None
    return _overwritten(text, line, " ")


def _is_closed(text: str, *, braces: bool) -> bool:
    """Whether strings, comments and round and square brackets of a text all end inside it."""
    depth = 0
    for match in _LANDMARKS.finditer(text):
        mark = match[0]
        if mark in "{}":
            if braces:
                return False
        elif mark in "([":
            depth += 1
        elif mark in ")]":
            depth -= 1
        elif (mark[0] == '"' and (len(mark) == 1 or mark[-1] != '"')) or (
            mark[:2] == "/*" and mark[-2:] != "*/"
        ):
            return False
    return depth == 0


def _overwritten(text: str, span: Span, filler: str) -> str:
    return text[: span.start] + filler * (span.end - span.start) + text[span.end :]


def _shifted(span: Span, piece: _Piece) -> Span:
    return Span(span.start + piece.start, span.end + piece.start)


def _expected_terminals(problem: UnexpectedInput) -> frozenset[str]:
    """Return the terminals that can follow; a state's own table also lists impossible ones."""
    parser: Any = problem.interactive_parser
    return frozenset(parser.accepts())


def _one_of(expected: list[str]) -> str:
    if len(expected) == 1:
        return expected[0]
    if len(expected) <= _EXPECTED_SHOWN_MAX:
        return f"{', '.join(expected[:-1])} or {expected[-1]}"
    return ", ".join(expected[:_EXPECTED_SHOWN_MAX]) + ", …"


def _plain(pattern: str) -> str:
    """Return the text of a keyword or punctuation pattern without its look-ahead."""
    return re.sub(r"\\b|\(\?[=!].*\)$", "", pattern).replace("\\", "")


def _word_at(text: str, at: int) -> str:
    match = _WORD.match(text, at)
    return match[0] if match else ""


def _shown(found: str) -> str:
    cut = found if len(found) <= _FOUND_SHOWN_MAX else found[:_FOUND_SHOWN_MAX] + "…"
    return f"'{cut}'" if cut.isprintable() else repr(cut)
