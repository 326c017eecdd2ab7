"""The modules of the package, but for those that need a library which is not here."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

from support.pages import ROOT

_PACKAGE = ROOT / "src" / "omnigraph"
_NEEDS = {"omnigraph.integrations.dlt": "dlt"}


def importable_modules() -> Iterator[str]:
    """Yield the names of all modules that can be imported, also of those that no package lists."""
    for path in sorted(_PACKAGE.rglob("*.py")):
        parts = path.relative_to(_PACKAGE.parent).with_suffix("").parts
        name = ".".join(part for part in parts if part != "__init__")
        if name not in _NEEDS or find_spec(_NEEDS[name]) is not None:
            yield name
