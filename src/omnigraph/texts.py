r"""Text from outside: what may be shown and stored; and a hash of texts.

1. *Encodable* text has a UTF-8 form: it holds no half of a surrogate pair.
2. *Shown* text is fit for a terminal, a log and JSON: encodable, without control characters but
   line ends, and without the secrets of addresses. What is not fit is spelled as an escape, `\x1b`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Final, NoReturn

_UNFIT: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control characters, marks that lock the direction of what follows, halves of surrogate pairs."""

_USER: Final = re.compile(
    r"(:/{1,3})"
    # Secrets may hold slashes. A number between a colon and a slash is a port.
    r"(?:[^\s/@:]{0,1024}:(?!\d{1,5}(?:[/?#]|$))[^\s@]{0,1024}|[^\s/@]{1,1024})@"
)
_SECRET: Final = re.compile(
    r"(?i)([?&;][^=&\s]{0,64}?"
    r"(?:sig|signature|token|secret|password|passwd|pwd|credential|api[-_]?key|access[-_]?key|auth)"
    r"[^=&\s]{0,32}=)[^&\s`'\"<>)\]}]{1,4096}"
)
_HIDDEN: Final = "***"

_JSON_MARK: Final = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)|[\[{]|[\]}]', re.DOTALL)

_FNV_OFFSET: Final = 0xCBF29CE484222325
_FNV_PRIME: Final = 0x100000001B3

JSON_DEPTH_MAX: Final = 128
"""How deep lists and objects of a JSON text from outside may nest."""


def is_encodable(text: str) -> bool:
    r"""Whether a text has a UTF-8 form.

    >>> is_encodable("é"), is_encodable("\ud800")
    (True, False)
    """
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def has_control(text: str) -> bool:
    r"""Whether a text holds a character that steers a terminal instead of being shown.

    >>> has_control("a b"), has_control("a\nb"), has_control("a\u202eb")
    (False, True, True)
    """
    return "\n" in text or _UNFIT.search(text) is not None


def escaped(text: str) -> str:
    r"""Return a text of any number of lines, fit for a terminal.

    >>> escaped("a\x1b[31m\nb\ud800")
    'a\\x1b[31m\nb\\ud800'
    """
    return _UNFIT.sub(lambda found: ascii(found[0])[1:-1], text)


def on_one_line(text: str) -> str:
    r"""Return a text of one line, fit for a terminal.

    >>> on_one_line("a\nomnigraph:recovery")
    'a\\nomnigraph:recovery'
    """
    return escaped(text.replace("\r\n", "\\n").replace("\n", "\\n"))


def redacted(text: str) -> str:
    """Return a text without the secrets of the addresses in it.

    >>> redacted("s3://KEY:SEC/RET@lake/x and https://h/x?sig=abc&v=1")
    's3://***@lake/x and https://h/x?sig=***&v=1'
    >>> redacted("http://localhost:9000/me@home")
    'http://localhost:9000/me@home'
    """
    return _SECRET.sub(rf"\1{_HIDDEN}", _USER.sub(rf"\1{_HIDDEN}@", text))


def shown(text: str) -> str:
    """Return a text that is safe to show: escaped, and without secrets of addresses."""
    return escaped(redacted(text))


def folded(text: str) -> str:
    """Return a text such that different spellings which look the same become one.

    >>> folded("\u200b\uff2fmnigraph\uff1ax")
    'omnigraph:x'
    """
    visible = "".join(mark for mark in text if not _is_ignorable(mark))
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())


def _is_ignorable(mark: str) -> bool:
    is_filler = mark in "\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"
    is_selector = "\ufe00" <= mark <= "\ufe0f" or "\U000e0100" <= mark <= "\U000e01ef"
    is_formatting = unicodedata.category(mark) in {"Cc", "Cf", "Zs", "Zl", "Zp"}
    return is_filler or is_selector or is_formatting


def read_json(text: str) -> object:
    """Read a JSON value that a person has written, or raise a `ValueError` that says what is wrong.

    Names that repeat in an object, numbers that JSON has not and deep nesting are wrong.

    >>> read_json('{"a": [1]}')
    {'a': [1]}
    """
    if nests_too_deep(text):
        raise ValueError(f"lists and objects nest deeper than {JSON_DEPTH_MAX}")
    return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_refuse_repeats)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON value")


def _refuse_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members: dict[str, object] = {}
    for name, value in pairs:
        if name in members:
            raise ValueError(f"the name {name!r} stands twice in one object")
        members[name] = value
    return members


def without_depths(value: object, depth_max: int = JSON_DEPTH_MAX) -> object:
    """Return a value of lists and dictionaries with `…` for what nests deeper.

    >>> without_depths([[[1]]], 2)
    [['…']]
    """
    if not isinstance(value, dict | list | tuple):
        return value
    if not depth_max:
        return "…"
    if isinstance(value, dict):
        return {name: without_depths(inner, depth_max - 1) for name, inner in value.items()}
    return [without_depths(inner, depth_max - 1) for inner in value]


def nests_too_deep(json_text: str, depth_max: int = JSON_DEPTH_MAX) -> bool:
    """Whether a JSON text nests deeper than readers take; the text may be wrong otherwise.

    >>> nests_too_deep('[["[["]]', 2), nests_too_deep("[[[]]]", 2)
    (False, True)
    """
    if json_text.count("[") + json_text.count("{") <= depth_max:
        return False
    depth = 0
    for found in _JSON_MARK.finditer(json_text):
        mark = found[0]
        if mark in "[{":
            depth += 1
            if depth > depth_max:
                return True
        elif mark in "]}":
            depth -= 1
    return False


def fnv1a64(text: str) -> str:
    """Return the FNV-1a 64-bit hash of a text as 16 hexadecimal digits.

    >>> fnv1a64("")
    'cbf29ce484222325'
    """
    value = _FNV_OFFSET
    for byte in text.encode():
        value = ((value ^ byte) * _FNV_PRIME) & 0xFFFF_FFFF_FFFF_FFFF
    return f"{value:016x}"
