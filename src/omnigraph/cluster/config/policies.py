"""Policy bundles: their text, and the graphs or the cluster that each is bound to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from omnigraph.cluster.addresses import Address
from omnigraph.cluster.config.files import Content, Files
from omnigraph.cluster.config.model import PolicyConfig
from omnigraph.cluster.config.names import resolve_graph
from omnigraph.cluster.config.shape import below
from omnigraph.cluster.diagnostics import Diagnostic, error
from omnigraph.policy import PolicyInvalidError, PolicyKind, read_bundle
from omnigraph.strict_yaml import quoted
from omnigraph.texts import on_one_line

CLUSTER: Final[Literal["cluster"]] = "cluster"
"""The target of a bundle that decides about the cluster instead of graphs."""

Target: TypeAlias = "Address | Literal['cluster']"


@dataclass(frozen=True)
class LoadedPolicy:
    """A bundle, none if it cannot be read; and its targets, sorted, each once."""

    content: Content | None
    targets: tuple[Target, ...]


class PolicyLoader:
    """Loads bundles, each scope of which may be bound once."""

    def __init__(self, files: Files, graph_ids: Iterable[str]) -> None:
        self._files = files
        self._graph_ids = frozenset(graph_ids)
        self._bound: dict[Target, str] = {}
        """Target to the name of its bundle."""

    def load(self, name: str, config: PolicyConfig) -> tuple[LoadedPolicy, list[Diagnostic]]:
        """Return what is known of a bundle, and what is wrong with it."""
        path = below("policies", name)
        found: list[Diagnostic] = []
        targets = self._targets(config.applies_to, f"{path}.applies_to", found)
        self._bind(name, targets, f"{path}.applies_to", found)
        content = self._content(config.file, targets, f"{path}.file", found)
        return LoadedPolicy(content, targets), found

    def _targets(
        self, applies_to: tuple[str, ...], path: str, found: list[Diagnostic]
    ) -> tuple[Target, ...]:
        if not applies_to:
            message = "name what the policy applies to: `cluster`, or graphs"
            found.append(error("policy_missing_applies_to", path, message))
        targets: set[Target] = set()
        for index, text in enumerate(applies_to):
            if text == CLUSTER:
                targets.add(CLUSTER)
                continue
            address, wrong = resolve_graph(text, self._graph_ids, f"{path}[{index}]")
            found += wrong
            if address is not None:
                targets.add(address)
        if CLUSTER in applies_to and len(set(applies_to)) > 1:
            message = "it applies to the cluster or to graphs, not to both; write two policies"
            found.append(error("policy_mixed_binding_kinds", path, message))
        return tuple(sorted(targets, key=str))

    def _bind(
        self, name: str, targets: tuple[Target, ...], path: str, found: list[Diagnostic]
    ) -> None:
        for target in targets:
            first = self._bound.setdefault(target, name)
            if first != name:
                message = f"{target} is bound by {quoted(first)} and by {quoted(name)}; keep one"
                found.append(error("duplicate_policy_binding", path, message))

    def _content(
        self, spelled: str, targets: tuple[Target, ...], path: str, found: list[Diagnostic]
    ) -> Content | None:
        content = self._files.read_declared(
            spelled, code="policy_file_missing", where=path, found=found
        )
        if content is None:
            return None
        reason = _problem_of(content, _kind_of(targets))
        if reason is not None:
            message = on_one_line(f"{content.path}: {reason}")
            found.append(error("policy_invalid", path, message))
        return content


def _kind_of(targets: tuple[Target, ...]) -> PolicyKind | None:
    """Return what a bundle has to fit; none if its targets do not say it."""
    if not targets or (CLUSTER in targets and len(targets) > 1):
        return None
    return PolicyKind.SERVER if CLUSTER in targets else PolicyKind.GRAPH


def _problem_of(content: Content, kind: PolicyKind | None) -> str | None:
    try:
        read_bundle(content.data.decode(), kind=kind)
    except UnicodeDecodeError:
        return "the text is not UTF-8"
    except PolicyInvalidError as problem:
        return problem.reason
    return None
