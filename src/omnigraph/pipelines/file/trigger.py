"""`trigger:` makes a pipeline a stream; this says what a stream may declare.

With a trigger every source is read bit by bit, unless it says `stream: false`: then it is read
whole in every micro-batch, for joins. A type of another graph is followed: its changes are applied.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from omnigraph.pipelines.diagnostics import Findings
from omnigraph.pipelines.file.model import LoadStep, PipelineFile, Publish, Source, Trigger
from omnigraph.pipelines.file.shape import Shape
from omnigraph.pipelines.file.view_order import sources_of

_NOT_FOLLOWED: Final = frozenset(
    {"versionasof", "timestampasof", "endingversion", "query", "filter", "fragmentsperpartition"}
)
"""Options of a graph that contradict a read of its changes."""


def read_trigger(shape: Shape, absolute: Callable[[str], str]) -> Trigger | None:
    """Read when a stream looks for new rows."""
    entries = shape.entries(optional=("every", "available_now", "checkpoint"))
    if entries is None:
        return None
    if ("every" in entries) == ("available_now" in entries):
        shape.wrong("expected one of 'every' and 'available_now'", "missing_key")
        return None
    checkpoint = absolute(entries["checkpoint"].text()) if "checkpoint" in entries else None
    if "every" in entries:
        return Trigger(entries["every"].duration_s(), checkpoint)
    if not entries["available_now"].is_true():
        entries["available_now"].wrong("expected true; without a stream leave 'trigger' out")
    return Trigger(None, checkpoint)


def check_stream(file: PipelineFile, findings: Findings) -> PipelineFile:
    """Refuse what a stream cannot do; sources of a file without a trigger are no streams."""
    if file.trigger is None:
        for name, source in file.sources.items():
            path = f"sources.{name}.stream"
            if path in findings.locations:
                message = "'stream' goes with 'trigger'"
                findings.error("unknown_key", path, message, at_key=True)
            file = _with_source(file, replace(source, is_stream=False))
        return file
    streams = [source for source in file.sources.values() if source.is_stream]
    if file.sources and not streams:
        message = "no source is a stream: one at least must not say 'stream: false'"
        findings.error("wrong_value", "trigger", message, at_key=True)
    for source in file.sources.values():
        _check_source(file, source, findings)
    for step in file.load:
        _check_step(file, step, findings)
    if file.target.publish is Publish.BRANCH:
        message = (
            "a stream publishes every micro-batch, so the next one can build on it: use merge or"
            " direct"
        )
        findings.error("wrong_value", "target.publish", message)
    if file.trigger.checkpoint is None and _is_remote(file.target.graph):
        message = "'checkpoint' is missing: a graph in object storage has no folder next to it"
        findings.error("missing_key", "trigger", message, at_key=True)
    return file


def _with_source(file: PipelineFile, source: Source) -> PipelineFile:
    return replace(file, sources={**file.sources, source.name: source})


def _is_remote(place: str) -> bool:
    return "://" in place and not place.startswith("file:")


def _check_source(file: PipelineFile, source: Source, findings: Findings) -> None:
    path = f"sources.{source.name}"
    if source.incremental is not None:
        message = "'incremental' is for runs without a trigger: a stream reads only what is new"
        findings.error("wrong_value", f"{path}.incremental", message, at_key=True)
    if not source.is_stream:
        return
    if source.format == "jdbc":
        message = "a source of format jdbc is no stream: say 'stream: false' to read it whole"
        findings.error("not_supported", path, message, at_key=True)
    if len(source.paths) > 1:
        message = "a stream reads one path: use a folder or a pattern"
        findings.error("wrong_value", f"{path}.path", message)
    if source.is_followed:
        _check_followed(file, source, findings)


def _check_followed(file: PipelineFile, source: Source, findings: Findings) -> None:
    path = f"sources.{source.name}"
    options = {name.lower(): value for name, value in source.options.items()}
    if not {"node", "edge"} & options.keys():
        message = "a stream of a graph follows one type: give the option 'node' or 'edge'"
        findings.error("not_supported", path, message, at_key=True)
    refused = [name for name in source.options if name.lower() in _NOT_FOLLOWED]
    for name in refused:
        message = f"a stream reads changes as they come: leave the option '{name}' out"
        findings.error("wrong_value", f"{path}.options.{name}", message, at_key=True)
    commits_max = options.get("maxcommitspertrigger", "1")
    if not commits_max.isdecimal() or commits_max.strip("0") == "":
        message = f"expected a whole number above zero, found '{commits_max}'"
        findings.error("wrong_value", f"{path}.options", message)
    is_target = source.paths == (file.target.graph,)
    if is_target and options.get("branch", "main") == file.target.branch:
        message = "the source is the target: every micro-batch would cause the next one"
        findings.error("wrong_value", f"{path}.path", message)


def _check_step(file: PipelineFile, step: LoadStep, findings: Findings) -> None:
    """Refuse modes that would lose or repeat rows."""
    path = f"{step.path}.mode"
    read = [file.sources[name] for name in sources_of(step.source, file.sources, file.views)]
    streams = sorted(source.name for source in read if source.is_stream)
    followed = sorted(source.name for source in read if source.is_followed)
    if streams and step.mode == "overwrite":
        message = f"'{streams[0]}' is a stream, and an overwrite would drop all earlier rows"
        findings.error("wrong_value", path, message)
    elif followed and step.mode == "append":
        message = f"rows of '{followed[0]}' change, so the mode must be merge"
        findings.error("wrong_value", path, message)
    elif read and not streams and step.mode == "append":
        message = f"'{step.source}' is read whole in every micro-batch: the mode must be merge"
        findings.error("wrong_value", path, message)
