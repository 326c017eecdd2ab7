"""A topology as one file that can be mapped into memory.

```
 0  8  magic `OGTOPO` and the format number, two bytes
 8  8  length of the header
16  8  checksum of the header
24  …  header: JSON (states, counts, and of every section: type, length, `place`, checksum)
 …     sections: plain little-endian arrays, each at a multiple of 64 bytes
```

Numbers are little-endian. A section's checksum is the sum of its 64-bit words, which is as fast as
memory; it finds lost pages, torn writes and flipped bits, not forgeries. A file that fails any
check is damaged: it is not used, and is replaced.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

import numpy as np
import orjson
from numpy.typing import NDArray

from omnigraph.dataclass import dataclass
from omnigraph.search.table_state import TableState
from omnigraph.search.topology.csr import Csr
from omnigraph.search.topology.row_numbers import Numbering
from omnigraph.search.topology.topology import Topology, TopologyStates

_MAGIC: Final = b"OGTOPO\x00\x01"
_PREFIX: Final = struct.Struct("<8sQQ")
_ALIGNMENT: Final = 64
_WORD: Final = 8
_TYPES: Final = frozenset({"<i4", "<i8", "<u4", "<u8"})


class DamagedTopologyError(ValueError):
    """A file is damaged. Never leaves this package: the topology is built again."""


@dataclass(frozen=True, eq=False)
class Section:
    """One array of a file, in pieces that are made each time that they are asked for."""

    kind: np.dtype[Any]
    count: int
    pieces: Callable[[], Iterable[NDArray[Any]]]

    @classmethod
    def of(cls, array: NDArray[Any]) -> Section:
        """Return an array that is in memory as a section."""
        return cls(array.dtype, len(array), lambda: (array,))

    @property
    def nbytes(self) -> int:
        """Bytes of the whole array."""
        return self.count * self.kind.itemsize


@dataclass(frozen=True)
class TopologyFacts:
    """What the header of a file says besides its sections."""

    states: TopologyStates
    sources: Numbering
    targets: Numbering
    edges: Numbering
    """Row ids that these list are sections; the header has counts and first row ids alone."""
    has_parallel: Mapping[str, bool]
    """For `out` and `in`."""
    dangling: int


def topology_pieces(topology: Topology) -> Iterator[bytes | memoryview]:
    """Yield the content of the file, without another copy of the arrays."""
    facts = TopologyFacts(
        topology.states,
        topology.sources,
        topology.targets,
        topology.edges,
        {"out": topology.out.has_parallel, "in": topology.incoming.has_parallel},
        topology.dangling,
    )
    sections = {name: Section.of(array) for name, array in _arrays(topology).items()}
    return encoded_pieces(facts, sections)


def encoded_pieces(
    facts: TopologyFacts, sections: Mapping[str, Section]
) -> Iterator[bytes | memoryview]:
    """Yield the content of the file; every piece of a section is read twice."""
    described: dict[str, dict[str, Any]] = {}
    offset = 0
    for name, section in sections.items():
        described[name] = {
            "type": section.kind.newbyteorder("<").str,
            "count": section.count,
            "place": offset,
            "sum": _checksum_of(section.pieces()),
        }
        offset = _aligned(offset + section.nbytes)
    header = orjson.dumps(
        {
            "states": {
                "edge": facts.states.edge.to_json(),
                "source": facts.states.source.to_json(),
                "target": facts.states.target.to_json(),
            },
            "numberings": {
                name: {"count": numbering.count, "first": numbering.first}
                for name, numbering in _numberings(facts).items()
            },
            "parallel": dict(facts.has_parallel),
            "dangling": facts.dangling,
            "sections": described,
            "bytes": offset,
        }
    )
    yield _PREFIX.pack(_MAGIC, len(header), zlib.crc32(header))
    yield header
    yield _padding(_PREFIX.size + len(header))
    for section in sections.values():
        for piece in section.pieces():
            yield np.ascontiguousarray(piece).view(np.uint8).data
        yield _padding(section.nbytes)


@dataclass(frozen=True, eq=False)
class TopologyFile:
    """A file whose header has been checked; `topology` checks the rest."""

    header: Mapping[str, Any]
    states: TopologyStates
    _sections: memoryview

    @classmethod
    def parse(cls, data: bytes | mmap.mmap) -> TopologyFile:
        """Check the header, or raise `DamagedTopologyError`."""
        view = memoryview(data)
        header, start = _header(view)
        try:
            states = TopologyStates(
                *(TableState.from_json(header["states"][n]) for n in ("edge", "source", "target"))
            )
            whole = len(view) == start + header["bytes"]
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedTopologyError(f"the header lacks something: {error}") from error
        if not whole:
            raise DamagedTopologyError(f"the file has {len(view)} bytes, not what its header says")
        return cls(header, states, view[start:])

    def topology(self) -> Topology:
        """Return the topology over the file's own memory, or raise `DamagedTopologyError`."""
        try:
            return self._topology()
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise DamagedTopologyError(str(error)) from error

    def _topology(self) -> Topology:
        sources = self._numbering("source")
        targets = sources if self.states.same_type else self._numbering("target")
        edges = self._numbering("edge")
        out = self._csr("out", sources.count, targets.count, edges.count)
        incoming = self._csr("in", targets.count, sources.count, edges.count)
        dangling = int(self.header["dangling"])
        if not out.edge_count == incoming.edge_count == edges.count - dangling:
            raise DamagedTopologyError("the directions differ")
        return Topology(self.states, sources, targets, edges, out, incoming, dangling)

    def _numbering(self, name: str) -> Numbering:
        described = self.header["numberings"][name]
        count, first = int(described["count"]), int(described["first"])
        section = f"{name}.row_ids"
        if section not in self.header["sections"]:
            return Numbering(count, first)
        listed = self._array(section)
        if len(listed) != count:
            raise DamagedTopologyError(f"`{section}` has {len(listed)} numbers for {count} rows")
        return Numbering(count, first, listed)

    def _csr(self, name: str, node_count: int, end_count: int, edge_count: int) -> Csr:
        indptr, neighbours, edges, loops = (
            self._array(f"{name}.{part}") for part in ("indptr", "neighbours", "edges", "loops")
        )
        if len(indptr) != node_count + 1 or indptr[-1] != len(neighbours):
            raise DamagedTopologyError(f"`{name}.indptr` does not fit")
        if len(edges) != len(neighbours) or len(neighbours) > edge_count:
            raise DamagedTopologyError(f"`{name}.edges` does not fit")
        if len(neighbours) and not end_count:
            raise DamagedTopologyError(f"`{name}.neighbours` does not fit")
        return Csr(indptr, neighbours, edges, loops, bool(self.header["parallel"][name]))

    def _array(self, name: str) -> NDArray[Any]:
        described = self.header["sections"][name]
        if described["type"] not in _TYPES:
            raise DamagedTopologyError(f"`{name}` has the type {described['type']}")
        array = np.frombuffer(
            self._sections,
            dtype=np.dtype(described["type"]),
            count=int(described["count"]),
            offset=int(described["place"]),
        )
        if checksum(array) != described["sum"]:
            raise DamagedTopologyError(f"the checksum of `{name}` differs")
        return array


