"""Every merge of these tests is done twice: by this process, and by tasks."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph
from support.cases import Case
from support.inline_engine import take_everything
from support.merge_sides import Start, make_sides
from support.places import Place


@pytest.fixture(autouse=True, params=["local", "tasks"])
def engine(request: pytest.FixtureRequest) -> Iterator[str]:
    """Say who merges; tasks must have had something to do."""
    if request.param == "local":
        yield "local"
        return
    with pytest.MonkeyPatch.context() as patch:
        take_everything(patch)
        yield "spark"


@pytest.fixture(scope="module")
def templates(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], Path]:
    """Make both sides of each case once; every merge works on a copy.

    The branches of a copy read what they inherited from the original, which nothing changes.
    """
    made: dict[str, Path] = {}

    def template(case: Case) -> Path:
        if str(case) not in made:
            path = tmp_path_factory.mktemp("template") / "graph"
            make_sides(case, path)
            made[str(case)] = path
        return made[str(case)]

    return template


@pytest.fixture
def start(templates: Callable[[Case], Path], tmp_path: Path) -> Start:
    def copy(case: Case) -> Graph:
        shutil.copytree(templates(case), tmp_path / "graph")
        return Place(str(tmp_path / "graph")).open()

    return copy
