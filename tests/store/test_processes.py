"""What crosses process borders: records, errors, and Lance itself, which does not."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from omnigraph.store import Store, connect
from omnigraph.store.records import DatasetVersion
from support.people import LOCATION, ages, append, create, numbered, people, stage_upsert


def in_a_fresh_interpreter(program: str, *arguments: str) -> str:
    outcome = subprocess.run(
        [sys.executable, "-c", program, *arguments], check=False, capture_output=True, text=True
    )
    assert outcome.returncode == 0, outcome.stderr
    return outcome.stdout


OBJECTS_ALONE = """
from omnigraph.store import StoreSettings, open_objects
from omnigraph.store.uri import parse_root
open_objects(StoreSettings(parse_root("/nowhere")))
"""
LOADED = """
import json, sys
{first}
heavy = [name for name in ("lance", "obstore", "boto3") if name in sys.modules]
print(json.dumps(heavy))
"""


@pytest.mark.parametrize(
    ("first", "expected"),
    [
        ("import omnigraph.store", []),
        ("import omnigraph.store.records, omnigraph.store.durability", []),
        (
            OBJECTS_ALONE,
            [],
        ),
        ("from omnigraph.store import connect\nconnect('/nowhere')", ["lance"]),
    ],
)
def test_lance_is_loaded_on_first_use_and_not_before(first: str, expected: list[str]) -> None:
    assert json.loads(in_a_fresh_interpreter(LOADED.format(first=first))) == expected


COMMIT = """
import pickle, sys
from pathlib import Path
from omnigraph.store import open_store
settings, staged = pickle.loads(Path(sys.argv[1]).read_bytes())
store = open_store(settings)
store.datasets.verify_staged_files(staged)
committed = store.datasets.commit_staged(staged)
Path(sys.argv[1]).write_bytes(pickle.dumps(committed))
"""


def test_a_transaction_staged_here_is_committed_there(store: Store, tmp_path: Path) -> None:
    base = create(store, numbered(2))
    staged = store.datasets.stage_update(base, deleted=[0], inserted=people(["x"]))
    parcel = tmp_path / "parcel"
    parcel.write_bytes(pickle.dumps((store.settings, staged)))
    in_a_fresh_interpreter(COMMIT, str(parcel))
    committed = pickle.loads(parcel.read_bytes())
    assert (committed.uuid, committed.version) == (staged.uuid, staged.intended_version)
    assert store.datasets.head_version(LOCATION) == committed.version, "seen from here at once"
    assert set(ages(store, committed.at)) == {"p1", "x"}


WRITE = """
import pickle, sys
from pathlib import Path
import pyarrow as pa
from omnigraph.store import open_store
settings, base = pickle.loads(Path(sys.argv[1]).read_bytes())
datasets = open_store(settings).datasets
rows = pa.table({"id": [sys.argv[2]], "age": pa.array([5], pa.int32())})
written = datasets.write_fragments(base, rows)
deletions = datasets.write_deletions(base, [int(sys.argv[3])]) if sys.argv[3] else ()
Path(sys.argv[1] + sys.argv[2]).write_bytes(pickle.dumps((written, deletions)))
"""


def test_workers_write_and_the_driver_commits_once(store: Store, tmp_path: Path) -> None:
    at = create(store, numbered(2))
    base = append(store, at, numbered(2, "q")).at
    parcel = tmp_path / "parcel"
    parcel.write_bytes(pickle.dumps((store.settings, base)))
    fragments, deletions = [], []
    for name, address in (("x", "0"), ("y", str((1 << 32) + 1))):
        in_a_fresh_interpreter(WRITE, str(parcel), name, address)
        answer = Path(f"{parcel}{name}").read_bytes()
        written, removed = pickle.loads(answer)
        fragments += written
        deletions += removed
    staged = store.datasets.stage_update(base, fragments=fragments, deletions=deletions)
    store.datasets.verify_staged_files(staged)
    assert set(ages(store, store.datasets.commit_staged(staged).at)) == {"p1", "q0", "x", "y"}


def test_records_and_settings_pickle(local_store: Store) -> None:
    base = create(local_store, numbered(2))
    staged = local_store.datasets.stage_append(base, people(["x"]))
    for record in (base, staged, local_store.settings):
        assert pickle.loads(pickle.dumps(record)) == record


RACE = """
import pickle, sys
from pathlib import Path
from omnigraph.store import open_store
from omnigraph.store.errors import StaleBaseError
settings, staged = pickle.loads(Path(sys.argv[1]).read_bytes())
datasets = open_store(settings).datasets
datasets.head_version(staged.base.location)
print("ready", flush=True)
sys.stdin.readline()
try:
    datasets.commit_staged(staged)
