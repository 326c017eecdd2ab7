"""The schema language: text, catalog, identities, and migrations.

| from | to | by |
|---|---|---|
| text | everything below at once | `compile_schema` |
| compiled schema | catalog | `derive_catalog` |
| accepted and desired schema | steps with their cost | `plan_migration`, `plan_schema` |
| stored schema | compiled schema, or a conflict | `open_contract` |
"""

from omnigraph.schema.catalog import (
    Catalog,
    EdgeType,
    EntityType,
    InterfaceType,
    NodeType,
    Property,
)
from omnigraph.schema.compile import (
    CompiledSchema,
    PlannedSchema,
    compile_schema,
    compile_stored,
    plan_schema,
)
from omnigraph.schema.ir.derive import derive_catalog
from omnigraph.schema.ir.drift import SchemaDriftError, open_contract, schema_file_warning
from omnigraph.schema.ir.identity import IdentityResolutionError
from omnigraph.schema.ir.model import SchemaIR, TableIdentity
from omnigraph.schema.ir.read import read_ir
from omnigraph.schema.ir.state import SchemaState
from omnigraph.schema.migration.plan import MigrationPlan, UnsupportedMigrationError, plan_migration
from omnigraph.syntax import SourceText

__all__ = [
    "Catalog",
    "CompiledSchema",
    "EdgeType",
    "EntityType",
    "IdentityResolutionError",
    "InterfaceType",
    "MigrationPlan",
    "NodeType",
    "PlannedSchema",
    "Property",
    "SchemaDriftError",
    "SchemaIR",
    "SchemaState",
    "SourceText",
    "TableIdentity",
    "UnsupportedMigrationError",
    "compile_schema",
    "compile_stored",
    "derive_catalog",
    "open_contract",
    "plan_migration",
    "plan_schema",
    "read_ir",
    "schema_file_warning",
]
