"""Which rows of a fragment are deleted is read from its deletion file alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from omnigraph.store import Store, connect
from omnigraph.store.errors import StorageError
from omnigraph.store.records import DatasetVersion
from support.people import LOCATION, create, numbered

ROWS = 300_000
RANDOM = np.random.default_rng(5)
FORMS = {
    "few": np.array([0, 7, ROWS - 1]),
    "spread": np.sort(RANDOM.choice(ROWS, 12_000, replace=False)),
    "many": np.sort(RANDOM.choice(ROWS, 120_000, replace=False)),
    "runs": np.concatenate([np.arange(10, 70_000), np.arange(200_000, 200_900), [ROWS - 2]]),
    "one run": np.arange(100_000, 180_000),
    "all but one": np.delete(np.arange(ROWS), 150_000),
}


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, DatasetVersion]:
    store = connect(str(tmp_path_factory.mktemp("deletions") / "graph"))
    return store, create(store, numbered(ROWS))


@pytest.mark.parametrize("form", FORMS)
def test_deletion_files_of_every_form_are_read(
    stored: tuple[Store, DatasetVersion], form: str
) -> None:
    store, base = stored
    fork = store.datasets.create_branch(
        LOCATION, f"{form.replace(' ', '-')}.1", from_version=base.version
    )
    staged = store.datasets.stage_update(fork, deleted=FORMS[form].tolist())
    at = store.datasets.commit_staged(staged).at
    handle = store.datasets.open(LOCATION, branch=at.branch, version=at.version)
    [fragment] = handle.fragments()
    assert handle.deleted_row_ids(fragment.fragment_id).tolist() == FORMS[form].tolist()


@pytest.mark.parametrize("rows", [3, 60_000], ids=["listed", "bitmap"])
@pytest.mark.parametrize("kept", [0, 20, 0.5])
def test_a_damaged_deletion_file_is_an_error_of_the_store(
    tmp_path: Path, rows: int, kept: float
) -> None:
    store = connect(str(tmp_path / "graph"))
    base = create(store, numbered(70_000))
    staged = store.datasets.stage_update(base, deleted=list(range(rows)))
    at = store.datasets.commit_staged(staged).at
    [file] = (tmp_path / "graph" / LOCATION / "_deletions").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept if kept >= 1 else kept * len(whole))])
    handle = connect(str(tmp_path / "graph")).datasets.open(LOCATION, version=at.version)
    with pytest.raises(StorageError):
        handle.deleted_row_ids(0)
