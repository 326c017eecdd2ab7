"""The files that a configuration names, each read once."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.cluster.digests import content_digest
from omnigraph.strict_yaml import quoted
from omnigraph.syntax.source import SOURCE_BYTES_MAX


class UnreadableError(Exception):
    """A file or folder cannot be read; the text says why."""


@dataclass(frozen=True)
class Content:
    """A file: how the configuration spells it, where it is, and its bytes."""

    path: str
    file: Path
    data: bytes

    @cached_property
    def digest(self) -> str:
        """The digest of the bytes."""
        return content_digest(self.data)


class Files:
    """Reads files relative to the folder of a configuration."""

    def __init__(self, config_dir: str) -> None:
        self._base = os.path.abspath(config_dir)  # noqa: PTH100 - Path.resolve would follow links
        self._read: dict[str, Content] = {}

    def locate(self, path: str) -> str:
        """Return the absolute path of a file or folder."""
        return os.path.join(self._base, path)  # noqa: PTH118 - a Path costs more than the read

    def read(self, path: str) -> Content:
        """Return a file, or raise `UnreadableError`."""
        known = self._read.get(path)
        if known is None:
            file = self.locate(path)
            known = self._read[path] = Content(path, Path(file), read_bytes(file))
        return known

    def read_declared(
        self, path: str, *, code: str, where: str, found: list[Diagnostic]
    ) -> Content | None:
        """Return a file, or none and collect a finding about the key that names it."""
        try:
            return self.read(path)
        except UnreadableError as problem:
            found.append(error(code, where, f"{quoted(path)} cannot be read: {problem}"))
            return None

    def list_queries(self, path: str) -> list[str] | None:
        """Return the visible `.gq` files of a folder, sorted; none if it is no folder.

        Editors keep hidden files, such as `.#papers.gq`, next to the ones that they edit.
        """
        folder = self.locate(path)
        try:
            with os.scandir(folder) as entries:
                names = sorted(entry.name for entry in entries if _is_query_file(entry))
        except (FileNotFoundError, NotADirectoryError, ValueError):
            return None
        except OSError as problem:
            raise UnreadableError(problem.strerror or str(problem)) from problem
        return [os.path.join(path, name) for name in names]  # noqa: PTH118 - kept as it is spelled


def read_bytes(file: str) -> bytes:
    """Return the bytes of a regular file of bounded size, or raise `UnreadableError`."""
    try:
        # Opening a named pipe would wait for a writer.
        if not stat.S_ISREG(os.stat(file).st_mode):  # noqa: PTH116 - as in `locate`
            raise UnreadableError("it is not a file")
        with open(file, "rb") as opened:  # noqa: PTH123 - as in `locate`
            data = opened.read(SOURCE_BYTES_MAX + 1)
    except OSError as problem:
        raise UnreadableError(problem.strerror or str(problem)) from problem
    except ValueError as problem:
        raise UnreadableError("no path can be spelled like this") from problem
    if len(data) > SOURCE_BYTES_MAX:
        raise UnreadableError(f"it is longer than {SOURCE_BYTES_MAX} bytes")
    return data


def _is_query_file(entry: os.DirEntry[str]) -> bool:
    name = entry.name
    return name.endswith(".gq") and not name.startswith(".") and not entry.is_dir()
