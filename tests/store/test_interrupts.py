"""An interrupt from the keyboard is one, wherever it meets the store."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from omnigraph.store import Store, connect
from omnigraph.store.errors import StorageError
from omnigraph.store.lance.errors import read_failures
from support.people import LOCATION, append, create, numbered, people
from support.s3 import S3Server


def test_a_scan_that_is_interrupted_is_no_failure_of_the_storage(
    s3: S3Server, s3_store: Store
) -> None:
    create(s3_store, numbered(50))
    handle = connect(s3_store.settings.root, storage_options=s3.options).datasets.open(LOCATION)
    with s3.pressing_ctrl_c(f"{LOCATION}/data/"), pytest.raises(KeyboardInterrupt):
        handle.scan().read_all()
    assert handle.count() == 50


def rows_until_interrupt() -> Iterator[pa.RecordBatch]:
    yield from people(["x"]).to_batches()
    raise KeyboardInterrupt


def test_an_interrupt_of_whoever_brings_the_rows_ends_a_write(store: Store) -> None:
    at = create(store, numbered(5))
    rows = pa.RecordBatchReader.from_batches(people([]).schema, rows_until_interrupt())
    with pytest.raises(KeyboardInterrupt):
        store.datasets.write_fragments(at, rows)
    assert store.datasets.head_version(LOCATION) == at.version
    append(store, at, people(["x"]))
    assert store.datasets.open(LOCATION).count() == 6


TRACE = 'Python exception: Traceback (most recent call last):\n  File "a.py", line 2, in gen\n'


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("External error: KeyboardInterrupt: ", KeyboardInterrupt),
        ("LanceError(IO): External error: KeyboardInterrupt: ", KeyboardInterrupt),
        (f"LanceError(Arrow): {TRACE}KeyboardInterrupt", KeyboardInterrupt),
        (f"LanceError(Arrow): {TRACE}KeyboardInterrupt: twice", KeyboardInterrupt),
        ("External error: KeyboardInterrupt.lance was damaged", StorageError),
        ("External error: RuntimeError: KeyboardInterrupt: ", StorageError),
        ("cannot parse 'KeyboardInterrupt'", StorageError),
    ],
)
def test_only_what_was_an_interrupt_becomes_one(text: str, kind: type[BaseException]) -> None:
    with pytest.raises(kind), read_failures("x"):
        raise pa.ArrowInvalid(text)
