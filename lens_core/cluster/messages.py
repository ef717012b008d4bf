"""Records as messages of the log: which partition, which subject, under which identity, and back.

A receiver has no memory, and a sender that was not answered tries another receiver: what it repeats must become the
same messages, so that JetStream knows them. Their identity is a hash of the records, as long as these say themselves
which they are (a sequence, a time, a position); of others the same content may be meant twice.
"""

from __future__ import annotations

import hashlib
import uuid
import zlib
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from ..base.compression import compress, unpack_zstd
from ..base.errors import BadRequest, PayloadTooLarge
from ..detection.log_lines.processor import job_name
from ..model.records import (
    Diagnosis,
    Event,
    Evidence,
    LogLine,
    Measurement,
    Record,
    SeriesBatch,
    StepMetrics,
    encode_envelope,
)
from .connection import LogMessage

IN = "in"
ROWS = "out.rows"
OWNER = "out.owner"
OUT = "out.*"
STATE = "state"

RECORDS = "Lens-Records"
ONLY_SINK = "Lens-Only"
ERASURE = "Lens-Erasure"
MESSAGE_ID = "Nats-Msg-Id"

_PACK_BYTES = 1024
_MAGIC = b"\x28\xb5\x2f\xfd"
# Of what a server takes, so much is left for headers; and an owner's message is larger than what it was made of.
_HEADER_BYTES = 8 * 1024
_IN_SHARE = 4


class Part(NamedTuple):
    """A message to be: the packed envelope of records for one partition."""

    partition: int
    kind: str
    body: bytes
    records: Sequence[Record]
    message_id: str


class OwnerOutput(msgspec.Struct, frozen=True, array_like=True):
    """Result of an owner's detectors over its input up to `sequence` (of whose next message `offset` records are done).

    `state` are the changes of their state; None forgets a key. `envelope` is empty where no record goes on.
    `input_mark` is that of the stream of the input.
    """

    sequence: int
    offset: int
    envelope: bytes
    state: Mapping[str, bytes | None]
    input_mark: str = ""


_encoder = msgspec.msgpack.Encoder()
_output_decoder = msgspec.msgpack.Decoder(OwnerOutput)


def partition_of(record: Record, partitions: int, *, with_rank: bool = False) -> int:
    """The partition of a record's job; rows of very large jobs are spread by rank, too."""
    name = job_name(record.origin)
    if with_rank and record.origin.rank is not None:
        name = f"{name}#{record.origin.rank}"
    return zlib.crc32(name.encode("utf-8", "replace")) % partitions


def split_records(
    records: Iterable[Record], partitions: int, read_by_owner: frozenset[type[Record]]
) -> dict[tuple[int, str], list[Record]]:
    """The records by partition and subject, in their order."""
    found: dict[tuple[int, str], list[Record]] = defaultdict(list)
    for record in records:
        if type(record) in read_by_owner:
            found[partition_of(record, partitions), IN].append(record)
        else:
            found[partition_of(record, partitions, with_rank=True), ROWS].append(record)
    return found


def make_parts(partition: int, kind: str, records: Sequence[Record], max_payload: int) -> list[Part]:
    """Encode records as messages that NATS takes. Raises PayloadTooLarge for a single record that is larger."""
    limit = max_payload - _HEADER_BYTES
    envelope = encode_envelope(records, 0.0)  # without a time, so that a repetition is the same
    body = pack_body(envelope)
    if len(body) <= (limit // _IN_SHARE if kind == IN and len(records) > 1 else limit):
        return [Part(partition, kind, body, records, _identity(partition, kind, envelope, records))]
    if len(records) == 1:
        raise PayloadTooLarge(
            f"a record takes {len(body)} bytes and the NATS servers take messages of {max_payload}; raise max_payload"
        )
    middle = len(records) // 2
    return [
        *make_parts(partition, kind, records[:middle], max_payload),
        *make_parts(partition, kind, records[middle:], max_payload),
    ]


def _identity(partition: int, kind: str, envelope: bytes, records: Sequence[Record]) -> str:
    if not all(map(_says_which, records)):
        return uuid.uuid4().hex
    return f"{partition}.{kind}.{hashlib.blake2b(envelope, digest_size=16).hexdigest()}"


def _says_which(record: Record) -> bool:
    """Whether two records with this content are one and the same, sent twice."""
    if isinstance(record, StepMetrics):
        return record.sequence != 0
    if isinstance(record, LogLine):
        return record.position is not None or record.event_time is not None
    if isinstance(record, Event | Evidence | Measurement):
        return record.event_time is not None
    return isinstance(record, SeriesBatch | Diagnosis)


def pack_body(body: bytes) -> bytes:
    """A body as it is stored, packed where that pays."""
    if len(body) < _PACK_BYTES:
        return body
    packed = compress(body, "zstd")
    return packed if len(packed) < len(body) else body


def unpack_body(body: bytes) -> bytes:
    """The body that was given to `pack_body`; as it is if it is damaged, so that its decoding says so."""
    if not body.startswith(_MAGIC):
        return body
    try:
        return unpack_zstd(body)
    except BadRequest:
        return body


def encode_output(output: OwnerOutput) -> bytes:
    """An owner's output as a message's body."""
    return pack_body(_encoder.encode(output))


def decode_output(body: bytes) -> OwnerOutput:
    """The output that `encode_output` was given. Raises msgspec.DecodeError."""
    return _output_decoder.decode(unpack_body(body))


def envelope_of(message: LogMessage) -> tuple[bytes, int]:
    """The envelope of a message of `out`, and how many records it holds."""
    records = int(message.headers.get(RECORDS, "0"))
    if not records:
        return b"", 0
    if not message.subject.endswith(f".{OWNER}"):
        return unpack_body(message.body), records
    try:
        return decode_output(message.body).envelope, records
    except msgspec.DecodeError:
        return message.body, records
