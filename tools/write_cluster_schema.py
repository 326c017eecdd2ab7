"""Write docs/reference/cluster.schema.json, the JSON Schema of `cluster.yaml`.

`tests/cluster/test_json_schema.py` fails when the file is out of date.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.cluster.write_example import SCHEMA_FILE, schema_text

FILE = Path(__file__).parents[1] / "docs" / "reference" / SCHEMA_FILE


def main() -> None:
    """Write the file."""
    FILE.write_text(schema_text(), encoding="utf-8")


if __name__ == "__main__":
    main()
