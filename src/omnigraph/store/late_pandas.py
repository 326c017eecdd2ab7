"""Loads pyarrow's datasets without pandas, which Lance would otherwise bring into every process.

Lance imports `pyarrow.dataset`, which makes one scalar while it is imported. The first scalar of a
process lets pyarrow look for pandas, and to look is to import it: half a second of processor time.

pyarrow looks once. If it did not find pandas then, it would never again recognise a pandas object
as one, and NaN in a Series would not become null. So it must look again when pandas is imported
after all, whoever imports it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from pyarrow import lib

_PANDAS: Final = "pandas"
_DATASETS: Final = "pyarrow.dataset"


@contextmanager
def without_pandas() -> Iterator[None]:
    """Keep pandas from being imported by this thread; pyarrow looks for it again later."""
    if _PANDAS in sys.modules or _DATASETS in sys.modules:
        yield
        return
    refusal = _Refusal(threading.get_ident())
    sys.meta_path.insert(0, refusal)
    try:
        yield
    finally:
        sys.meta_path.remove(refusal)
        sys.meta_path.insert(0, _Notice())


class _Refusal(MetaPathFinder):
    """Says that there is no pandas, to one thread."""

    def __init__(self, thread: int) -> None:
        self._thread = thread

    def find_spec(
        self,
        fullname: str,
        _path: Sequence[str] | None,
        _target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Raise for pandas in that thread; every other import goes on."""
        if fullname == _PANDAS and threading.get_ident() == self._thread:
            raise ModuleNotFoundError(f"No module named '{_PANDAS}'", name=_PANDAS)
        return None


class _Notice(MetaPathFinder):
    """Lets pyarrow look for pandas again once pandas has been imported.

    It stays until then: libraries ask for the spec of pandas only to know whether it is installed.
    """

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """Return pandas as the other finders know it, with one step added to its import."""
        if fullname != _PANDAS:
            return None
        spec = self._found_by_others(fullname, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_look(module: ModuleType) -> None:
                run(module)
                # A packager may have one loader for all modules.
                if module.__name__ == _PANDAS:
                    _look_again()
                    with suppress(ValueError):
                        sys.meta_path.remove(self)

            setattr(spec.loader, "exec_module", run_and_look)  # noqa: B010 of one instance
        return spec

    def _found_by_others(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)):
                return spec
        return None


def _look_again() -> None:
    try:
        _ = lib._pandas_api.pd  # pyarrow looks when this is read
    except ImportError:
        return  # Too old for pyarrow, which then does without it.
