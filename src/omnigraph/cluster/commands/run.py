"""From a folder to a report: load what is declared, open the storage, run a command."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from omnigraph.cluster.commands.frame import Report, Workplace, open_workplace
from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import DiagnosedError, Diagnostic, has_errors
from omnigraph.cluster.load_desired import load_desired
from omnigraph.cluster.load_header import load_header


def run_declared(
    config_dir: str,
    command: Callable[[Desired, Workplace], Report],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Run a command that needs everything that is declared.

    A folder with errors is reported; its storage is not looked at, and nothing is locked.
    """
    desired = load_desired(config_dir)
    return _run(
        desired.storage,
        desired.diagnostics,
        lambda workplace: command(desired, workplace),
        storage_options,
    )


def run_stored(
    config_dir: str,
    command: Callable[[Workplace, tuple[Diagnostic, ...]], Report],
    *,
    storage_options: Mapping[str, str] | None = None,
) -> Report:
    """Run a command that needs only to know where the cluster is stored."""
    header = load_header(config_dir)
    found = header.diagnostics
    storage = None if has_errors(found) else header.storage
    return _run(storage, found, lambda workplace: command(workplace, found), storage_options)


def _run(
    storage: str | None,
    diagnostics: tuple[Diagnostic, ...],
    command: Callable[[Workplace], Report],
    storage_options: Mapping[str, str] | None,
) -> Report:
    if not storage:
        return Report(diagnostics, {})
    try:
        workplace = open_workplace(storage, storage_options=storage_options)
    except DiagnosedError as problem:
        return Report((*diagnostics, problem.diagnostic), {})
    return command(workplace)
