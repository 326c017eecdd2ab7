"""A versioned property-graph database for people who work in Python and Spark.

```python
import omnigraph

with omnigraph.init("brain.omni", "node Person { name: String @key }") as graph:
    graph.branches.create("draft")
```

Names are loaded when they are first used, so importing the package costs next to nothing.
"""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from omnigraph.late import late_names

if TYPE_CHECKING:
    from omnigraph.client import AsyncGraph, connect
    from omnigraph.errors import OmnigraphError
    from omnigraph.graph import Graph

    __version__: str
    init = Graph.init
    open = Graph.open  # noqa: A001 the name that people expect
    from omnigraph.manifest import GraphCommit, OpenMode, ReadTarget, Snapshot
    from omnigraph.policy import Policy
    from omnigraph.query import compile_text
    from omnigraph.schema import compile_schema, plan_schema
    from omnigraph.syntax import SourceError

__all__ = [
    "Graph",
    "GraphCommit",
    "OmnigraphError",
    "OpenMode",
    "Policy",
    "ReadTarget",
    "Snapshot",
    "SourceError",
    "__version__",
    "compile_schema",
    "compile_text",
    "init",
    "open",
    "plan_schema",
]
if find_spec("httpx2"):
    # `from omnigraph import *` asks for every name, and these two need the extra `client`.
    __all__ += ["AsyncGraph", "connect"]

_load = late_names(
    __name__,
    {
        "omnigraph.client": "AsyncGraph connect",
        "omnigraph.graph": "Graph",
        "omnigraph.manifest": "GraphCommit OpenMode ReadTarget Snapshot",
        "omnigraph.errors": "OmnigraphError",
        "omnigraph.policy": "Policy",
        "omnigraph.syntax": "SourceError",
        "omnigraph.query": "compile_text",
        "omnigraph.schema": "compile_schema plan_schema",
    },
    globals(),
)


def __getattr__(name: str) -> object:
    """Load a public name on first use; `init` and `open` are those of `Graph`."""
    if name in ("init", "open"):
        made: object = getattr(import_module("omnigraph.graph").Graph, name)
        return made
    if name == "__version__":
        installed: object = import_module("importlib.metadata").version("omnigraph")
        return installed
    try:
        return _load(name)
    except ModuleNotFoundError as error:
        missing = import_module("omnigraph.errors").missing_extra(error)
        if missing is not None:
            error.add_note(f"hint: {missing.hint}")
        raise


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
