"""What a node takes from its interfaces."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from omnigraph.names import RESERVED_NODE_PROPERTIES
from omnigraph.schema.language import codes
from omnigraph.schema.language.problems import Problem, Suggester
from omnigraph.schema.language.shape import ShapeInterface, ShapeProperty, ShapePropertyRef
from omnigraph.schema.language.tree import TypeRef
from omnigraph.syntax import Span


@dataclass(frozen=True)
class Implementation:
    """An interface of a node, and where the node names it."""

    interface: ShapeInterface
    span: Span


@dataclass(frozen=True)
class Resolved:
    """The interfaces of a node that exist; `is_complete` if these are all that it names."""

    implementations: tuple[Implementation, ...]
    problems: tuple[Problem, ...]
    is_complete: bool


def resolve_interfaces(
    references: Sequence[TypeRef],
    interfaces: Mapping[str, ShapeInterface],
    *,
    unread_names: Container[str],
    suggester: Suggester,
) -> Resolved:
    """Look up what a node implements; a repeated name counts once."""
    found: dict[str, Implementation] = {}
    problems: list[Problem] = []
    is_complete = True
    for reference in references:
        interface = interfaces.get(reference.name)
        if interface is not None:
            found.setdefault(reference.name, Implementation(interface, reference.span))
            continue
        is_complete = False
        if reference.name not in unread_names:
            message = f"implements unknown interface '{reference.name}'"
            hint = suggester.hint(reference.name, interfaces)
            problems.append(Problem(codes.INTERFACE_UNKNOWN, message, reference.span, hint))
    return Resolved(tuple(found.values()), tuple(problems), is_complete)


@dataclass
class _Expansion:
    """The effective properties of a node while they are put together."""

    properties: dict[str, ShapeProperty]
    injected_by: dict[str, str] = field(default_factory=dict)

    def take(self, implementation: Implementation, offered: ShapeProperty) -> Iterator[Problem]:
        """Add one property of an interface, or compare it with the one that is there."""
        present = self.properties.get(offered.name)
        if present is None:
            yield from self._inject(implementation, offered)
        elif present.declared_directly:
            yield from self._satisfy(implementation, offered, present)
        else:
            yield from self._share(implementation, offered, present)

    def _inject(self, implementation: Implementation, offered: ShapeProperty) -> Iterator[Problem]:
        if offered.name in RESERVED_NODE_PROPERTIES:
            message = (
                f"property name '{offered.name}' of interface "
                f"'{implementation.interface.name}' is reserved in nodes"
            )
            yield Problem(codes.PROPERTY_RESERVED, message, implementation.span)
        self.injected_by[offered.name] = implementation.interface.name
        self.properties[offered.name] = replace(
            offered, declared_directly=False, satisfies=_link((), implementation, offered)
        )

    def _satisfy(
        self, implementation: Implementation, offered: ShapeProperty, present: ShapeProperty
    ) -> Iterator[Problem]:
        if present.prop_type != offered.prop_type:
            message = (
                f"property '{offered.name}' has type {present.prop_type}, but interface "
                f"'{implementation.interface.name}' declares {offered.prop_type}"
            )
            hint = f"write `{offered.name}: {offered.prop_type}`, or leave the property out"
            yield Problem(codes.INTERFACE_TYPE, message, present.span, hint)
        self._add_link(implementation, offered, present)

    def _share(
        self, implementation: Implementation, offered: ShapeProperty, present: ShapeProperty
    ) -> Iterator[Problem]:
        if not _means_the_same(offered, present):
            other = self.injected_by[offered.name]
            message = (
                f"interfaces '{other}' and '{implementation.interface.name}' have incompatible "
                f"property semantics for '{offered.name}'"
            )
            hint = f"declare '{offered.name}' in the node, or give it one type and the same notes"
            yield Problem(codes.INTERFACE_CLASH, message, implementation.span, hint)
        renamed = replace(present, rename_from=present.rename_from or offered.rename_from)
        self._add_link(implementation, offered, renamed)

    def _add_link(
        self, implementation: Implementation, offered: ShapeProperty, present: ShapeProperty
    ) -> None:
        links = _link(present.satisfies, implementation, offered)
        self.properties[offered.name] = replace(present, satisfies=links)


def expand(
    own: Mapping[str, ShapeProperty], implementations: Sequence[Implementation]
) -> tuple[dict[str, ShapeProperty], list[Problem]]:
    """Return the effective properties of a node by name, and what does not fit together.

    Interfaces are taken in name order, so the order in which a node lists them means nothing.
    """
    expansion = _Expansion(dict(own))
    problems: list[Problem] = []
    for implementation in sorted(implementations, key=lambda item: item.interface.name):
        for offered in implementation.interface.properties:
            problems += expansion.take(implementation, offered)
    return expansion.properties, problems


def _link(
    links: tuple[ShapePropertyRef, ...], implementation: Implementation, offered: ShapeProperty
) -> tuple[ShapePropertyRef, ...]:
    return tuple(sorted((*links, ShapePropertyRef(implementation.interface.name, offered.name))))


def _means_the_same(one: ShapeProperty, other: ShapeProperty) -> bool:
    """Compare type and annotations; a rename hint counts only against a different one."""
    hints = {one.rename_from, other.rename_from} - {None}
    return len(hints) < 2 and _meaning(one) == _meaning(other)


def _meaning(item: ShapeProperty) -> tuple[object, ...]:
    return item.prop_type, item.annotations, item.property_constraints, item.embed
