"""A graph as a destination of dlt: every package is one commit, and lands once.

```python
import dlt
from omnigraph.integrations.dlt import graph

known = {"edge": "Knows", "src": "follower", "dst": "followee"}
target = graph("social.omni", map={"people": "Person", "follows": known})
dlt.pipeline("social", destination=target).run(people(), table_name="people")
```

dlt hands over files one by one and says when a package is complete. Files are left where they are
until then: what is loaded is read from the package itself, so a process that dies in between loses
nothing, and the next one finds the same files.
"""

import dataclasses
import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final, Optional, Self

import dlt
from dlt.common.configuration import configspec
from dlt.common.configuration.container import Container
from dlt.common.destination import Destination, DestinationCapabilitiesContext
from dlt.common.destination.client import (
    DestinationClientConfiguration,
    JobClientBase,
    LoadJob,
    PreparedTableSchema,
)
from dlt.common.destination.exceptions import DestinationTerminalException
from dlt.common.schema import TSchemaTables
from dlt.common.schema.utils import get_write_disposition, is_dlt_table_or_column
from dlt.common.storages.load_package import (
    LoadPackageStateInjectableContext,
    PackageStorage,
    ParsedLoadJobFileName,
)
from dlt.destinations.job_impl import FinalizedLoadJob

from omnigraph.errors import InvalidInputError
from omnigraph.graph import Graph
from omnigraph.integrations.package import (
    MODES,
    Package,
    PackageTable,
    TableMapError,
    load_package,
    read_targets,
)

NAMESPACE: Final = "dlt"
_FORMAT: Final = "parquet"


@configspec
class GraphConfiguration(DestinationClientConfiguration):  # type: ignore[misc]  # dlt is optional
    """Which graph is loaded, and what its tables become."""

    destination_type: Final[str] = dataclasses.field(
        default="omnigraph", init=False, repr=False, compare=False
    )
    uri: str = ""
    map: Any = None
    branch: str = "main"
    actor_id: Optional[str] = None  # noqa: UP045 - dlt reads annotations of this form


class GraphClient(JobClientBase):  # type: ignore[misc]  # dlt is optional
    """Loads the packages of one schema."""

    config: GraphConfiguration

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Do nothing: a graph is made by `omnigraph init`, with its schema."""

    def is_storage_initialized(self) -> bool:
        """Return whether tables can be loaded; a graph that is missing is found at the load."""
        return True

    def drop_storage(self) -> None:
        """Refuse to remove a graph."""
        raise DestinationTerminalException("a graph is not dropped by dlt; remove it by hand")

    def create_load_job(
        self, table: PreparedTableSchema, file_path: str, load_id: str, restore: bool = False
    ) -> LoadJob:
        """Take a file as it is: it is loaded when the package is complete."""
        _ = (table, load_id, restore)
        return FinalizedLoadJob(file_path)

    def complete_load(self, load_id: str) -> None:
        """Load all files of a package as one commit."""
        storage = Container()[LoadPackageStateInjectableContext].storage
        package = Package(NAMESPACE, self._pipeline(), load_id, self._tables(storage, load_id))
        config = self.config
        try:
            with Graph.open(config.uri, branch=config.branch) as target:
                load_package(
                    target,
                    config.branch,
                    package,
                    read_targets(config.map or {}),
                    actor_id=config.actor_id,
                )
        except InvalidInputError as error:
            raise DestinationTerminalException(str(error)) from error

    def _pipeline(self) -> str:
        """Return the name under which packages are counted."""
        return str(dlt.current.pipeline().pipeline_name)

    def _tables(self, storage: PackageStorage, load_id: str) -> tuple[PackageTable, ...]:
        folder = storage.get_job_state_folder_path(load_id, PackageStorage.COMPLETED_JOBS_FOLDER)
        files: dict[str, list[str]] = defaultdict(list)
        for path in storage.storage.list_folder_files(folder):
            name = ParsedLoadJobFileName.parse(path).table_name
            if not is_dlt_table_or_column(name, self.schema._dlt_tables_prefix):
                files[name].append(storage.storage.make_full_path(path))
        return tuple(
            PackageTable(name, self._mode(name), tuple(sorted(paths)))
            for name, paths in sorted(files.items())
        )

    def _mode(self, table: str) -> str:
        prepared = self.prepare_load_table(table)
        for name, column in prepared["columns"].items():
            if column.get("hard_delete"):
                raise TableMapError(table, f"'{name}' marks rows to delete, which are not deleted")
        return MODES[get_write_disposition(self.schema.tables, table)]

    def update_stored_schema(
        self,
        only_tables: Iterable[str] | None = None,
        expected_update: TSchemaTables | None = None,
        force: bool = False,
    ) -> TSchemaTables | None:
        """Check the schema of the tables; that of the graph is changed by `omnigraph schema`."""
        super().update_stored_schema(only_tables, expected_update, force)
        return expected_update

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        pass


class graph(Destination[GraphConfiguration, GraphClient]):  # type: ignore[misc]  # noqa: N801 - destinations of dlt have such names
    """A graph as a destination of dlt.

    `map` gives each table a type: a name, `{"node" or "edge": name, "src": column, "dst": column,
    "map": {property: column}}`, or None for a table that is left out. Without `map` inside, columns
    are taken that are named as properties.
    """

    spec = GraphConfiguration

    def __init__(
        self,
        uri: str | os.PathLike[str],
        *,
        map: Mapping[str, str | Mapping[str, object] | None],  # noqa: A002 - as in pipeline files
        branch: str = "main",
        actor_id: str | None = None,
        destination_name: str | None = None,
        environment: str | None = None,
    ) -> None:
        read_targets(map)
        super().__init__(
            uri=os.fspath(uri),
            map=dict(map),
            branch=branch,
            actor_id=actor_id,
            destination_name=destination_name,
            environment=environment,
        )

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        capabilities = DestinationCapabilitiesContext.generic_capabilities(_FORMAT)
        capabilities.supported_loader_file_formats = [_FORMAT]
        capabilities.supports_ddl_transactions = False
        capabilities.supports_transactions = False
        capabilities.naming_convention = "direct"
        capabilities.max_table_nesting = 0
        capabilities.supported_merge_strategies = ["upsert"]
        capabilities.supported_replace_strategies = ["truncate-and-insert"]
        return capabilities

    @property
    def client_class(self) -> type[GraphClient]:
        """The class of clients."""
        return GraphClient
