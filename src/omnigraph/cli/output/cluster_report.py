"""The output that every command of a cluster has: its findings, and whether it succeeded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NoReturn

from omnigraph.cli.output.output import Output
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import Diagnostic, has_errors
from omnigraph.records import to_json

if TYPE_CHECKING:
    from omnigraph.cluster.commands.frame import Report


def end_with_report(
    *,
    config_dir: str,
    diagnostics: Sequence[Diagnostic],
    lines: Iterable[str],
    members: Mapping[str, object],
    as_json: bool,
) -> NoReturn:
    """Print the findings, then the result, and exit: 1 if one of the findings is an error.

    `lines` is the result for people, `members` are its further members in JSON.
    """
    is_ok = not has_errors(diagnostics)
    shape = {
        "ok": is_ok,
        "config_dir": config_dir,
        "diagnostics": [to_json(found) for found in diagnostics],
        **members,
    }
    text = "\n".join([*map(str, diagnostics), *lines])
    Output(as_json=as_json).result(text, shape)
    sys.exit(0 if is_ok else 1)


def end_with(config_dir: str, report: Report, *, as_json: bool) -> NoReturn:
    """Print the report of a command on stored state, and exit."""
    end_with_report(
        config_dir=config_dir,
        diagnostics=report.diagnostics,
        lines=report.lines,
        members=report.members,
        as_json=as_json,
    )


def digests_json(desired: Desired) -> dict[str, str]:
    """Return the digest of each declared resource by its address."""
    return {str(address): resource.digest for address, resource in desired.resources.items()}


def resources_json(desired: Desired) -> list[dict[str, str]]:
    """Return each declared resource, with the path of its file if it has one."""
    return [
        {
            "address": str(resource.address),
            "kind": str(resource.address.kind),
            "digest": resource.digest,
            **({} if resource.path is None else {"path": resource.path}),
        }
        for resource in desired.resources.values()
    ]


def dependencies_json(desired: Desired) -> list[dict[str, str]]:
    """Return which resource needs which."""
    return [{"from": str(each.source), "to": str(each.target)} for each in desired.dependencies]
