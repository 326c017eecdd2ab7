"""Bearer tokens: where they come from, and whose they are.

Every token is reduced to its SHA-256 digest when it is read; the plain text is dropped. A token of
a request is compared with every stored digest, each time in constant time and without an early
exit, so the time of an answer says nothing about the tokens.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from omnigraph.errors import LibraryMissingError
from omnigraph.server.errors import BootRefusedError, UnauthorizedError

PREFIX: Final = "OMNIGRAPH_SERVER_BEARER_TOKEN"
FILE: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
JSON: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
AWS_SECRET: Final = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"  # noqa: S105 - a name
DEFAULT_ACTOR: Final = "default"
_SCHEME: Final = "Bearer "
_log = logging.getLogger(__name__)


class Tokens:
    """The tokens of one moment: digests, and the actor of each."""

    def __init__(self, actors: Mapping[str, str]) -> None:
        """Take tokens by actor; each actor and each token may appear once."""
        by_digest: dict[bytes, str] = {}
        for actor, token in actors.items():
            digest = hashlib.sha256(token.encode()).digest()
            if digest in by_digest:
                raise BootRefusedError(
                    f"'{actor}' and '{by_digest[digest]}' have the same token",
                    "give every actor a token of its own",
                )
            by_digest[digest] = actor
        self._by_digest = by_digest

    def __bool__(self) -> bool:
        return bool(self._by_digest)

    def actor_of(self, header: str | None) -> str:
        """Return the actor of an `Authorization` header, or raise."""
        if header is None or not header.startswith(_SCHEME):
            raise UnauthorizedError("missing bearer token")
        given = hashlib.sha256(header[len(_SCHEME) :].encode(errors="surrogateescape")).digest()
        found: str | None = None
        for digest, actor in self._by_digest.items():
            if hmac.compare_digest(digest, given):
                found = actor
        if found is None:
            raise UnauthorizedError("invalid bearer token")
        return found


@dataclass(frozen=True)
class TokenSource:
    """Where the tokens of a server are declared."""

    name: str
    read: Callable[[], Tokens]
    path: Path | None = None


def token_source(environ: Mapping[str, str]) -> TokenSource:
    """Return the source that the environment names; without one it has no tokens."""
    secret = _set(environ, AWS_SECRET)
    if secret is not None:
        return TokenSource("AWS secret", lambda: Tokens(_parsed(_aws_secret(secret), "the secret")))
    single = _set(environ, PREFIX)
    path = _set(environ, FILE)
    if path is not None:
        return TokenSource("file", lambda: _with_single(_of_file(Path(path)), single), Path(path))
    text = _set(environ, JSON)
    if text is not None:
        return TokenSource("environment", lambda: _with_single(_parsed(text, JSON), single))
    return TokenSource("single token" if single else "none", lambda: _with_single({}, single))


def _set(environ: Mapping[str, str], name: str) -> str | None:
    value = environ.get(name, "").strip()
    return value or None


def _with_single(actors: dict[str, str], single: str | None) -> Tokens:
    if single is not None:
        if DEFAULT_ACTOR in actors:
            raise BootRefusedError(
                f"the actor '{DEFAULT_ACTOR}' has two tokens",
                f"leave it out of the list, or leave {PREFIX} away",
            )
        actors = actors | {DEFAULT_ACTOR: single}
    return Tokens(actors)


def _of_file(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BootRefusedError(
            f"the token file {path} cannot be read: {error}", f"set {FILE} to a readable file"
        ) from error
    return _parsed(text, str(path))


def _parsed(text: str, source: str) -> dict[str, str]:
    """Return tokens by actor out of a JSON object; the same actor twice is an error."""
    pairs = _pairs(text, source)
    actors: dict[str, str] = {}
    for actor, token in pairs:
        name, value = actor.strip(), token.strip() if isinstance(token, str) else None
        if not name or not value:
            problem = f"{source} has a blank actor" if not name else f"'{name}' has no token"
            raise BootRefusedError(f"{problem} in {source}", 'give an object {"actor": "token"}')
        if name in actors:
            raise BootRefusedError(f"'{name}' stands twice in {source}", "name every actor once")
        actors[name] = value
    return actors


def _pairs(text: str, source: str) -> list[tuple[str, object]]:
    hint = 'give an object {"actor": "token"}'
    try:
        found = _keep_pairs(text)
    except (ValueError, RecursionError) as error:
        raise BootRefusedError(f"{source} is not JSON: {error}", hint) from error
    if found is None:
        raise BootRefusedError(f"{source} is not a JSON object of texts", hint)
    return found


def _keep_pairs(text: str) -> list[tuple[str, object]] | None:
    value = json.loads(text, object_pairs_hook=_Pairs)
    return list(value) if isinstance(value, _Pairs) else None


class _Pairs(list[tuple[str, object]]):
    """The members of a JSON object, with equal keys."""


def _aws_secret(secret_id: str) -> str:
    try:
        import boto3  # type: ignore[import-untyped,unused-ignore]  # noqa: PLC0415 - optional
    except ImportError as error:
        raise LibraryMissingError("boto3") from error
    value = boto3.client("secretsmanager").get_secret_value(SecretId=secret_id)
    text = value.get("SecretString")
    if not isinstance(text, str):
        raise BootRefusedError(f"the secret {secret_id} is no text", "store a JSON object in it")
    return text


class LiveTokens:
    """The tokens of a running server, which follow their file.

    A file that cannot be used changes nothing: the tokens before it go on to hold.
    """

    def __init__(self, source: TokenSource) -> None:
        self._source = source
        self._guard = threading.Lock()
        self._seen = self._stamp()
        self._tokens = source.read()
        if source.path is not None and not self._tokens:
            _log.warning("the token file %s is empty", source.path)

    @property
    def name(self) -> str:
        """Where the tokens come from."""
        return self._source.name

    def __bool__(self) -> bool:
        return bool(self._tokens)

    def actor_of(self, header: str | None) -> str:
        """Return the actor of an `Authorization` header, or raise."""
        return self._tokens.actor_of(header)

    def refresh(self) -> bool:
        """Read the file again if it has changed; return whether other tokens hold now."""
        stamp = self._stamp()
        with self._guard:
            if stamp == self._seen:
                return False
            self._seen = stamp
            try:
                tokens = self._source.read()
            except BootRefusedError as error:
                _log.error("the tokens stay as they were: %s", error)
                return False
            if not tokens:
                _log.error("the tokens stay as they were: the file has none")
                return False
            self._tokens = tokens
        _log.info("tokens read again from %s", self._source.name)
        return True

    def _stamp(self) -> tuple[int, int, int] | None:
        if self._source.path is None:
            return None
        try:
            stat = self._source.path.stat()
        except OSError:
            return None
        return stat.st_mtime_ns, stat.st_size, stat.st_ino
