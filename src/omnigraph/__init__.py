"""A versioned property-graph database for people who work in Python and Spark.

```python
import omnigraph

with omnigraph.init("brain.omni", "node Person { name: String @key }") as graph:
    graph.branches.create("draft")
```

Names are loaded when they are first used, so importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

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
    "AsyncGraph",
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
    "connect",
    "init",
    "open",
    "plan_schema",
]

_HOMES = {
    "AsyncGraph": "omnigraph.client",
    "Graph": "omnigraph.graph",
    "GraphCommit": "omnigraph.manifest",
    "OmnigraphError": "omnigraph.errors",
    "OpenMode": "omnigraph.manifest",
    "Policy": "omnigraph.policy",
    "ReadTarget": "omnigraph.manifest",
    "Snapshot": "omnigraph.manifest",
    "SourceError": "omnigraph.syntax",
    "compile_text": "omnigraph.query",
    "connect": "omnigraph.client",
    "compile_schema": "omnigraph.schema",
    "plan_schema": "omnigraph.schema",
}


def __getattr__(name: str) -> object:
    """Load a public name on first use; `init` and `open` are those of `Graph`."""
    if name in ("init", "open"):
        made: object = getattr(import_module("omnigraph.graph").Graph, name)
        return made
    if name == "__version__":
        installed: object = import_module("importlib.metadata").version("omnigraph")
        return installed
    if name not in _HOMES:
        raise AttributeError(f"module 'omnigraph' has no attribute {name!r}")
    value: object = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
