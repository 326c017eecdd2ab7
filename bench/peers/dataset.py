"""The rows of the query benchmark as Parquet files, and what is asked about them.

Made once per size and kept in a folder; every engine loads the same files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

TABLES = ("person", "company", "knows", "works_at")
SIZES_WITH_VECTORS = ("XS", "S")
_QUERIES = "queries.json"
_SEED = 20_260_102
_VOCABULARY = 5_000
_QUERY_KEYS = 50


@dataclass(frozen=True)
class Data:
    """Where the files of one size lie, and the inputs of every question."""

    folder: Path
    size: str
    keys: tuple[str, ...]
    texts: tuple[str, ...]
    vectors: tuple[tuple[float, ...], ...]
    cities: tuple[str, ...]
    """The city that each vector search is restricted to."""

    @property
    def has_vectors(self) -> bool:
        return bool(self.vectors)

    def path(self, table: str) -> Path:
        return self.folder / f"{table}.parquet"

    def read(self, table: str, columns: list[str] | None = None) -> pa.Table:
        return pq.read_table(self.path(table), columns=columns)


def load(root: Path, size: str) -> Data:
    """Return the data of a size that `generate` has made."""
    folder = root / "data" / size
    asked = json.loads((folder / _QUERIES).read_text())
    return Data(
        folder,
        size,
        tuple(asked["keys"]),
        tuple(asked["texts"]),
        tuple(map(tuple, asked["vectors"])),
        tuple(asked["cities"]),
    )


def generate(root: Path, size: str) -> Data:
    """Make the files of a size, unless they are there."""
    folder = root / "data" / size
    if not (folder / _QUERIES).exists():
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder, size)
    return load(root, size)


def _write(folder: Path, size: str) -> None:
    # The workers run where the package under test, which this module draws in, is not installed.
    from bench.data import CITIES, social

    random = np.random.default_rng(_SEED)
    made = social(size, with_vectors=size in SIZES_WITH_VECTORS)
    words = _words(random)
    person = made.person.append_column("bio", _texts(random, words, len(made.person)))
    for name, table in (
        ("person", person),
        ("company", made.company),
        ("knows", made.knows.drop_columns("id")),
        ("works_at", made.works_at.drop_columns("id")),
    ):
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=1_000_000)
    common, rare = (random.integers(*span, _QUERY_KEYS) for span in ((20, 300), (300, 3_000)))
    asked = {
        "keys": made.keys,
        "texts": [f"{words[a]} {words[b]}" for a, b in zip(common, rare, strict=True)],
        "vectors": _query_vectors(random, person) if "embedding" in person.column_names else [],
        "cities": [f"city{number:02d}" for number in random.integers(0, CITIES // 2, _QUERY_KEYS)],
    }
    (folder / _QUERIES).write_text(json.dumps(asked))


def _words(random: np.random.Generator) -> list[str]:
    consonants, vowels = list("bcdfghklmnprtvz"), list("aeiou")
    found: dict[str, None] = {}
    while len(found) < _VOCABULARY:
        syllables = random.integers(2, 5)
        pairs = zip(
            random.choice(consonants, syllables), random.choice(vowels, syllables), strict=True
        )
        found["".join(a + b for a, b in pairs)] = None
    return list(found)


def _texts(random: np.random.Generator, words: list[str], count: int) -> pa.Array:
    """Return texts of about twenty words whose frequencies follow Zipf's law."""
    share = np.cumsum(1 / np.arange(1, len(words) + 1) ** 0.9)
    lengths = random.integers(15, 26, count)
    picks = np.searchsorted(share, random.random(int(lengths.sum())) * share[-1])
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    drawn = pa.array(words).take(pa.array(np.minimum(picks, len(words) - 1)))
    lists = pa.ListArray.from_arrays(pa.array(offsets), drawn)
    return pa.compute.binary_join(lists, " ")


def _query_vectors(random: np.random.Generator, person: pa.Table) -> list[list[float]]:
    """Return vectors near stored ones, so that neighbourhoods are as real queries find them."""
    near = person["embedding"].take(pa.array(random.integers(0, len(person), _QUERY_KEYS)))
    stored = np.array(near.to_pylist(), np.float32)
    moved = stored + 0.05 * random.normal(size=stored.shape).astype(np.float32)
    unit = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    return unit.astype(np.float32).tolist()
