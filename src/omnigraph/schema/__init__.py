"""The schema language: text, catalog, identities, and migrations.

| from | to | by |
|---|---|---|
| text | everything below at once | `compile_schema` |
| compiled schema | catalog | `derive_catalog` |
| accepted and desired schema | steps with their cost | `plan_migration`, `plan_schema` |
| stored schema | compiled schema, or a conflict | `open_contract` |
| two schemas of one graph | what differs, by identity | `schema_difference` |
| base, source and target | the merged schema, or its conflicts | `merge_schemas` |
| stored and wanted form of a type | where each column comes from | `map_type` |

Names are loaded when they are first used: most calls need few of them.
"""

from typing import TYPE_CHECKING

from omnigraph.late import late_names

if TYPE_CHECKING:
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
        stored_catalog,
    )
    from omnigraph.schema.difference import schema_difference
    from omnigraph.schema.ir.aliases import Aliases
    from omnigraph.schema.ir.derive import derive_catalog
    from omnigraph.schema.ir.drift import SchemaDriftError, open_contract, schema_file_warning
    from omnigraph.schema.ir.identity import IdentityResolutionError
    from omnigraph.schema.ir.model import SchemaIR, TableIdentity
    from omnigraph.schema.ir.read import read_ir
    from omnigraph.schema.ir.state import SchemaState
    from omnigraph.schema.mapping import ColumnMapping, TypeMapping, map_type
    from omnigraph.schema.merge.merge import merge_schemas
    from omnigraph.schema.merge.model import (
        AcceptedTexts,
        Dropped,
        MergedSchema,
        SchemaChoices,
        SchemaConflict,
    )
    from omnigraph.schema.migration.plan import (
        MigrationPlan,
        UnsupportedMigrationError,
        plan_migration,
    )
    from omnigraph.syntax import SourceText


__all__ = [
    "AcceptedTexts",
    "Aliases",
    "Catalog",
    "ColumnMapping",
    "CompiledSchema",
    "Dropped",
    "EdgeType",
    "EntityType",
    "IdentityResolutionError",
    "InterfaceType",
    "MergedSchema",
    "MigrationPlan",
    "NodeType",
    "PlannedSchema",
    "Property",
    "SchemaChoices",
    "SchemaConflict",
    "SchemaDriftError",
    "SchemaIR",
    "SchemaState",
    "SourceText",
    "TableIdentity",
    "TypeMapping",
    "UnsupportedMigrationError",
    "compile_schema",
    "compile_stored",
    "derive_catalog",
    "map_type",
    "merge_schemas",
    "open_contract",
    "plan_migration",
    "plan_schema",
    "read_ir",
    "schema_difference",
    "schema_file_warning",
    "stored_catalog",
]

__getattr__ = late_names(
    __name__,
    {
        "omnigraph.schema.catalog": "Catalog EdgeType EntityType InterfaceType NodeType Property",
        "omnigraph.schema.compile": (
            "CompiledSchema PlannedSchema compile_schema compile_stored plan_schema stored_catalog"
        ),
        "omnigraph.schema.difference": "schema_difference",
        "omnigraph.schema.ir.aliases": "Aliases",
        "omnigraph.schema.ir.derive": "derive_catalog",
        "omnigraph.schema.ir.drift": "SchemaDriftError open_contract schema_file_warning",
        "omnigraph.schema.ir.identity": "IdentityResolutionError",
        "omnigraph.schema.ir.model": "SchemaIR TableIdentity",
        "omnigraph.schema.ir.read": "read_ir",
        "omnigraph.schema.ir.state": "SchemaState",
        "omnigraph.schema.mapping": "ColumnMapping TypeMapping map_type",
        "omnigraph.schema.merge.merge": "merge_schemas",
        "omnigraph.schema.merge.model": (
            "AcceptedTexts Dropped MergedSchema SchemaChoices SchemaConflict"
        ),
        "omnigraph.schema.migration.plan": "MigrationPlan UnsupportedMigrationError plan_migration",
        "omnigraph.syntax": "SourceText",
    },
    globals(),
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
