"""What a pipeline file declares, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal, TypeAlias

from omnigraph.names import EntityKind, TableKey
from omnigraph.pipelines.contracts.model import ContractRule
from omnigraph.pipelines.diagnostics import Findings
from omnigraph.pipelines.file.expect import Expect
from omnigraph.pipelines.file.variables import Variables
from omnigraph.spark.steps import SourceRead
from omnigraph.strict_yaml import Location

_PATTERN: Final = frozenset("*?[{")


class Publish(StrEnum):
    """How the rows of a run reach the branch of the target."""

    DIRECT = "direct"
    """By a load onto the branch, where nothing has to see the rows first."""
    BRANCH = "branch"
    """Not at all: they stay on the branch of the run."""
    MERGE = "merge"
    """By a merge of the branch of the run, when all checks hold."""


@dataclass(frozen=True)
class Target:
    """The graph and branch that a pipeline loads."""

    graph: str
    branch: str = "main"
    publish: Publish = Publish.MERGE


@dataclass(frozen=True)
class Trigger:
    """When a stream reads what is new."""

    every_s: int | None = None
    """How long after the begin of a micro-batch the next one begins; None ends with what is there
    at the start."""
    checkpoint: str | None = None
    """Where Spark keeps what it has read; None for a folder next to the graph."""

    def to_json(self) -> dict[str, object]:
        """Return the trigger as programs see it."""
        if self.every_s is None:
            return {"available_now": True}
        return {"every": f"{self.every_s}s"}


IncrementalKind: TypeAlias = Literal["by", "new_files", "version"]


@dataclass(frozen=True)
class Incremental:
    """How a source is read from where the last run ended."""

    kind: IncrementalKind
    by: str = ""
    overlap_s: int = 0
    """How far before the last mark a read begins, for rows that come late; seconds or units."""


@dataclass(frozen=True)
class Source(SourceRead):
    """Rows from outside, by name."""

    incremental: Incremental | None = None
    is_stream: bool = False
    """Whether a pipeline with a trigger reads it bit by bit, and not whole in every micro-batch."""

    @property
    def is_followed(self) -> bool:
        """Whether it is a type of another graph whose changes are applied, deletions as well."""
        names = {name.lower() for name in self.options}
        return self.is_stream and self.format == "omnigraph" and "readchangefeed" not in names

    @property
    def is_pattern(self) -> bool:
        """Whether the files are named by patterns, which may match none yet."""
        return bool(self.paths) and all(_PATTERN & set(path) for path in self.paths)


@dataclass(frozen=True)
class LoadStep:
    """Rows of a source or view that become rows of one type."""

    kind: EntityKind
    type_name: str
    source: str
    mode: str
    mapping: Mapping[str, str] | None = None
    """SQL expressions by property; None takes the columns that are named as properties."""
    ends: Mapping[str, str] = field(default_factory=dict)
    """SQL expressions of `src` and `dst`."""
    path: str = ""

    @property
    def table_key(self) -> TableKey:
        """The table of the type."""
        return TableKey.of(self.kind, self.type_name)


@dataclass(frozen=True)
class Check:
    """A query of the loaded graph, or a rule of a contract, and what must hold of what it finds."""

    name: str
    language: Literal["gq", "sql", "rule"]
    text: str
    expect: Expect
    path: str
    is_warning: bool = False
    rule: ContractRule | None = None
    """What the language `rule` measures."""


@dataclass(frozen=True)
class ErrorPolicy:
    """What happens to rows that break a rule."""

    quarantines: bool = False
    folder: Path | None = None
    rows_max: int | None = None


@dataclass(frozen=True)
class PipelineFile:
    """A pipeline as its file declares it."""

    name: str
    path: Path
    digest: str
    target: Target
    sources: Mapping[str, Source]
    views: Mapping[str, str]
    load: tuple[LoadStep, ...]
    trigger: Trigger | None = None
    checks: tuple[Check, ...] = ()
    on_error: ErrorPolicy = field(default_factory=ErrorPolicy)
    properties: Mapping[str, str] = field(default_factory=dict)
    spark: Mapping[str, str] = field(default_factory=dict)
    locations: Mapping[str, Location] = field(default_factory=dict, compare=False, repr=False)
    variables: Variables = field(default_factory=lambda: Variables({}), compare=False, repr=False)

    def findings(self) -> Findings:
        """Return where mistakes of this file are collected."""
        return Findings(self.locations, hide=self.variables.hide)

    @property
    def has_one_mode(self) -> bool:
        """Whether all rows are loaded in the same way."""
        return len({step.mode for step in self.load}) == 1

    @property
    def uses_branch(self) -> bool:
        """Whether a run needs a branch of its own before it publishes."""
        is_direct = self.target.publish is Publish.DIRECT
        return not is_direct or bool(self.checks) or not self.has_one_mode or self.is_following

    @property
    def is_following(self) -> bool:
        """Whether changes of another graph are applied, which may need deletions."""
        return any(source.is_followed for source in self.sources.values())

    @property
    def checkpoint(self) -> str:
        """Where Spark keeps what a stream has read."""
        named = None if self.trigger is None else self.trigger.checkpoint
        target = self.target
        return named or f"{target.graph.rstrip('/')}.checkpoints/{self.name}/{target.branch}"
