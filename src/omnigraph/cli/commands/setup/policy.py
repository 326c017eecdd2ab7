"""`omnigraph policy …`: check a bundle, run its tests, explain a decision."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omnigraph.cli.address import ConflictingAddressError, ScopeUnavailableError
from omnigraph.cli.options.flags import ScopedGroup, flags
from omnigraph.cli.output.streams import say

if TYPE_CHECKING:
    from omnigraph.policy import Policy

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class ClusterPolicyError(ScopeUnavailableError):
    """The policies of a cluster cannot be read yet."""

    hint = "give `--policy FILE`"


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
        help="What the policy is for.",
    )
    return click.option("--policy", "path", type=_FILE, help="The file of the policy.")(kind(call))


def _loaded(path: Path | None, kind: str) -> tuple[Policy, str]:
    """Return the policy and the name of its bundle."""
    from omnigraph.policy import Policy, PolicyKind  # noqa: PLC0415 loads the reader of YAML

    scope = flags()
    for flag in ("cluster", "profile"):
        target = scope.get(flag)
        if target is not None:
            raise ClusterPolicyError("cluster", target)
    if path is None:
        raise ConflictingAddressError("policy needs a bundle: give `--policy FILE`")
    graph_id = scope.get("graph") or "default"
    return Policy.load(path, kind=PolicyKind(kind), graph_id=graph_id), path.stem


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
