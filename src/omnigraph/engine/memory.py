"""How much memory this process may still take: of the machine, and of the container it runs in."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_ROOT: Final = Path("/")
_UNLIMITED: Final = 1 << 60
"""Kernels spell "no limit" as a number beyond this one."""


def available_bytes(root: Path = _ROOT) -> int:
    """Return the bytes that this process can take before something has to give way."""
    known = [*_of_machine(root), *_of_container(root)]
    return max(min(known), 0) if known else _physical_bytes()


def _of_machine(root: Path) -> Iterator[int]:
    for line in _text(root / "proc/meminfo").splitlines():
        name, _, rest = line.partition(":")
        if name == "MemAvailable":
            yield int(rest.split()[0]) * 1024


def _of_container(root: Path) -> Iterator[int]:
    """Yield what is left below each limit of the control groups of this process."""
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            # The limit of any group above holds too.
            mounted = root / "sys/fs/cgroup"
            for folder in _with_parents(mounted, path):
                yield from _left(folder, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mounted = root / "sys/fs/cgroup/memory"
            for folder in _with_parents(mounted, path):
                yield from _left(
                    folder,
                    "memory.limit_in_bytes",
                    "memory.usage_in_bytes",
                    "total_inactive_file",
                )


def _with_parents(mounted: Path, path: str) -> list[Path]:
    """Return the folders of a group and of those above it; a container sees only the top."""
    parts = [part for part in path.split("/") if part not in ("", "..")]
    return [mounted.joinpath(*parts[:count]) for count in range(len(parts) + 1)]


def _left(folder: Path, limit: str, used: str, reclaimable: str) -> Iterator[int]:
    allowed, taken = _number(folder / limit), _number(folder / used)
    if allowed is None or taken is None or allowed >= _UNLIMITED:
        return
    for line in _text(folder / "memory.stat").splitlines():
        name, _, rest = line.partition(" ")
        if name == reclaimable:
            # Pages of files that no process uses count as taken and are given back on demand.
            taken -= int(rest)
    yield allowed - taken


def _number(path: Path) -> int | None:
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _physical_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
