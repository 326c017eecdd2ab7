"""What a scrub has found: damaged files, what is lost with each, and what to do about it."""

from __future__ import annotations

from dataclasses import asdict, field
from enum import StrEnum
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.errors import InvalidInputError
from omnigraph.manifest.layout import CHECKSUMS, COMMIT_ACTORS, COMMITS
from omnigraph.records import JsonObject
from omnigraph.store.records import FileKind

TOPOLOGY: Final = "topology"
SUMS: Final = "checksums"
_REBUILT: Final = frozenset({COMMITS, COMMIT_ACTORS})


class ScrubShareError(InvalidInputError):
    """A sample is not a share of the files."""

    code = "OG-SCRUB-SAMPLE"
    hint = "a share above 0 and up to 1, or on the command line a percentage such as 5%"
    template = "{share} is not a share of the files"
    share: float


class Problem(StrEnum):
    """How a file differs from what was written."""

    MISSING = "missing"
    SIZE = "size"
    CONTENT = "content"
    UNREADABLE = "unreadable"


@dataclass(frozen=True)
class ScrubRequest:
    """What to check."""

    branch: str | None = None
    """Only the files that this branch needs; None checks all branches."""
    share: float = 1.0
    """How much of the files to read."""
    seed: str | None = None
    """Chooses the files of a share; None takes the day, so that every day reads others."""
    adopt: bool = False
    """Whether files without a checksum get one."""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise ScrubShareError(self.share)


@dataclass(frozen=True)
class DamagedRows:
    """The rows that a damaged file holds, removes or covers."""

    fragment_ids: tuple[int, ...]
    rows: int
    first_row_id: int | None = None
    last_row_id: int | None = None
    first_id: str | None = None
    last_id: str | None = None
    """Entity ids, where an undamaged file holds them."""

    def __str__(self) -> str:
        numbers = ", ".join(map(str, self.fragment_ids))
        name = "fragment" if len(self.fragment_ids) == 1 else "fragments"
        text = f"{self.rows} rows of {name} {numbers}"
        if self.first_id is not None:
            text += f", `{self.first_id}` to `{self.last_id}`"
        elif self.first_row_id is not None:
            text += f", row ids {self.first_row_id} to {self.last_row_id}"
        return text

    def to_json(self) -> JsonObject:
        """Return the rows as programs see them."""
        shape = asdict(self)
        return {"fragments": list(shape.pop("fragment_ids")), **shape}


@dataclass(frozen=True)
class ReadableCommits:
    """How many commits of a branch can be read without a damaged file."""

    branch: str
    readable: int
    unreadable: int
    newest: str | None
    """The newest commit that can be read."""

    def to_json(self) -> JsonObject:
        """Return the commits as programs see them."""
        return asdict(self)


@dataclass(frozen=True)
class Damage:
    """A file that is not what was written."""

    path: str
    kind: str
    table: str
    """Table key, or the directory of a table that belongs to the system."""
    problem: Problem
    detail: str
    rows: DamagedRows | None = None
    commits: tuple[ReadableCommits, ...] = ()

    @property
    def remedy(self) -> str:
        """What to do next."""
        restore = f"restore `{self.path}` from a backup"
        if self.kind == SUMS:
            return f"delete `{CHECKSUMS}`, then `omnigraph doctor --scrub --adopt`"
        if self.kind == TOPOLOGY:
            return f"delete `{self.path}`: the next query makes it anew"
        if self.table in _REBUILT:
            return f"delete `{self.table}` and open the graph for writing: it is made anew"
        if self.kind == FileKind.INDEX:
            return f"`omnigraph optimize --rebuild-indexes {self.table}`, or {restore}"
        newest = [c for c in self.commits if c.unreadable and c.newest is not None]
        if not newest:
            return restore
        text = ", ".join(f"{c.newest} of branch {c.branch}" for c in newest)
        return f"{restore}; until then read commit {text}"

    def to_json(self) -> JsonObject:
        """Return the damage as programs see it."""
        return {
            "path": self.path,
            "kind": self.kind,
            "table": self.table,
            "problem": str(self.problem),
            "detail": self.detail,
            "rows": None if self.rows is None else self.rows.to_json(),
            "commits": [each.to_json() for each in self.commits],
            "remedy": self.remedy,
        }


@dataclass(frozen=True)
class ScrubReport:
    """What a scrub has checked and found."""

    files: int
    """How many files the graph needs."""
    compared: int
    """How many of them were compared with their checksum."""
    bytes_read: int
    share: float
    seed: str
    damaged: tuple[Damage, ...]
    without_checksum: tuple[str, ...] = field(repr=False, default=())
    """Files without a checksum, except those that were adopted."""
    adopted: int = 0

    @property
    def is_sound(self) -> bool:
        """Whether none of the checked files is damaged."""
        return not self.damaged

    def to_json(self) -> JsonObject:
        """Return the report as programs see it."""
        return {
            "ok": self.is_sound,
            "files": self.files,
            "compared": self.compared,
            "bytes_read": self.bytes_read,
            "share": self.share,
            "seed": self.seed,
            "without_checksum": len(self.without_checksum),
            "adopted": self.adopted,
            "damaged": [damage.to_json() for damage in self.damaged],
        }
