"""Files below a folder are read, and nothing that links lead to outside of it."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pytest

from omnigraph.schema.values.blobs import blob_column
from omnigraph.store.errors import ObjectNotFoundError, StorageError, StoragePermissionError
from omnigraph.store.objects import confined_file
from omnigraph.store.objects.confined_file import leads_outside, read_confined
from omnigraph.write.stage.external_blobs import (
    BlobSourceDeniedError,
    BlobSourceUnreadableError,
    ExternalBlobs,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with files, and a secret beside it that links in it lead to."""
    made = tmp_path / "allowed"
    (made / "inner").mkdir(parents=True)
    (made / "inner" / "a.txt").write_bytes(b"fine")
    (tmp_path / "secret.txt").write_bytes(b"secret")
    (tmp_path / "allowed-too").mkdir()
    (tmp_path / "allowed-too" / "x").write_bytes(b"secret")
    return made


def link(at: Path, to: Path | str) -> None:
    at.symlink_to(to)


INSIDE: dict[str, Callable[[Path], str]] = {
    "a file": lambda _: "inner/a.txt",
    "a link to a file": lambda top: _linked(top, "near", "inner/a.txt"),
    "a link to a folder": lambda top: _linked(top, "near", "inner", "near/a.txt"),
    "a link by its full path": lambda top: _linked(top, "near", str(top / "inner/a.txt")),
    "a link out and in again": lambda top: _linked(top, "near", "../allowed/inner/a.txt"),
}
OUTSIDE: dict[str, Callable[[Path], str]] = {
    "a link to a file": lambda top: _linked(top, "far", "../secret.txt"),
    "a link to a folder": lambda top: _linked(top, "far", "..", "far/secret.txt"),
    "a link by its full path": lambda top: _linked(top, "far", str(top.parent / "secret.txt")),
    "a link to a folder of a longer name": lambda top: _linked(
        top, "far", "../allowed-too", "far/x"
    ),
    "links to links": lambda top: _linked(
        top, "further", _linked(top, "far", "../secret.txt"), "further"
    ),
}


def _linked(top: Path, name: str, to: str, path: str | None = None) -> str:
    link(top / name, to)
    return path or name


@pytest.mark.parametrize("make", INSIDE.values(), ids=INSIDE)
def test_what_ends_below_the_folder_is_read(folder: Path, make: Callable[[Path], str]) -> None:
    path = make(folder)
    assert not leads_outside(folder, path)
    assert read_confined(folder, path) == b"fine"


@pytest.mark.parametrize("make", OUTSIDE.values(), ids=OUTSIDE)
def test_what_leads_out_of_the_folder_is_not_read(
    folder: Path, make: Callable[[Path], str]
) -> None:
    path = make(folder)
    assert leads_outside(folder, path)
    with pytest.raises(StoragePermissionError, match="leads out"):
        read_confined(folder, path)


def test_the_folder_itself_may_be_a_link(folder: Path, tmp_path: Path) -> None:
    link(tmp_path / "named", folder)
    assert read_confined(tmp_path / "named", "inner/a.txt") == b"fine"


@pytest.mark.parametrize("name", ["far", "inner"])
def test_a_name_that_becomes_a_link_after_the_check_is_not_followed(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (folder / "far").write_bytes(b"fine")
    path = "far" if name == "far" else "inner/a.txt"
    (tmp_path / "a.txt").write_bytes(b"secret")
    checked = confined_file._real_parts

    def then_exchanged(top: Path, asked: str) -> tuple[str, ...] | None:
        parts = checked(top, asked)
        (folder / name).rename(tmp_path / "away")
        link(folder / name, tmp_path / "secret.txt" if name == "far" else tmp_path)
        return parts

    monkeypatch.setattr(confined_file, "_real_parts", then_exchanged)
    with pytest.raises(StorageError):
        read_confined(folder, path)


def test_only_regular_files_are_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    found: list[Exception] = []

    def read() -> None:
        try:
            read_confined(folder, "pipe")
        except StoragePermissionError as error:
            found.append(error)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    reader.join(10)
    assert [str(error) for error in found] == ["permission denied at `pipe`: it is no regular file"]
    for path in ("absent", "inner", "inner/a.txt/x"):
        with pytest.raises(ObjectNotFoundError):
            read_confined(folder, path)
    link(folder / "loop", "loop")
    with pytest.raises(StorageError):
        read_confined(folder, "loop")


def _column(uri: str) -> pa.Array:
    return blob_column(pa.array([None], pa.large_binary()), pa.array([uri]), np.array([True]))


@pytest.mark.parametrize("make", OUTSIDE.values(), ids=OUTSIDE)
def test_external_blobs_are_not_read_through_links_out_of_their_base(
    folder: Path, make: Callable[[Path], str]
) -> None:
    blobs = ExternalBlobs([folder.as_uri()])
    column = _column(f"{folder.as_uri()}/{quote(make(folder))}")
    assert blobs.denied(column).tolist() == [True]
    with pytest.raises(BlobSourceDeniedError):
        blobs.owned(column)
    with pytest.raises(BlobSourceUnreadableError, match="leads out"):
        blobs.copied(column, blobs.denied(column))


@pytest.mark.parametrize("make", INSIDE.values(), ids=INSIDE)
def test_external_blobs_are_read_through_links_inside_of_their_base(
    folder: Path, make: Callable[[Path], str]
) -> None:
    blobs = ExternalBlobs([folder.as_uri()])
    column = _column(f"{folder.as_uri()}/{quote(make(folder))}")
    assert blobs.denied(column).tolist() == [False]
    assert blobs.owned(column).field(0).to_pylist() == [b"fine"]


@pytest.mark.parametrize("tail", ["%00", "a%00b", "%ED%A0%80/../x", "..", "%2e%2e/secret.txt"])
def test_what_is_no_path_is_denied(folder: Path, tail: str) -> None:
    column = _column(f"{folder.as_uri()}/{tail}")
    assert ExternalBlobs([folder.as_uri()]).denied(column).tolist() == [True]
