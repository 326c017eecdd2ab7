from __future__ import annotations

import logging

import orjson
import pytest

from omnigraph.manifest import OpenMode
from omnigraph.manifest.layout import (
    MAIN_INCARNATION,
    SCHEMA_FILES,
    SCHEMA_IR,
    SCHEMA_SOURCE,
    SCHEMA_STATE,
)
from omnigraph.manifest.schema_files import refresh_schema_files
from omnigraph.store.errors import ObjectNotFoundError
from support.faulty_store import FaultMode, FaultPlan, FaultyObjectStore
from support.places import SCHEMA, Place

REJECTED_FILE = "_schema.pg.rejected"


def test_init_writes_the_accepted_schema_as_files(place: Place) -> None:
    graph = place.init()
    objects = place.store().objects
    schema = graph.snapshot().schema
    assert objects.get(SCHEMA_SOURCE).data.decode() == SCHEMA == graph.schema_source()
    assert orjson.loads(objects.get(SCHEMA_IR).data) == schema.ir
    assert orjson.loads(objects.get(SCHEMA_STATE).data)["schema_ir_hash"] == schema.schema_hash


@pytest.mark.parametrize("name", SCHEMA_FILES)
def test_a_missing_file_is_written_again_at_open(place: Place, name: str) -> None:
    place.init()
    objects = place.store().objects
    before = objects.get(name).data
    objects.delete(name)
    place.open(mode=OpenMode.READ_ONLY)
    assert objects.head(name) is None
    place.open()
    assert objects.get(name).data == before
    assert objects.head(REJECTED_FILE) is None


def test_an_edited_source_is_put_back_and_kept_aside(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.init()
    objects = place.store().objects
    objects.put(SCHEMA_SOURCE, SCHEMA.replace("I32", "I64").encode())
    objects.put(SCHEMA_IR, b"{}")
    with caplog.at_level(logging.WARNING, "omnigraph.manifest.schema_files"):
        graph = place.open()
    assert objects.get(SCHEMA_SOURCE).data.decode() == graph.schema_source() == SCHEMA
    assert b"I64" in objects.get(REJECTED_FILE).data
    assert objects.get(SCHEMA_IR).data != b"{}"
    assert "was edited by hand; use schema apply" in caplog.text
    assert "+    age: I64?" in caplog.text


def test_files_that_agree_are_left_alone(local_place: Place) -> None:
    local_place.init()
    objects = local_place.store().objects
    tags = [objects.get(name).tag for name in SCHEMA_FILES]
    local_place.open()
    assert [objects.get(name).tag for name in SCHEMA_FILES] == tags


def test_a_text_that_cannot_be_kept_aside_is_not_overwritten(
    local_place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    graph = local_place.init()
    objects = local_place.store().objects
    objects.put(SCHEMA_SOURCE, b"my own text")
    plan = FaultPlan(at=1, mode=FaultMode.FAIL_BEFORE)
    with caplog.at_level(logging.WARNING, "omnigraph.manifest.schema_files"):
        refresh_schema_files(FaultyObjectStore(objects, plan), graph.snapshot().schema)
    assert "were not brought up to date" in caplog.text
    assert objects.get(SCHEMA_SOURCE).data == b"my own text"
    with pytest.raises(ObjectNotFoundError):
        objects.get(REJECTED_FILE)
    assert local_place.repository().reader.latest(MAIN_INCARNATION).schema.source == SCHEMA
