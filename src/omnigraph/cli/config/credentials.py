"""The tokens of servers: `credentials` in the operator's directory, readable by its owner only.

    [lab]
    token = s3cret

1. The file is written as a whole, with mode 0600; sections of other servers stay as they are.
2. A file that others may read is not used at all: its tokens may be known already.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final

from omnigraph.cli.config.operator_config import operator_home
from omnigraph.errors import DeniedError, InvalidInputError

_HEADER: Final = re.compile(r"\s*\[(?P<name>[^\]]*)\]\s*")
_NAME: Final = re.compile(r"[^\s\[\]#=]+")
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class CredentialsExposedError(DeniedError):
    """The file of tokens is readable by others than its owner."""

    code = "OG-CREDENTIALS"
    hint = "`chmod 600 {path}`, and replace the tokens if someone may have seen them"
    template = "{path} may be read by others, so its tokens are not used"
    path: Path


class WrongCredentialError(InvalidInputError):
    """The name of a server or its token cannot be stored."""

    code = "OG-CREDENTIAL"
    hint = "`omnigraph login NAME --token TOKEN`, or the token as one line on standard input"
    template = "{problem}"
    problem: str


def credentials_path() -> Path:
    """Return where the tokens are."""
    return operator_home() / "credentials"


def store_token(server: str, token: str) -> None:
    """Store the token of a server, instead of an earlier one."""
    token = token.strip()
    if not token or not token.isprintable():
        raise WrongCredentialError("the token is blank, or not one line of text")
    if not _NAME.fullmatch(server):
        raise WrongCredentialError(f"'{server}' is not a name of a server")
    _rewrite(lambda text: f"{_without(text, server)}[{server}]\ntoken = {token}\n")


def forget_token(server: str) -> None:
    """Remove the token of a server; nothing happens when there is none."""
    if credentials_path().exists():
        _rewrite(lambda text: _without(text, server))


def token_of(url: str, servers: Mapping[str, str], environ: Mapping[str, str]) -> str | None:
    """Return the token for a URL: that of the server which it belongs to, else the general one.

    A token of one server is never sent to another.
    """
    name = _server_of(url, servers)
    found = None
    if name is not None:
        variable = f"OMNIGRAPH_TOKEN_{name.upper().replace('-', '_')}"
        found = environ.get(variable, "").strip() or _stored_token(name)
    return found or environ.get("OMNIGRAPH_BEARER_TOKEN", "").strip() or None


def _server_of(url: str, servers: Mapping[str, str]) -> str | None:
    """Return the name of the server whose URL is the longest prefix, at a boundary of segments.

    >>> _server_of("https://lab/a/graphs/g", {"x": "https://lab", "y": "https://lab/a/"})
    'y'
    >>> _server_of("https://lab.evil", {"x": "https://lab"}) is None
    True
    """
    below = f"{url.rstrip('/')}/"
    found = [
        (len(base), name)
        for name, base in ((name, f"{base.rstrip('/')}/") for name, base in servers.items())
        if below.startswith(base)
    ]
    return max(found)[1] if found else None


def _stored_token(server: str) -> str | None:
    name = None
    for line in _read(credentials_path()).splitlines():
        header = _HEADER.fullmatch(line)
        key, equals, value = line.partition("=")
        if header:
            name = header["name"].strip()
        elif name == server and equals and key.strip() == "token":
            return _unquoted(value.strip()) or None
    return None


def _unquoted(text: str) -> str:
    if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"":
        return text[1:-1].strip()
    return text


def _without(text: str, server: str) -> str:
    r"""Return the file without the section of a server.

    >>> _without("# mine\n[a]\ntoken = 1\n[b]\ntoken = 2\n", "a")
    '# mine\n[b]\ntoken = 2\n'
    """
    kept = "".join(_other_lines(text, server))
    return kept if not kept or kept.endswith("\n") else f"{kept}\n"


def _other_lines(text: str, server: str) -> Iterator[str]:
    is_ours = False
    for line in text.splitlines(keepends=True):
        header = _HEADER.fullmatch(line)
        if header:
            is_ours = header["name"].strip() == server
        if not is_ours:
            yield line


def _rewrite(change: Callable[[str], str]) -> None:
    path = credentials_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    text = change(_read(path))
    number, name = tempfile.mkstemp(prefix=".credentials.", dir=path.parent)
    unfinished = Path(name)
    try:
        # The library makes such files with mode 0600.
        with os.fdopen(number, "w", encoding="utf-8") as file:
            file.write(text)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def _read(path: Path) -> str:
    if not path.exists():
        return ""
    if os.name == "posix" and path.stat().st_mode & _OTHERS:
        raise CredentialsExposedError(path)
    return path.read_text(encoding="utf-8")
