"""Columns of vectors from columns of texts: the part of embedding that needs no graph.

1. A text is sent once, however often it occurs in the column, and not at all when its vector is
   known.
2. Null and blank texts have no vector.
3. The result depends on the texts and the model alone, so any worker may compute any part of it.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Protocol, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.search.embedding.vectors import Vectors
from omnigraph.search.embedding.wire import Role
from omnigraph.search.topology.csr import Mask

KnownVectors: TypeAlias = MutableMapping[str, Vectors]
"""Vectors by text; computed ones are added."""


class TextEmbedder(Protocol):
    """Turns texts into vectors."""

    @property
    def model(self) -> str:
        """The model that vectors come from."""
        ...

    def embed(self, texts: list[str], *, dimension: int, role: Role) -> Vectors:
        """Return one unit vector per text."""
        ...


def has_text(texts: pa.Array | pa.ChunkedArray) -> Mask:
    """Return for each row whether it has a text to embed."""
    lengths = pc.utf8_length(pc.utf8_trim_whitespace(texts))
    mask: Mask = pc.fill_null(pc.greater(lengths, 0), False).to_numpy(zero_copy_only=False)
    return mask


def embed_column(
    embedder: TextEmbedder,
    texts: pa.Array,
    dimension: int,
    *,
    known: KnownVectors | None = None,
) -> pa.FixedSizeListArray:
    """Return the vector of each text; null where there is none."""
    vectors = {} if known is None else known
    is_wanted = pa.array(has_text(texts))
    distinct = pc.unique(texts.filter(is_wanted)).to_pylist()
    missing = [text for text in distinct if text not in vectors]
    if missing:
        found = embedder.embed(missing, dimension=dimension, role="document")
        vectors.update(zip(missing, found, strict=True))
    return vector_column([vectors[text] for text in distinct], dimension).take(
        pc.index_in(pc.if_else(is_wanted, texts, None), value_set=pa.array(distinct, pa.utf8()))
    )


def vector_column(vectors: list[Vectors], dimension: int) -> pa.FixedSizeListArray:
    """Return vectors as a column of the type in which they are stored."""
    flat = np.concatenate(vectors) if vectors else np.empty(0, np.float32)
    kind = pa.list_(pa.field("item", pa.float32()), dimension)
    return pa.FixedSizeListArray.from_arrays(pa.array(flat, pa.float32()), type=kind)
