"""`omnigraph policy …`: check a bundle, run its tests, explain a decision."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import ConflictingAddressError, Scope, resolve_cluster
from omnigraph.cli.commands.served.applied import applied_revision
from omnigraph.cli.options.flags import ScopedGroup, flags
from omnigraph.cli.output.streams import say

if TYPE_CHECKING:
    from omnigraph.policy import Policy

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.group("policy", cls=ScopedGroup)
def command() -> None:
    """Check a policy, run its tests, explain a decision."""


def _bundle_options(call: Callable[..., None]) -> Callable[..., None]:
    """Add what names a bundle; `--graph` is a global option."""
    kind = click.option(
        "--kind",
        type=click.Choice(["graph", "server"]),
        default="graph",
        show_default=True,
        help="What the policy of a file is for; a cluster records it.",
    )
    path = click.option(
        "--policy", "path", type=_FILE, help="A file, instead of a policy that a cluster applies."
    )
    return path(kind(call))


def _loaded(path: Path | None, kind: str) -> tuple[Policy, str]:
    """Return the policy and the name of its bundle."""
    from omnigraph.policy import Policy, PolicyKind  # noqa: PLC0415 loads the reader of YAML

    if path is None:
        return _applied(_cluster())
    given = flags()
    for flag in ("cluster", "profile"):
        if given.get(flag) is not None:
            raise ConflictingAddressError(
                f"--policy and --{flag} are mutually exclusive: give one of them"
            )
    graph_id = given.get("graph") or "default"
    return Policy.load(path, kind=PolicyKind(kind), graph_id=graph_id), path.stem


def _cluster() -> Scope:
    try:
        return resolve_cluster()
    except ConflictingAddressError as error:
        raise ConflictingAddressError(f"{error.problem}, or `--policy FILE`") from error


def _applied(scope: Scope) -> tuple[Policy, str]:
    """Return the bundle that is bound to the picked graph, else the only one."""
    from omnigraph.cluster.applied import GraphNotAppliedError  # noqa: PLC0415 a heavy room
    from omnigraph.policy import Policy, PolicyKind  # noqa: PLC0415

    revision = applied_revision(scope)
    bundles = revision.policies
    if scope.graph is not None:
        if scope.graph not in {*revision.graphs, *revision.quarantined}:
            raise GraphNotAppliedError(scope.graph, revision.root, tuple(revision.graphs))
        bundles = tuple(one for one in bundles if f"graph.{scope.graph}" in one.applies_to)
    if len(bundles) != 1:
        where = revision.root if scope.graph is None else f"graph '{scope.graph}'"
        if not bundles:
            raise ConflictingAddressError(
                f"no policy is applied for {where}: declare one in cluster.yaml,"
                " then `omnigraph cluster apply`"
            )
        names = ", ".join(one.name for one in bundles)
        raise ConflictingAddressError(
            f"{where} has {len(bundles)} policies ({names}): pick one with `--graph <id>`"
        )
    [bundle] = bundles
    kind = PolicyKind.SERVER if bundle.is_of_cluster else PolicyKind.GRAPH
    return Policy.parse(bundle.text, kind=kind, graph_id=scope.graph or "default"), bundle.name


@command.command("validate")
@_bundle_options
def validate(path: Path | None, kind: str) -> None:
    """Check a policy."""
    from omnigraph.policy.cases import validate_line  # noqa: PLC0415

    say(validate_line(*_loaded(path, kind)))


@command.command("test")
@_bundle_options
@click.option("--tests", required=True, type=_FILE, help="The file of cases.")
def test(path: Path | None, kind: str, tests: Path) -> None:
    """Run the cases of a file against a policy; exit code 1 if one fails."""
    from omnigraph.policy.cases import load_cases, run_cases  # noqa: PLC0415

    policy, _ = _loaded(path, kind)
    report = run_cases(policy, load_cases(tests))
    say("\n".join(report.lines()), err=not report.passed)
    sys.exit(0 if report.passed else 1)


@command.command("explain")
@_bundle_options
@click.option("--actor", required=True, help="Who asks.")
@click.option("--action", required=True, help="What for, such as `change` or `branch-merge`.")
@click.option("--branch", help="The branch of the request.")
@click.option("--target-branch", help="The branch that is made, deleted or merged into.")
def explain(
    path: Path | None,
    kind: str,
    actor: str,
    action: str,
    branch: str | None,
    target_branch: str | None,
) -> None:
    """Show what a policy decides, and by which rule; a denial is no error."""
    from omnigraph.policy.cases import explain_lines  # noqa: PLC0415

    policy, _ = _loaded(path, kind)
    say("\n".join(explain_lines(policy, actor, action, branch, target_branch)))
