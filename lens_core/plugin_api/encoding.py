"""Public names for reading and writing bodies: records and their envelope, JSON with NaN, compression within limits."""

from __future__ import annotations

from ..base.compression import compress, decompress, too_large
from ..base.json_items import MAX_NAME_LENGTH, ItemDecoder, Items, decode_json, numbers_of, quote_bare_specials
from ..model.directory_document import pods_of_object
from ..model.ranges import MAX_METRICS, Rank, Step
from ..model.records import (
    ENVELOPE_VERSION,
    PRODUCER,
    RECORD_KINDS,
    Decoded,
    RecordsEnvelope,
    decode_envelope,
    decode_json_envelope,
    encode_envelope,
)
from ..model.refusals import Rejection, why_refused
from ..model.times import epoch_seconds

__all__ = [
    "ENVELOPE_VERSION",
    "MAX_METRICS",
    "MAX_NAME_LENGTH",
    "PRODUCER",
    "RECORD_KINDS",
    "Decoded",
    "ItemDecoder",
    "Items",
    "Rank",
    "RecordsEnvelope",
    "Rejection",
    "Step",
    "compress",
    "decode_envelope",
    "decode_json",
    "decode_json_envelope",
    "decompress",
    "encode_envelope",
    "epoch_seconds",
    "numbers_of",
    "pods_of_object",
    "quote_bare_specials",
    "too_large",
    "why_refused",
]
