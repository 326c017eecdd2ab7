"""What a clause can name, parameters and variables, and the reporter of its problems."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, replace
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.names import nearest_name
from omnigraph.query.language.tree import Parameter
from omnigraph.query.plan.plan import EntityKind, EnumUse
from omnigraph.schema.catalog import Catalog, EntityType, Property
from omnigraph.syntax import Diagnostic, Phase, SourceText, Span

WILDCARD: Final = "_"
UNNAMED: Final = "the query"
"""The subject of a read that is `match … return …` alone."""
_SHOWN_MAX: Final = 8

_NOTHING: Final[Mapping[str, Property]] = {}


@dataclass
class Reporter:
    """Collects the problems of one query."""

    source: SourceText
    subject: str
    found: list[Diagnostic] = field(default_factory=list)

    def error(self, code: str, message: str, span: Span, hint: str | None = None) -> None:
        """Note a problem."""
        self.found.append(
            Diagnostic(
                code, Phase.TYPE, f"{code}: {message}", self.source, span, hint, self.subject
            )
        )

    @property
    def has_head(self) -> bool:
        """Whether the query has a name and parameters, or is `match … return …` alone."""
        return self.subject != UNNAMED

    def text(self, span: Span) -> str:
        """Return what was written in a span, on one line."""
        return " ".join(self.source.text[span.start : span.end].split())


@dataclass(frozen=True)
class Context:
    """What stays the same all over one query."""

    catalog: Catalog
    parameters: Mapping[str, Parameter]
    report: Reporter
    enum_uses: dict[str, list[EnumUse]] = field(default_factory=dict)
    """The enum properties that parameters are compared with, by the name of the parameter."""


@dataclass(frozen=True, slots=True)
class Bound:
    """A variable in scope.

    `name` is its spelling in the plan. `entity` is None when a mistake hides the type: such a
    variable accepts everything, so that one mistake is reported once. `optional_level` is the
    nesting level at which an optional block introduced it.
    """

    name: str
    kind: EntityKind
    entity: EntityType | None
    nullable: bool = False
    optional_level: int | None = None

    @property
    def type_name(self) -> str | None:
        """The name of the type, if known."""
        return self.entity.name if self.entity else None

    @property
    def properties(self) -> Mapping[str, Property]:
        """The properties of the type, empty when it is not known."""
        return self.entity.properties if self.entity else _NOTHING

    @property
    def declared_order(self) -> tuple[str, ...]:
        """The names of the properties in the order of the schema's text."""
        order = self.entity.declared_order if self.entity else ()
        return order or tuple(self.properties)


@dataclass
class Scope:
    """The variables that a block can see.

    `around` holds the names that the blocks around this one use anywhere, before or after it, and
    `outside` those around the nearest `not` block: a local variable with such a name gets another
    spelling in the plan.
    """

    variables: dict[str, Bound] = field(default_factory=dict)
    level: int = 0
    around: frozenset[str] = frozenset()
    outside: frozenset[str] = frozenset()
    _renamed: list[str] = field(default_factory=list)

    def inner(self, own_names: frozenset[str], *, is_negated: bool) -> Scope:
        """Return the scope of a block inside; `own_names` are all that the block around uses."""
        around = self.around | own_names
        return Scope(
            dict(self.variables),
            self.level + 1,
            around,
            around if is_negated else self.outside,
            self._renamed,
        )

    def introduce(self, name: str, kind: EntityKind, entity: EntityType | None) -> Bound:
        """Add a variable that is new here."""
        plan_name = self.unique_name(name) if name in self.outside else name
        bound = Bound(plan_name, kind, entity)
        self.variables[name] = bound
        return bound

    def unique_name(self, name: str) -> str:
        """Return a spelling for the plan that nothing else in the query has."""
        self._renamed.append(name)
        return f"{name}#{len(self._renamed)}"

    def adopt_optional(self, inner: Scope) -> None:
        """Take over what an optional block introduced; outside of it, it may be null."""
        for name, bound in inner.variables.items():
            if name not in self.variables:
                self.variables[name] = replace(bound, nullable=True, optional_level=self.level)


def suggestion(
    name: str, candidates: Iterable[str], *, what: str, spell: Callable[[str], str] = str
) -> str | None:
    """Return a hint that names what was probably meant, or else what there is."""
    known = sorted(set(candidates))
    nearest = nearest_name(name, known)
    if nearest is not None and nearest != name:
        return f"did you mean `{spell(nearest)}`?"
    if not known:
        return None
    shown = ", ".join(f"`{spell(other)}`" for other in known[:_SHOWN_MAX])
    return f"{what}: {shown}" + (", …" if len(known) > _SHOWN_MAX else "")


def with_dollar(name: str) -> str:
    """Spell a variable."""
    return f"${name}"
