"""Identity: how key members are spelled, and which ids rows get.

Definitions. The *spelling* of a value is a text that depends on the stored value alone:

| type | spelling |
|---|---|
| String, enum | the text |
| integers | decimal |
| Bool | `true`, `false` |
| Date, DateTime | the number of days, of milliseconds |
| F32, F64 | the shortest decimal that reads back to the same value of that width |

A float has neither an exponent nor a trailing `.0`, and both zeros are `0`.

1. A node type with one key member has that member's spelling as id.
2. With several, the id is the compact JSON array of the spellings, in the order of `NodeType.key`.
3. All other rows have a ULID, unless the input gives an id.
4. Equal keys have equal spellings and different keys different ones, also inside composite ids.
5. An input may give a keyed node its own id. Strictly that is the canonical id; compatible input
   may use another spelling of one member, and edges that use it are rewritten to the canonical id.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.clock import CROCKFORD, Clock
from omnigraph.dataclass import dataclass
from omnigraph.schema.values import codes
from omnigraph.schema.values.converted import ConversionMode
from omnigraph.schema.values.json_batch import JsonBatch, Kind
from omnigraph.schema.values.numeric import valid_mask
from omnigraph.schema.values.row_errors import ErrorLog, Mask, RowErrors, cut, quoting
from omnigraph.schema.values.scalars import text_column
from omnigraph.schema.values.temporal import parse_dates, parse_datetimes


@dataclass(frozen=True)
class Ids:
    """Ids by row (utf8), and problems; a row in error has no id."""

    ids: pa.Array
    errors: RowErrors


@dataclass(frozen=True)
class AcceptedIds(Ids):
    """Canonical ids of keyed nodes; `spellings` holds the given id where it was another one."""

    spellings: pa.Array


# --- spelling --------------------------------------------------------------------------------


def spell(column: pa.Array) -> pa.Array:
    """Spell every value of a stored column as ids and `@unique` tuples do; null stays null.

    >>> spell(pa.array([2.0, 1e-7, -0.0, 1e21])).to_pylist()
    ['2', '0.0000001', '0', '1000000000000000000000']
    """
    kind = column.type
    if pa.types.is_string(kind):
        return column
    if pa.types.is_date32(kind):
        return column.view(pa.int32()).cast(pa.utf8())
    if pa.types.is_date64(kind):
        return column.view(pa.int64()).cast(pa.utf8())
    if pa.types.is_floating(kind):
        return _spell_floats(column)
    return column.cast(pa.utf8())


def _spell_floats(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.utf8())
    has_exponent = pc.match_substring(texts, "e").fill_null(False)
    rows = np.flatnonzero(has_exponent.to_numpy(zero_copy_only=False))
    if len(rows):
        plain = [without_exponent(text) for text in texts.take(pa.array(rows)).to_pylist()]
        texts = pc.replace_with_mask(texts, has_exponent, pa.array(plain, pa.utf8()))
    return pc.if_else(pc.equal(texts, "-0"), "0", texts)


def without_exponent(text: str) -> str:
    """Write the digits of a number in scientific notation around its decimal point.

    >>> without_exponent("-1.5e-3"), without_exponent("1.25e+4")
    ('-0.0015', '12500')
    """
    mantissa, _, exponent = text.partition("e")
    sign = "-" if mantissa.startswith("-") else ""
    whole, _, fraction = mantissa.lstrip("-").partition(".")
    point = len(whole) + int(exponent)
    digits = whole + fraction
    if point <= 0:
        return f"{sign}0.{'0' * -point}{digits}"
    if point >= len(digits):
        return sign + digits + "0" * (point - len(digits))
    return f"{sign}{digits[:point]}.{digits[point:]}"


# --- derived ids -----------------------------------------------------------------------------


def derive_ids(members: Sequence[tuple[str, pa.Array]], *, type_name: str) -> Ids:
    """Derive the ids of keyed nodes from their (name, column) members, in key order.

    A row with a null member has no id and no error here: a key member is never nullable, so the
    conversion has reported it.

    >>> members = [("n", pa.array([7])), ("t", pa.array(["acme"]))]
    >>> derive_ids(members, type_name="T").ids.to_pylist()
    ['["7","acme"]']
    """
    row_count = len(members[0][1])
    log = ErrorLog(row_count)
    for name, column in members:
        _refuse_non_finite(column, f"{type_name}.{name}", log)
    spellings = [spell(column) for _, column in members]
    ids = spellings[0] if len(spellings) == 1 else _json_arrays(spellings)
    if not log.is_clean:
        ids = pc.if_else(pa.array(log.bad), pa.scalar(None, pa.utf8()), ids)
    return Ids(ids, log.finish())


def _refuse_non_finite(column: pa.Array, subject: str, log: ErrorLog) -> None:
    if not pa.types.is_floating(column.type):
        return
    numbers = column.fill_null(0).to_numpy()
    log.add_mask(
        ~np.isfinite(numbers),
        codes.KEY_NOT_FINITE,
        lambda row: f"@key value {numbers[row]} of {subject} cannot identify an entity",
    )


def _json_arrays(spellings: Sequence[pa.Array]) -> pa.Array:
    parts = [_json_strings(texts) for texts in spellings]
    inside = pc.binary_join_element_wise(*parts, ",")
    return pc.binary_join_element_wise("[", inside, "]", "")


_NEEDS_ESCAPE: Final = r'["\\\x00-\x1f]'


def _json_strings(texts: pa.Array) -> pa.Array:
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    needs_escape = pc.match_substring_regex(texts, _NEEDS_ESCAPE).fill_null(False)
    rows = np.flatnonzero(needs_escape.to_numpy(zero_copy_only=False))
    if not len(rows):
        return quoted
    escaped = [orjson.dumps(text).decode() for text in texts.take(pa.array(rows)).to_pylist()]
    return pc.replace_with_mask(quoted, needs_escape, pa.array(escaped, pa.utf8()))


# --- given ids -------------------------------------------------------------------------------


def given_ids(values: Sequence[object], *, is_edge: bool, mode: ConversionMode) -> Ids:
    """Read the `id` members of an input; null where a row gives none.

    On edges, compatible input ignores an id that is not a string.
    """
    batch = JsonBatch(values)
    log = ErrorLog(len(batch))
    if not is_edge or mode is ConversionMode.STRICT:
        kind = "edge" if is_edge else "node"
        log.add(
            batch.others(Kind.STRING),
            codes.ID_NOT_A_STRING,
            quoting(f"{kind} id must be a string, got {{}}", values),
        )
    ids, broken = text_column(batch.keep(Kind.STRING))
    if broken is not None:
        log.add_mask(broken, codes.INVALID_TEXT, "id is not valid Unicode text")
    return Ids(ids, log.finish())


def accept_ids(
    given: pa.Array,
    derived: pa.Array,
    members: Sequence[tuple[str, pa.Array]],
    *,
    type_name: str,
    mode: ConversionMode,
) -> AcceptedIds:
    """Compare the given ids of keyed nodes with the derived ones.

    Compatible input may also give one key member in any spelling of its type: `"00042"` for the
    number 42, `"2024-01-01"` for that day.
    """
    differs = _to_mask(pc.not_equal(given, derived).fill_null(False))
    rows = np.flatnonzero(differs)
    log = ErrorLog(len(given))
    spellings = pa.nulls(len(given), pa.utf8())
    if len(rows):
        taken = given.take(pa.array(rows))
        matches = np.zeros(len(rows), np.bool_)
        if mode is ConversionMode.COMPATIBLE:
            for _, column in members:
                matches |= _equals_by_type(taken, column.take(pa.array(rows)))
        log.add(
            rows[~matches],
            codes.ID_MISMATCH,
            lambda row: (
                f"id '{cut(str(given[row]))}' of {type_name} does not match its canonical "
                f"@key id '{cut(str(derived[row]))}'"
            ),
        )
        is_other = np.zeros(len(given), np.bool_)
        is_other[rows[matches]] = True
        spellings = pc.if_else(pa.array(is_other), given, spellings)
    bad = pa.array(log.bad)
    ids = derived if log.is_clean else pc.if_else(bad, pa.scalar(None, pa.utf8()), derived)
    return AcceptedIds(ids, log.finish(), spellings)


_WHOLE_NUMBER: Final = r"^[+-]?[0-9]+$"
_NUMBER: Final = r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def _equals_by_type(texts: pa.Array, column: pa.Array) -> Mask:
    """Return where a text reads as the value of a key member."""
    kind = column.type
    spelled = spell(column)
    equal: Mask = _to_mask(pc.equal(texts, spelled).fill_null(False))
    if pa.types.is_integer(kind):
        equal |= _to_mask(pc.equal(_plain_integers(texts), spelled).fill_null(False))
    elif pa.types.is_floating(kind):
        equal |= _equals_float(texts, column)
    elif pa.types.is_date32(kind) or pa.types.is_date64(kind):
        equal |= _to_mask(pc.equal(_plain_integers(texts), spelled).fill_null(False))
        parsed = parse_dates(texts) if pa.types.is_date32(kind) else parse_datetimes(texts)
        raw = column.view(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        stored = raw.fill_null(0).to_numpy()
        equal |= parsed.is_valid & (parsed.values == stored) & valid_mask(column)
    return equal


def _plain_integers(texts: pa.Array) -> pa.Array:
    """Drop plus signs and leading zeros of whole numbers; other texts become null."""
    is_number = pc.match_substring_regex(texts, _WHOLE_NUMBER)
    numbers = pc.if_else(is_number, texts, pa.scalar(None, pa.utf8()))
    plain = pc.replace_substring_regex(numbers, r"^(-?)\+?0*([0-9])", r"\1\2")
    return pc.if_else(pc.equal(plain, "-0"), "0", plain)


def _equals_float(texts: pa.Array, column: pa.Array) -> Mask:
    is_number = pc.match_substring_regex(texts, _NUMBER)
    numbers = pc.if_else(is_number, texts, pa.scalar(None, pa.utf8()))
    unsigned = pc.replace_substring_regex(numbers, r"^\+", "")
    parsed = unsigned.cast(column.type)
    return _to_mask(pc.equal(parsed, column).fill_null(False))


# --- endpoints -------------------------------------------------------------------------------


@dataclass(frozen=True)
class EndpointRemap:
    """Other spellings of node ids, for the endpoints of edges in the same load.

    `spellings` are distinct; `ids` are theirs, in the same order. `ambiguous` are the spellings
    that stand for several nodes, with one sentence each.
    """

    spellings: pa.Array
    ids: pa.Array
    ambiguous: pa.Array
    sentences: pa.Array

    def apply(self, endpoints: pa.Array) -> Ids:
        """Rewrite endpoints; one that uses an ambiguous spelling is an error."""
        log = ErrorLog(len(endpoints))
        if len(self.ambiguous):
            positions = pc.index_in(endpoints, value_set=self.ambiguous)
            log.add_mask(
                valid_mask(positions),
                codes.AMBIGUOUS_ENDPOINT,
                lambda row: str(self.sentences[positions[row].as_py()]),
            )
        if not len(self.spellings):
            rewritten = endpoints
        else:
            positions = pc.index_in(endpoints, value_set=self.spellings)
            rewritten = pc.coalesce(self.ids.take(positions), endpoints)
        if not log.is_clean:
            bad = pa.array(log.bad)
            rewritten = pc.if_else(bad, pa.scalar(None, pa.utf8()), rewritten)
        return Ids(rewritten, log.finish())


def build_endpoint_remap(spellings: pa.Array, ids: pa.Array, canonical: pa.Array) -> EndpointRemap:
    """Collect the remap of one node type from all batches of a load.

    `spellings` and `ids` are those of `AcceptedIds`, rows without a spelling included; `canonical`
    holds the ids of all nodes of the load, because a spelling that is another node's id stands for
    two nodes.
    """
    given = pc.and_(spellings.is_valid(), ids.is_valid())
    pairs = pa.table({"spelling": spellings.filter(given), "id": ids.filter(given)})
    own = pairs.filter(pc.is_in(pairs["spelling"], value_set=canonical))
    own = pa.table({"spelling": own["spelling"], "id": own["spelling"]})
    pairs = pa.concat_tables([pairs, own]).group_by(["spelling", "id"]).aggregate([])
    counted = pairs.group_by("spelling").aggregate([("id", "min"), ("id", "max")])
    counted = counted.sort_by("spelling").combine_chunks()
    is_clear = pc.equal(counted["id_min"], counted["id_max"])
    clear, unclear = counted.filter(is_clear), counted.filter(pc.invert(is_clear))
    sentences = [
        f"ambiguous edge endpoint remap: '{cut(row['spelling'])}' stands for "
        f"'{cut(row['id_min'])}' and '{cut(row['id_max'])}'; use the canonical ids"
        for row in unclear.to_pylist()
    ]
    return EndpointRemap(
        _one_chunk(clear["spelling"]),
        _one_chunk(clear["id_min"]),
        _one_chunk(unclear["spelling"]),
        pa.array(sentences, pa.utf8()),
    )


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()


# --- new ids ---------------------------------------------------------------------------------

_DIGIT_PAIRS: Final = np.frombuffer(
    "".join(first + second for first in CROCKFORD for second in CROCKFORD).encode(), np.uint16
)
"""The two characters of every number of 10 bits, as they lie in memory."""
_TIME_PAIRS: Final = 5
_HALF_PAIRS: Final = 4
_HALF_BITS: Final = 40
_HALF_MAX: Final = (1 << _HALF_BITS) - 1
_ULID_LENGTH: Final = 26


def new_ulids(clock: Clock, count: int) -> pa.Array:
    """Return new ULIDs in increasing order, larger than every earlier one of the clock."""
    if count == 0:
        return pa.array([], pa.utf8())
    time_ms, first = clock.reserve_ulids(count)
    return encode_ulids(time_ms=time_ms, first=first, count=count)


def encode_ulids(*, time_ms: int, first: int, count: int) -> pa.Array:
    """Spell `count` consecutive ULIDs of one millisecond, starting at the randomness `first`.

    >>> encode_ulids(time_ms=0, first=31, count=2).to_pylist()
    ['0000000000000000000000000Z', '00000000000000000000000010']
    """
    # 80 bits in two halves of 40, because NumPy has no wider number.
    low = np.uint64(first & _HALF_MAX) + np.arange(count, dtype=np.uint64)
    high = np.uint64(first >> _HALF_BITS) + (low >> np.uint64(_HALF_BITS))
    pairs = np.empty((count, _ULID_LENGTH // 2), np.uint16)
    pairs[:, :_TIME_PAIRS] = _pairs_of(np.uint64(time_ms), _TIME_PAIRS)
    if count and high[0] == high[-1]:
        pairs[:, _TIME_PAIRS:-_HALF_PAIRS] = _pairs_of(high[0], _HALF_PAIRS)
    else:
        pairs[:, _TIME_PAIRS:-_HALF_PAIRS] = _pairs_of(high, _HALF_PAIRS)
    pairs[:, -_HALF_PAIRS:] = _pairs_of(low, _HALF_PAIRS)
    offsets = np.arange(count + 1, dtype=np.int32) * np.int32(_ULID_LENGTH)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(pairs))


def _pairs_of(numbers: np.uint64 | npt.NDArray[np.uint64], width: int) -> npt.NDArray[np.uint16]:
    """Spell the lowest `10 * width` bits of numbers, two digits at a time."""
    shifts = (np.arange(width - 1, -1, -1) * 10).astype(np.uint64)
    parts = (np.asarray(numbers)[..., np.newaxis] >> shifts) & np.uint64(1023)
    return _DIGIT_PAIRS[parts.astype(np.int64)]


def _to_mask(column: pa.Array) -> Mask:
    mask: Mask = column.to_numpy(zero_copy_only=False)
    return mask
