"""Bases of external blobs have one spelling, and nothing else passes for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.store.blob_bases import InvalidBlobBaseError, blob_bases


@pytest.mark.parametrize(
    ("spelled", "base"),
    [
        ("s3://lake", "s3://lake/"),
        ("S3://Lake/Pictures", "s3://lake/Pictures/"),
        ("s3://lake/pictures/", "s3://lake/pictures/"),
        ("gs://lake/pictures", "gs://lake/pictures/"),
        ("file:///", "file:///"),
    ],
)
def test_a_base_is_spelled_in_one_way(spelled: str, base: str) -> None:
    assert blob_bases([spelled, base]) == (base,)


def test_a_folder_of_this_machine_has_to_be_there(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    with pytest.raises(InvalidBlobBaseError, match="no such folder"):
        blob_bases([folder.as_uri()])
    folder.mkdir()
    assert blob_bases([folder.as_uri()]) == (f"{folder.as_uri()}/",)
    (folder / "file").touch()
    with pytest.raises(InvalidBlobBaseError, match="no such folder"):
        blob_bases([(folder / "file").as_uri()])


@pytest.mark.parametrize(
    ("spelled", "problem"),
    [
        ("", "absolute URL"),
        ("/", "absolute URL"),
        ("pictures", "absolute URL"),
        ("s3:///pictures", "no bucket"),
        ("https://lake/pictures", "absolute URL"),
        ("file://elsewhere/tmp", "no machine"),
        ("file:tmp", "absolute path"),
        (" s3://lake", "blanks"),
        ("s3://lake/a\\b", "backslash"),
        ("s3://lake/a\nb", "control character"),
        ("s3://lake/a/../b", "component"),
        ("s3://lake/./b", "component"),
        ("s3://lake/a//b", "component"),
        ("s3://lake//", "component"),
        ("s3://lake/%2e%2e/b", "component"),
        ("s3://lake/a%2Fb", "component"),
        ("s3://me@lake/a", "user or a port"),
        ("s3://lake:9000/a", "user or a port"),
        ("s3://lake/a?b", "query"),
        ("s3://lake/a#b", "fragment"),
        ("s3://lake/" + "a" * 65_536, "longer than 65536 bytes"),
    ],
)
def test_what_is_no_base_is_refused(spelled: str, problem: str) -> None:
    with pytest.raises(InvalidBlobBaseError, match=problem) as raised:
        blob_bases(["s3://lake/", spelled])
    assert raised.value.base == spelled.replace("me@", "***@")
    assert len(str(raised.value)) < 400
