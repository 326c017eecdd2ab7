"""Makes new files survive a power failure.

Lance never calls fsync, and neither does a plain rename: an acknowledged write can vanish, and a
file can come back empty. So on local disks everything new is flushed before it is relied on.

1. A file is durable when its bytes, its entry in its directory and the entries of all directories
   above it, up to the graph's root, have been flushed, in that order.
2. Flushing is per file named: nothing else of the disk waits. What is asked for in one call is
   flushed at the same time, so that the disk commits its journal once for all of it; `together`
   makes several calls of one step such a call. Inside a step no order is relied on: everything
   is durable before the step ends.
3. A directory's own entry needs flushing once for as long as it is the same directory; after that
   only its content changes. One that was removed and made again is another one. What is remembered
   about that is bounded: forgetting costs a flush, never a file.
4. `process` skips all of it: such writes survive a crash of the process, not of the machine.
5. Object stores are durable by contract and need no flusher.

Paths are texts here: a small write flushes a dozen files, and objects of `pathlib` for them took
longer than any other Python code of the write.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Final, Literal, Protocol, get_args

from omnigraph.store.background import Inline, InThreads
from omnigraph.store.errors import WriteOutcomeUnknownError
from omnigraph.store.uri import Root

Durability = Literal["full", "process"]
DURABILITIES: Final[tuple[Durability, ...]] = get_args(Durability)
"""`full` survives a power failure, `process` only a crash of the process."""


class Flusher(Protocol):
    """Makes files of a local root durable."""

    def files(self, paths: Iterable[str]) -> None:
        """Flush these files, their directories and every new directory above them."""
        ...

    def contents(self, path: str) -> None:
        """Flush the bytes of a file that is about to be renamed."""
        ...

    def directories(self, paths: Iterable[str]) -> None:
        """Flush directories whose entries have changed."""
        ...

    def together(self) -> AbstractContextManager[None]:
        """Put off what this thread asks of `files` inside the block to the end of it."""
        ...


class NoFlusher:
    """Flushes nothing: `process` durability and object stores."""

    def files(self, paths: Iterable[str]) -> None:
        """Do nothing."""

    def contents(self, path: str) -> None:
        """Do nothing."""

    def directories(self, paths: Iterable[str]) -> None:
        """Do nothing."""

    def together(self) -> AbstractContextManager[None]:
        """Do nothing."""
        return nullcontext()

    def end_threads(self) -> None:
        """Do nothing: there are none."""


_FLUSHES_AT_ONCE_MAX: Final = 32
_SETTLED_MAX: Final = 4_096
"""A process may run for months and see any number of directories."""


class _Gathered(threading.local):
    """What the current thread has put off; None outside of `together`."""

    paths: list[str] | None = None


class DiskFlusher:
    """Flushes with fsync. Safe to share between threads."""

    def __init__(self, root: Path) -> None:
        self._root = os.fspath(root)
        self._lock = threading.Lock()
        self._settled: OrderedDict[str, int] = OrderedDict()
        """Directories whose own entry is durable, with their inode, the last used one last."""
        self._gathered = _Gathered()
        self._threads = InThreads(_FLUSHES_AT_ONCE_MAX, "flush")
        self.sync: Callable[[str], None] = fsync_path
        """Flushes one file or directory, in any thread; tests wrap it."""

    def end_threads(self) -> None:
        """Let threads end when they have nothing left to do; a later call starts new ones."""
        self._threads.end_threads()

    def files(self, paths: Iterable[str]) -> None:
        if self._gathered.paths is not None:
            self._gathered.paths += paths
            return
        named = list(dict.fromkeys(paths))
        parents = list(dict.fromkeys(_parent(path) for path in named))
        self._at_once([*named, *parents])
        for parent in parents:
            self._settle(parent)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Put off what this thread asks of `files` inside the block to the end of it.

        A block that fails is flushed too, as far as possible: a caller that continues after the
        failure finds what a single call would have left.
        """
        if self._gathered.paths is not None:
            yield
            return
        gathered = self._gathered.paths = []
        try:
            yield
        except Exception:
            self._gathered.paths = None
            with suppress(OSError):
                self.files(gathered)
            raise
        finally:
            self._gathered.paths = None
        if gathered:
            with _flush_failures(gathered[0]):
                self.files(gathered)

    def contents(self, path: str) -> None:
        self.sync(path)

    def directories(self, paths: Iterable[str]) -> None:
        for path in paths:
            self.sync(path)
            self._settle(path)

    def _at_once(self, paths: Sequence[str]) -> None:
        """Flush everything at the same time; return or raise when all of it has ended."""
        started = [self._threads.start(partial(self.sync, path)) for path in paths[1:]]
        started += [Inline().start(partial(self.sync, path)) for path in paths[:1]]
        wait(started)
        for flushed in started:
            flushed.result()

    def _settle(self, directory: str) -> None:
        """Flush the entry of `directory` in its parent, and so on upwards, once each."""
        while directory != (parent := _parent(directory)):
            inode = os.stat(directory).st_ino  # noqa: PTH116 - on every flush
            if self._is_settled(directory, inode):
                return
            if directory == self._root:
                self._flush_above_root(parent)
            else:
                self.sync(parent)
            self._remember(directory, inode)
            if directory == self._root:
                return
            directory = parent

    def _is_settled(self, directory: str, inode: int) -> bool:
        with self._lock:
            is_settled = self._settled.get(directory) == inode
            if is_settled:
                self._settled.move_to_end(directory)
        return is_settled

    def _remember(self, directory: str, inode: int) -> None:
        with self._lock:
            self._settled[directory] = inode
            while len(self._settled) > _SETTLED_MAX:
                self._settled.popitem(last=False)

    def _flush_above_root(self, directory: str) -> None:
        try:
            self.sync(directory)
        except PermissionError:
            # The process that made the root had permissions here that this one does not need.
            return


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def fsync_path(path: str | Path) -> None:
    """Flush one file or directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def flusher_for(root: Path | None, durability: Durability) -> DiskFlusher | NoFlusher:
    """Return what a store at this root needs; `None` is an object store."""
    if root is None or durability == "process":
        return NoFlusher()
    return DiskFlusher(root)


class PathFlusher:
    """Flushes things named by their path under a root; does nothing for object stores."""

    def __init__(self, root: Root, flusher: Flusher) -> None:
        self._root = root
        self._flusher = flusher

    def files(self, paths: Iterable[str]) -> None:
        """Flush files and the directories that lead to them."""
        if not self._root.is_local:
            return
        named = list(paths)
        if named:
            with _flush_failures(named[0]):
                self._flusher.files(self._root.join(path) for path in named)

    def together(self) -> AbstractContextManager[None]:
        """Put off what this thread asks of `files` inside the block to the end of it."""
        return self._flusher.together()

    def directory_of(self, path: str) -> None:
        """Flush the directory from which `path` was removed."""
        if self._root.is_local:
            with _flush_failures(path):
                self._flusher.directories([_parent(self._root.join(path))])


@contextmanager
def _flush_failures(path: str) -> Iterator[None]:
    """Translate a failed fsync, after which it is unknown what is on the disk."""
    try:
        yield
    except OSError as error:
        raise WriteOutcomeUnknownError(path=path, reason=f"flushing failed: {error}") from error
