"""Random schemas and inputs for loads, in the forms that both engines read."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

Record = dict[str, object]

SCHEMAS = (
    """\
node Keyed { k: String  n: I32?  u: String? @unique  @key(k)  @range(n, 0..9) }
node Free { p: I32?  q: I32?  @unique(p, q) }
edge Link: Keyed -> Free @card(0..2) { w: I32? }
edge Away: Free -> Keyed { w: I32?  @unique(src, dst) }
""",
    """\
node Keyed { k: String  m: I64  kind: enum(a, b)?  n: I32?  u: String?  @key(k, m) }
node Free { p: I32? @unique  q: I32? }
edge Link: Keyed -> Free @card(2..3) { w: I32? @unique }
edge Away: Free -> Keyed @card(1..) { w: I32? }
""",
)


def seed(schema: str) -> list[Record]:
    """Return a few nodes and edges that break no rule."""
    is_composite = "@key(k, m)" in schema
    keyed: list[Record] = []
    for n in range(4):
        data: dict[str, object] = {"k": f"k{n}", "n": n, "u": f"u{n}"}
        if is_composite:
            data["m"] = n
        keyed.append({"type": "Keyed", "data": data})
    free: list[Record] = [
        {"type": "Free", "data": {"id": f"f{n}", "p": n, "q": n}} for n in range(4)
    ]
    first = '["k0","0"]' if is_composite else "k0"
    links: list[Record] = [
        {"edge": "Link", "from": first, "to": f"f{n}", "data": {"id": f"l{n}", "w": n}}
        for n in range(2)
    ]
    away: list[Record] = [{"edge": "Away", "from": "f0", "to": first, "data": {"id": "a0"}}]
    return [*keyed, *free, *links, *away]


@st.composite
def records(draw: st.DrawFn, schema: str, *, is_tidy: bool) -> list[Record]:
    """Records that mostly fit together, and to the graph of `seed`."""
    is_composite = "@key(k, m)" in schema
    found: list[Record] = []
    for kind in draw(st.lists(st.sampled_from(["Keyed", "Free", "Link", "Away"]), max_size=8)):
        data: dict[str, object] = {}
        if kind == "Keyed":
            number = draw(st.integers(2, 7))
            data = {"k": f"k{number}"}
            if is_composite:
                data["m"] = draw(st.sampled_from([number, number, 0]))
                data["kind"] = draw(st.sampled_from(["a", "b", None]))
            data["n"] = draw(st.sampled_from([1, 2, 3, None] + ([] if is_tidy else [70])))
            data["u"] = draw(st.sampled_from([f"u{number}", f"u{number}", None, "u0"]))
        elif kind == "Free":
            data = {"p": draw(st.integers(0, 9)), "q": draw(st.integers(0, 3) | st.none())}
        else:
            data = {"w": draw(st.integers(0, 9) | st.none())}
        if kind != "Keyed" and draw(st.booleans()):
            data["id"] = f"{kind[0].lower()}{draw(st.integers(0, 6))}"
        if kind in ("Keyed", "Free"):
            found.append({"type": kind, "data": data})
        else:
            number = draw(st.integers(0, 4) | st.integers(0, 5))
            keyed = f'["k{number}","{number}"]' if is_composite else f"k{number}"
            ends = [keyed, f"f{draw(st.integers(0, 4))}"]
            source, target = ends if kind == "Link" else reversed(ends)
            found.append({"edge": kind, "from": source, "to": target, "data": data})
    return found


def as_lines(given: list[Record], path: Path, *, broken: bool, spaced: bool = False) -> Path:
    """Write graph records; `spaced` adds blank lines, `broken` lines that are no records."""
    lines = []
    for number, record in enumerate(given):
        if spaced and number % 3 == 2:
            lines.append("")
        lines.append(json.dumps(record))
    if broken:
        lines[1:1] = ["{", '{"type": "Keyed", "data": {"k": 7}}', '{"type": "Nobody", "data": {}}']
    path.write_text("\n".join(lines))
    return path


def as_values(given: list[Record], path: Path, *, broken: bool) -> Path:
    """Write records over and beside lines, with what the compatible reader lets pass."""
    texts = [
        json.dumps(record | {"more": number}, indent=1 if number % 2 else None)
        for number, record in enumerate(given)
    ]
    if broken:
        texts[1:1] = ['{"type": 7}', '{"type": "Nobody"}', '{"edge": "Link", "from": 1}']
        texts.append('{"type": ')
    path.write_text("".join(text + "  \n"[number % 3] for number, text in enumerate(texts)))
    return path


_COLUMNS: Mapping[str, Mapping[str, pa.DataType]] = {
    "Keyed": {"k": pa.utf8(), "n": pa.int32(), "u": pa.utf8()},
    "Free": {"id": pa.utf8(), "p": pa.int32(), "q": pa.int64()},
    "Link": {"id": pa.utf8(), "src": pa.utf8(), "dst": pa.utf8(), "w": pa.int32()},
    "Away": {"id": pa.utf8(), "src": pa.utf8(), "dst": pa.utf8(), "w": pa.int32()},
}


def as_tables(
    given: list[Record], schema: str, *, empty: Collection[str] = ()
) -> dict[str, pa.Table]:
    """Return the records as one table per type; those of `empty` are there without rows too."""
    tables = {}
    for kind, columns in _COLUMNS.items():
        own = [record for record in given if record.get("type", record.get("edge")) == kind]
        if not own and kind not in empty:
            continue
        types = dict(columns)
        if kind == "Keyed" and "@key(k, m)" in schema:
            types |= {"m": pa.int64(), "kind": pa.utf8()}
        rows = [_flat(record) for record in own]
        tables[kind] = pa.table(
            {name: pa.array([row.get(name) for row in rows], t) for name, t in types.items()}
        )
    return tables


def _flat(record: Record) -> dict[str, object]:
    data = record["data"]
    assert isinstance(data, dict)
    return {"src": record.get("from"), "dst": record.get("to"), **data}


def as_parquet(tables: Mapping[str, pa.Table], folder: Path) -> dict[str, str]:
    """Write every table into files of a folder of its own, with row groups of two rows."""
    folders = {}
    for name, table in tables.items():
        own = folder / name
        own.mkdir(parents=True)
        half = table.num_rows // 2
        for number, part in enumerate((table.slice(0, half), table.slice(half))):
            pq.write_table(part, own / f"{number}.parquet", row_group_size=2)
        folders[name] = str(own)
    return folders
