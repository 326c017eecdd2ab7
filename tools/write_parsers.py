"""Write the parser tables of both languages beside their grammars.

To be run after a change of a grammar or of the parser library; a test fails when a file is out of
date. Nothing breaks without: the tables are then worked out at the first use.
"""

from __future__ import annotations

from pathlib import Path

from omnigraph.syntax.parser_tables import encoded_tables, tables_file

SOURCE = Path(__file__).parents[1] / "src"
GRAMMARS = (
    ("omnigraph.query.language", "query.lark"),
    ("omnigraph.schema.language", "schema.lark"),
)


def main() -> None:
    """Write the files."""
    for package, file in GRAMMARS:
        target = SOURCE.joinpath(*package.split(".")) / tables_file(file)
        target.write_bytes(encoded_tables(package, file))


if __name__ == "__main__":
    main()
