"""The Python environment as graph records: data that every machine has."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_LICENCES = (
    ("apache", "apache"),
    ("bsd", "bsd"),
    ("mit", "mit"),
    ("psf", "psf"),
    ("python software", "psf"),
    ("mpl", "mpl"),
    ("mozilla", "mpl"),
)


def installed_records() -> Iterator[str]:
    """Yield packages, authors, what depends on what and who wrote what, as lines of JSON."""
    found = {normal(name): each for each in distributions() if (name := _name_of(each))}
    authors: dict[str, None] = {}
    edges: list[dict[str, object]] = []
    for name, each in sorted(found.items()):
        yield _node("Package", name=name, version=each.version, licence=licence(each))
        author = _author(each)
        if author:
            authors[author] = None
            edges.append({"edge": "AuthoredBy", "from": name, "to": author})
        for needed, is_extra in sorted(_needs(each)):
            if needed in found:
                edges.append(_dependency(name, needed, is_extra=is_extra))
    yield from (_node("Author", name=author) for author in authors)
    yield from (json.dumps(edge) for edge in edges)


def normal(name: str) -> str:
    """Return the one spelling of a package's name.

    >>> normal("Typing_Extensions")
    'typing-extensions'
    """
    return re.sub(r"[-_.]+", "-", name).lower()


def licence(distribution: Distribution) -> str:
    """Guess the family of a licence from the metadata of a package."""
    metadata = distribution.metadata
    said = " ".join(
        [
            *(metadata.get_all("License-Expression") or []),
            *(each for each in metadata.get_all("Classifier") or [] if "License" in each),
            *(text[:200] for text in metadata.get_all("License") or []),
        ]
    ).lower()
    return next((family for word, family in _LICENCES if word in said), "other")


def _node(kind: str, **values: str) -> str:
    return json.dumps({"type": kind, "data": values})


def _dependency(name: str, needed: str, *, is_extra: bool) -> dict[str, object]:
    return {"edge": "DependsOn", "from": name, "to": needed, "data": {"optional": is_extra}}


def _name_of(distribution: Distribution) -> str | None:
    names = distribution.metadata.get_all("Name") or []
    return next((name for name in names if _NAME.fullmatch(name)), None)


def _author(distribution: Distribution) -> str | None:
    metadata = distribution.metadata
    named = [*(metadata.get_all("Author") or []), *(metadata.get_all("Author-email") or [])]
    texts = [re.sub(r"<[^>]*>|\S+@\S+", "", text).strip(' ,"') for text in named]
    return next((text.split(",")[0].strip() for text in texts if text), None)


def _needs(distribution: Distribution) -> set[tuple[str, bool]]:
    needs: dict[str, bool] = {}
    for requirement in distribution.requires or []:
        match = _NAME.match(requirement)
        if match:
            name, is_extra = normal(match[0]), "extra ==" in requirement
            needs[name] = needs.get(name, True) and is_extra
    return set(needs.items())
