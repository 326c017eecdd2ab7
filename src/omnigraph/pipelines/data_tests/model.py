"""What a test file declares, as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from omnigraph.errors import InvalidInputError
from omnigraph.graph import ReadTarget, Registry, SourceText
from omnigraph.pipelines.contracts.model import ContractRule
from omnigraph.pipelines.diagnostics import Diagnostic
from omnigraph.records import to_json

PATTERN: Final = "*.test.yaml"
"""How the files of tests are called."""

Row: TypeAlias = dict[str, object]


class TestFileError(InvalidInputError):
    """Test files are broken, so no test can run; carries everything that was found, by file."""

    __test__ = False
    code = "OG-TEST-FILE"
    hint = "the message names line and column of each mistake"

    def __init__(self, found: Mapping[str, tuple[Diagnostic, ...]]) -> None:
        self.found = dict(found)
        lines = [f"{file}:{one}" for file, several in self.found.items() for one in several]
        super().__init__("\n".join(lines))

    @property
    def details(self) -> dict[str, object]:
        """The diagnostics, for programs."""
        return {
            "diagnostics": [
                {"file": file, **to_json(one)}
                for file, several in self.found.items()
                for one in several
            ]
        }


# -- fixtures -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowsFixture:
    """Rows that stand in the file."""

    rows: tuple[Row, ...] = ()


@dataclass(frozen=True)
class SampledFixture:
    """Rows of a real graph: a sample of some node types, or all rows."""

    graph: str
    target: ReadTarget
    sample: Mapping[str, int] = field(default_factory=dict)
    """How many nodes of each type are drawn; without any, all rows are taken."""
    follow: tuple[str, ...] = ()
    """Edge types along which the sample grows, one step each."""
    seed: int = 0


Fixture: TypeAlias = RowsFixture | SampledFixture
EMPTY: Final = RowsFixture()


# -- what is expected -----------------------------------------------------------------------------


@dataclass(frozen=True)
class PlanWanted:
    """What must be true of the plan of a query; None is not looked at."""

    uses_index: tuple[str, ...] | None = None
    scans: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Wanted:
    """What is expected of an act; None is not looked at."""

    error: str | None = None
    rows: tuple[Row, ...] | None = None
    snapshot: Path | None = None
    exactly: bool = False
    plan: PlanWanted | None = None
    nodes: Mapping[str, int] = field(default_factory=dict)
    edges: Mapping[str, int] = field(default_factory=dict)
    affected_nodes: int | None = None
    affected_edges: int | None = None
    conflicts: tuple[Row, ...] | None = None
    steps: tuple[str, ...] | None = None
    rejected: int | None = None


# -- what is done ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ask:
    """A read: by the name of a query of the file, or by its text."""

    query: str | None = None
    text: str | None = None
    params: Row = field(default_factory=dict)


@dataclass(frozen=True)
class Mutate:
    """A mutation, by the name of a query."""

    query: str
    params: Row = field(default_factory=dict)


@dataclass(frozen=True)
class Load:
    """A load of rows."""

    rows: tuple[Row, ...]
    mode: str = "append"


@dataclass(frozen=True)
class Merge:
    """Two branches that change separately, and the merge of `theirs` into `ours`."""

    ours: Load | Mutate
    theirs: Load | Mutate
    strategy: str = "row"


@dataclass(frozen=True)
class Apply:
    """A change of the schema."""

    schema: SourceText
    allow_data_loss: bool = False


@dataclass(frozen=True)
class RunPipeline:
    """A run of a pipeline whose sources are rows."""

    path: Path
    sources: Mapping[str, tuple[Row, ...]]


Act: TypeAlias = Ask | Mutate | Load | Merge | Apply | RunPipeline


@dataclass(frozen=True)
class Then:
    """A read after an act, and what is expected of it."""

    ask: Ask
    wanted: Wanted


@dataclass(frozen=True)
class DataTest:
    """One test: on a fixture, something is done and something expected."""

    name: str
    line: int
    act: Act
    wanted: Wanted
    fixture: str | None = None
    then: tuple[Then, ...] = ()


@dataclass(frozen=True)
class TestFile:
    """A test file whose parts were read."""

    __test__ = False

    path: Path
    schema: SourceText | None
    registry: Registry
    fixtures: Mapping[str, Fixture]
    tests: tuple[DataTest, ...]
    contracts: tuple[ContractRule, ...] = ()