except StaleBaseError:
    print("refused")
else:
    print("committed")
"""


def test_of_several_processes_exactly_one_commits(store: Store, tmp_path: Path) -> None:
    base = create(store, numbered(1))
    runners = []
    for number in (1, 2):
        staged = stage_upsert(store.datasets, base, people(["p0"], number))
        parcel = tmp_path / f"parcel{number}"
        parcel.write_bytes(pickle.dumps((store.settings, staged)))
        runners.append(
            subprocess.Popen(
                [sys.executable, "-c", RACE, str(parcel)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        )
    for runner in runners:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "ready\n"
    for runner in runners:
        assert runner.stdin is not None
        runner.stdin.write("go\n")
        runner.stdin.flush()
    answers = [runner.communicate(timeout=60)[0].strip() for runner in runners]
    assert sorted(answers) == ["committed", "refused"]
    assert store.datasets.head_version(LOCATION) == base.version + 1


def test_threads_share_a_store(local_store: Store) -> None:
    base = create(local_store, numbered(5))
    errors: list[BaseException] = []
    lock = threading.Lock()

    def work(number: int) -> None:
        try:
            with lock:
                head = local_store.datasets.head_version(LOCATION)
                at = DatasetVersion(LOCATION, None, head)
                append(local_store, at, people([f"t{number}"]))
            assert len(ages(local_store, base)) == 5
        except BaseException as error:  # noqa: BLE001 - handed to the test's own thread
            errors.append(error)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(work, range(16)))
    assert errors == []
    assert len(ages(local_store, local_store.datasets.open(LOCATION).at)) == 21


def test_old_handles_leave_the_cache_and_can_be_opened_again(tmp_path: Path) -> None:
    from omnigraph.store.lance.store import LanceStore
    from omnigraph.store.objects.local import LocalObjectStore
    from omnigraph.store.uri import parse_root

    root = parse_root(tmp_path / "graph")
    datasets = LanceStore(root, LocalObjectStore(root), handles_max=2)
    at = datasets.commit_staged(datasets.stage_create("t", numbered(1).schema)).at
    for number in range(5):
        at = datasets.commit_staged(datasets.stage_append(at, people([str(number)]))).at
    assert len(datasets._opener._handles) == 2
    assert [datasets.open("t", version=version).count() for version in (1, 3, 6, 2)] == [0, 2, 5, 1]


FORKED = """
import os, sys
from omnigraph.store import connect
from omnigraph.store.errors import StorageUnavailableError
store = connect(sys.argv[1])
store.datasets.exists("t")
child = os.fork()
if child == 0:
    try:
        store.datasets.open("t", version=1)
    except StorageUnavailableError as error:
        os._exit(0 if "before a fork" in str(error) else 1)
    os._exit(2)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_store_refuses_to_work_after_a_fork(tmp_path: Path) -> None:
    in_a_fresh_interpreter(FORKED, str(tmp_path / "graph"))


def test_a_head_moved_by_somebody_else_is_seen(local_store: Store) -> None:
    base = create(local_store, numbered(1))
    other = connect(local_store.settings.root)
    at = base
    for number in range(70):
        at = append(other, at, people([str(number)])).at
    assert local_store.datasets.head_version(LOCATION) == at.version, "more steps than one climb"
    other.objects.delete_prefix(LOCATION)
    assert not local_store.datasets.exists(LOCATION)
