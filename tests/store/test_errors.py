from __future__ import annotations

import inspect
import pickle

import pytest

from omnigraph import errors as tree
from omnigraph.store import errors
from omnigraph.store.errors import StorageError

LEAVES = [
    leaf
    for _, leaf in inspect.getmembers(errors, inspect.isclass)
    if issubclass(leaf, StorageError) and leaf is not StorageError
]
SAMPLES: dict[str, object] = {
    "int": 3,
    "str": "word",
    "str | None": "branch",
    "tuple[str, ...]": ("one", "two"),
}


def sample(leaf: type[StorageError]) -> StorageError:
    fields = leaf.signature().parameters.values()
    facts = {field.name: SAMPLES[field.annotation] for field in fields}
    return leaf(**(facts | {"path": "nodes/here"}))


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_leaf_names_its_path_and_keeps_its_facts(leaf: type[StorageError]) -> None:
    error = sample(leaf)
    assert "nodes/here" in str(error)
    assert error.path == "nodes/here"


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_leaf_survives_pickling(leaf: type[StorageError]) -> None:
    error = sample(leaf)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is leaf
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


@pytest.mark.parametrize("leaf", LEAVES)
def test_every_leaf_has_one_branch_of_the_tree_and_a_code_of_its_own(
    leaf: type[StorageError],
) -> None:
    branches = [
        tree.InvalidInputError,
        tree.NotFoundError,
        tree.DeniedError,
        tree.ConflictError,
        tree.OutcomeUnknownError,
        tree.CorruptError,
        tree.UnavailableError,
    ]
    assert sum(issubclass(leaf, branch) for branch in branches) == 1
    assert [other for other in LEAVES if other.code == leaf.code] == [leaf]
    assert leaf.code.startswith("OG-STORE-")


def test_many_lost_files_are_shortened() -> None:
    problems = tuple(f"`f{number}` is gone" for number in range(8))
    error = errors.StagedFilesLostError(path="nodes/x", problems=problems)
    assert "`f4` is gone; and 3 more" in str(error)
    assert "f5" not in str(error)
    assert error.problems == problems