def checksum(array: NDArray[Any]) -> int:
    """Add up an array's 64-bit words, the last one filled with zeros."""
    return _checksum_of((array,))


def _checksum_of(pieces: Iterable[NDArray[Any]]) -> int:
    """Add up the 64-bit words of an array that comes in pieces."""
    total = 0
    rest = b""
    for piece in pieces:
        raw = np.ascontiguousarray(piece).view(np.uint8)
        if rest:
            missing = _WORD - len(rest)
            rest, raw = rest + raw[:missing].tobytes(), raw[missing:]
            if len(rest) < _WORD:
                continue
            total += int.from_bytes(rest, "little")
        whole = len(raw) // _WORD * _WORD
        total += int(np.add.reduce(raw[:whole].view("<u8"), dtype=np.uint64))
        rest = raw[whole:].tobytes()
    return (total + int.from_bytes(rest, "little")) % 2**64


def _header(view: memoryview) -> tuple[Mapping[str, Any], int]:
    if len(view) < _PREFIX.size:
        raise DamagedTopologyError("the file is too short")
    magic, length, expected = _PREFIX.unpack_from(view)
    if magic != _MAGIC:
        raise DamagedTopologyError("it is no topology file of this format")
    text = bytes(view[_PREFIX.size : _PREFIX.size + length])
    if len(text) != length or zlib.crc32(text) != expected:
        raise DamagedTopologyError("the checksum of the header differs")
    header: Mapping[str, Any] = orjson.loads(text)
    return header, _aligned(_PREFIX.size + length)


def _arrays(topology: Topology) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    for name, numbering in _numberings(topology).items():
        if numbering.listed is not None:
            arrays[f"{name}.row_ids"] = numbering.listed
    for name, csr in (("out", topology.out), ("in", topology.incoming)):
        arrays[f"{name}.indptr"] = csr.indptr
        arrays[f"{name}.neighbours"] = csr.neighbours
        arrays[f"{name}.edges"] = csr.edges
        arrays[f"{name}.loops"] = csr.loops
    return arrays


def _numberings(topology: Topology | TopologyFacts) -> dict[str, Numbering]:
    found = {"source": topology.sources, "edge": topology.edges}
    if not topology.states.same_type:
        found["target"] = topology.targets
    return found


def _padding(length: int) -> bytes:
    """Return the zeros that fill up to the next multiple of the alignment."""
    return bytes(_aligned(length) - length)


def _aligned(offset: int) -> int:
    return -(-offset // _ALIGNMENT) * _ALIGNMENT
