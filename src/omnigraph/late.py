"""Imports that wait until something is used.

Importing all of the engine takes several times as long as a small query: hundreds of modules with
hundreds of records. So what only some calls need is imported by those calls. There are two forms,
and both are declared in one place per package, for the type checker and for the program:

- a package whose names are loaded when they are first used: `late_names` makes its `__getattr__`;
- a module that stands for another one until a name of it is used: `LateModule`.

`tests/test_imports.py` compares both declarations, and lists the rooms that a query must not load.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Mapping
from importlib import import_module
from types import ModuleType


def imported(name: str) -> ModuleType:
    """Import a module, and all that it imports, without collecting garbage in between.

    What a module makes stays, so the collector would walk over more and more for nothing. Where
    several threads pause it at once, the one that has found it running lets it run again.
    """
    was_running = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        if was_running:
            gc.enable()


class LateModule(ModuleType):
    """Stands for a module, which is imported when one of its names is used."""

    def __getattr__(self, name: str) -> object:
        value: object = getattr(imported(self.__name__), name)
        return value


def late_names(
    package: str, homes: Mapping[str, str], namespace: dict[str, object]
) -> Callable[[str], object]:
    """Return the `__getattr__` of a package: it loads a name from its module, once.

    `homes` has the names of each module, with spaces between them; `namespace` holds the globals of
    the package.
    """
    found = {name: module for module, names in homes.items() for name in names.split()}

    def load(name: str) -> object:
        if name not in found:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value: object = getattr(imported(found[name]), name)
        namespace[name] = value
        return value

    return load


def load_all(module: ModuleType) -> None:
    """Import everything that the public names of a module stand for."""
    for name in getattr(module, "__all__", ()):
        found = getattr(module, name)
        if isinstance(found, LateModule):
            load_all(imported(found.__name__))
