"""The output that every command of a cluster has: its findings, and whether it succeeded."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import NoReturn

from omnigraph.cli.output.output import Output
from omnigraph.cluster.diagnostics import Diagnostic, has_errors
from omnigraph.records import to_json


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
