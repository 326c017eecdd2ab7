"""From text to everything that the engine knows about a schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from functools import cached_property, lru_cache
from typing import Final

from omnigraph.dataclass import dataclass
from omnigraph.display import Display, Displayed
from omnigraph.errors import ConflictError
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.ir.derive import WrittenOrder, derive_catalog
from omnigraph.schema.ir.drift import DriftFinding, SchemaDriftError
from omnigraph.schema.ir.model import SchemaIR
from omnigraph.schema.ir.state import SchemaState
from omnigraph.schema.language.canonical import shape_hash
from omnigraph.schema.language.shape import SchemaShape
from omnigraph.schema.late import checking, identities, planning
from omnigraph.syntax import SourceText

_SCHEMAS_CACHED_MAX: Final = 32


class IdentityDomainError(ConflictError):
    """A schema was compiled for one graph against the accepted schema of another."""

    code = "OG-SCHEMA-DOMAIN"
    hint = "`omnigraph schema plan --schema FILE` compares with the right one"
    template = (
        "the accepted schema belongs to identity domain {accepted}, not to {domain}; "
        "compile against the accepted schema of the same graph"
    )
    domain: str
    accepted: str


@dataclass(frozen=True, repr=False)
class CompiledSchema(Displayed):
    """A schema in all its forms: as written, without and with identities, and as a catalog."""

    source: SourceText
    shape: SchemaShape
    ir: SchemaIR
    catalog: Catalog = field(compare=False, repr=False)

    def _display(self) -> Display:
        return self.catalog._display()

    @property
    def ir_hash(self) -> str:
        """`sha256:<hex>` of the compiled schema."""
        return self.ir.ir_hash

    @cached_property
    def shape_hash(self) -> str:
        """`sha256:<hex>` of the schema without identities."""
        return shape_hash(self.shape)

    @property
    def state(self) -> SchemaState:
        """The record to store next to the compiled schema."""
        return SchemaState(
            schema_shape_hash=self.shape_hash,
            schema_ir_hash=self.ir_hash,
            schema_identity_domain=self.ir.schema_identity_domain,
        )


@dataclass(frozen=True, repr=False)
class PlannedSchema(Displayed):
    """A desired schema, compiled, and the plan that leads to it from the accepted one.

    `numbers_given` is how many numbers the desired schema has taken for what is new in it: an apply
    plans once to learn how many it has to reserve.
    """

    desired: CompiledSchema
    plan: planning.MigrationPlan
    numbers_given: int = 0

    def _display(self) -> Display:
        return self.plan._display()


def compile_schema(
    text: str | SourceText,
    *,
    domain: str,
    accepted: SchemaIR | None = None,
    free: Iterator[int] | None = None,
) -> CompiledSchema:
    """Compile a `.pg` text, with the identities of the accepted schema if there is one.

    `domain` is the ULID under which the graph numbers its types. `free` are the numbers to give
    out, which no branch of the graph has. Raises `SourceError` with every problem of the text, or
    of its rename hints.

    >>> compiled = compile_schema("node Station { code: String @key }", domain="01J" + "0" * 23)
    >>> compiled.catalog.node_types["Station"].key
    ('code',)
    >>> compiled.ir.next_identity_id
    4
    """
    if accepted is not None and accepted.schema_identity_domain != domain:
        raise IdentityDomainError(domain=domain, accepted=accepted.schema_identity_domain)
    source = SourceText(text) if isinstance(text, str) else text
    shape = checking.read_schema(source)
    ir = identities.resolve_identities(
        shape, accepted=accepted, domain=domain, source=source, free=free
    )
    return CompiledSchema(source, shape, ir, derive_catalog(ir, WrittenOrder(shape)))


def stored_catalog(text: str, ir: SchemaIR) -> Catalog:
    """Return the catalog of the accepted schema of a graph, without reading its text.

    The text is read when the order of properties is asked for.
    """
    return derive_catalog(ir, StoredOrder(text, ir))


@dataclass(frozen=True)
class StoredOrder:
    """The order of properties in the accepted text, which is read when it is asked for."""

    text: str
    ir: SchemaIR = field(repr=False)

    def of(self, table_key: str) -> tuple[str, ...]:
        """Return the names of the properties of a type in the order of the text."""
        return self._written.of(table_key)

    @cached_property
    def _written(self) -> WrittenOrder:
        return WrittenOrder(compile_stored(self.text, self.ir).shape)


def compile_stored(text: str, ir: SchemaIR) -> CompiledSchema:
    """Compile the accepted text of a graph again, with the identities that it has.

    Handles of one process share the result. Text and compiled schema are stored side by side; if
    they disagree, that is drift.
    """
    return _compile_stored(_Stored(text, ir.ir_hash, ir))


def plan_schema(
    text: str | SourceText,
    *,
    accepted: SchemaIR,
    allow_data_loss: bool = False,
    row_counts: Mapping[str, int] | None = None,
    free: Iterator[int] | None = None,
) -> PlannedSchema:
    """Compile a desired text against the accepted schema and plan the migration.

    Only an apply needs `free`, the numbers that it has reserved: they are in no step.
    """
    domain = accepted.schema_identity_domain
    desired = compile_schema(text, domain=domain, accepted=accepted, free=free)
    plan = planning.plan_migration(
        accepted=accepted,
        desired=desired.ir,
        allow_data_loss=allow_data_loss,
        row_counts=row_counts,
    )
    return PlannedSchema(desired, plan, len(desired.ir.numbers - accepted.numbers))


@dataclass(frozen=True)
class _Stored:
    """Cache key: the text and the hash stand for the schema, which is costly to hash itself."""

    text: str
    ir_hash: str
    ir: SchemaIR = field(compare=False)


@lru_cache(maxsize=_SCHEMAS_CACHED_MAX)
def _compile_stored(stored: _Stored) -> CompiledSchema:
    domain = stored.ir.schema_identity_domain
    compiled = compile_schema(stored.text, domain=domain, accepted=stored.ir)
    if compiled.ir != stored.ir:
        problem = "the stored text does not compile to the stored compiled schema"
        raise SchemaDriftError([DriftFinding("S409", problem)])
    return compiled
