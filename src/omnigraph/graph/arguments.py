"""Arguments of calls, checked before anything is read."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TypeVar

from omnigraph.errors import InvalidInputError
from omnigraph.graph.late import lineage_record
from omnigraph.manifest import GraphCommit, ReadTarget
from omnigraph.names import ArgumentError, check_commit_texts
from omnigraph.progress import Report
from omnigraph.query import QueryText
from omnigraph.syntax.given import given_source
from omnigraph.syntax.source import SourceText

T = TypeVar("T")


class TwoTargetsError(InvalidInputError):
    """A read was given both a branch and another target."""

    code = "OG-TWO-TARGETS"
    hint = "give one of them"
    template = "`branch` and `target` both say what to read"


def one_target(target: T | None, branch: str | None) -> T | ReadTarget | None:
    """Return what is read: a target, or a branch by its name."""
    if branch is None:
        return target
    if target is not None:
        raise TwoTargetsError
    return ReadTarget.branch(branch)


def query_text(given: QueryText | os.PathLike[str]) -> QueryText:
    """Return a text of queries; a path is that of a file, a text never is."""
    if isinstance(given, os.PathLike):
        return given_source(given, suffix=".gq", letter="Q")
    if not isinstance(given, str | bytes | SourceText):
        raise ArgumentError.of("the query", "a text, or the `Path` of a file", given)
    return given


def root_of(uri: str | os.PathLike[str]) -> str:
    """Return where a graph is, as a text."""
    if not isinstance(uri, str | os.PathLike):
        raise ArgumentError.of("uri", "a path or an address, such as s3://bucket/graph", uri)
    return str(uri)


def commit_id_of(commit: str | GraphCommit) -> str:
    """Return the id of a commit, which may be given by itself."""
    return commit.graph_commit_id if isinstance(commit, GraphCommit) else commit


def check_commit(message: str | None, properties: Mapping[str, str] | None) -> None:
    """Refuse what a commit cannot store, and properties that only the engine writes."""
    check_commit_texts(message=message, properties=properties)
    lineage_record.check_properties(properties)


def checked_progress(progress: bool | Report) -> bool | Report:
    """Return how progress is shown, or refuse it."""
    if not isinstance(progress, bool) and not callable(progress):
        raise ArgumentError.of("progress", "True, False or a function", progress)
    return progress
