"""Everything that looks at bytes of a stranger does linear work: each decoder, with what is worst for it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from random import Random
from typing import Any

import cramjam
import msgspec
import pytest
import zstandard
from lens_plugins.dlrover import load
from lens_plugins.dlrover.messages import decode_grpc
from lens_plugins.sources.logs import decode_entries
from lens_plugins.sources.wandb_api.source import _LOGS, _METRICS, _parse

from lens_core.base.compression import decompress
from lens_core.base.errors import LensError
from lens_core.base.json_items import numbers_of, quote_bare_specials
from lens_core.model.directory_document import pods_of_json
from lens_core.model.records import StepMetrics, decode_envelope, decode_json_envelope, encode_envelope
from lens_core.plugin_api.protobuf import WireError, delimited, fields, numeric
from tests.linear_work import assert_linear

LIMIT = 64 * 1024 * 1024

# What makes readers of JSON go back, for a body of about n bytes.
JSON_BODIES: dict[str, Callable[[int], bytes]] = {
    "escapes of a string that never ends": lambda n: b'{"workload_uid":"w","metrics":[NaN,"' + rb"\"" * (n // 2),
    "backslashes that never end": lambda n: b'{"metrics":[NaN,"' + b"\\" * n,
    "tokens": lambda n: b'{"workload_uid":"w","metrics":[' + b"NaN," * (n // 4),
    "quotes": lambda n: b"[NaN," + b'"' * n,
    "beginnings of tokens": lambda n: b"[NaN," + b"-Infinit" * (n // 8),
    "strings with escapes": lambda n: b"[NaN," + rb'"a\\",' * (n // 6) + b"1]",
    "nested lists": lambda n: b"[NaN," + b"[" * n,
    "nested objects": lambda n: b"[NaN," + b'{"a":' * (n // 5),
    "digits": lambda n: b'{"workload_uid":"w","metrics":[{"name":"a","value":' + b"1" * n + b"}]}",
    "many rows": lambda n: (
        b'{"workload_uid":"w","logs":[' + b",".join(b'{"step":%d,"data":{"a":1}}' % i for i in range(n // 27)) + b"]}"
    ),
    "many wrong rows": lambda n: b'{"workload_uid":"w","logs":[' + b",".join([b'{"step":"a"}'] * (n // 13)) + b"]}",
    "many numbers below a long name": lambda n: _named(n),
    "records": lambda n: b'{"records":[' + b",".join([b'{"record":"event","type":1}'] * (n // 28)) + b"]}",
}


def _named(size: int) -> bytes:
    below = {str(number): 1 for number in range(size // 20)}
    return json.dumps({"workload_uid": "w", "logs": [{"step": 1, "data": {"n" * (size // 2): below}}]}).encode()


JSON_READERS: dict[str, Callable[[bytes], Any]] = {
    "quoting": quote_bare_specials,
    "records": decode_json_envelope,
    "logs": decode_entries,
    "text": lambda body: decode_entries(body, True),
    "wandb metrics": lambda body: _parse(body, _METRICS),
    "wandb logs": lambda body: _parse(body, _LOGS),
    "directory": pods_of_json,
}


@pytest.mark.parametrize("body", JSON_BODIES)
@pytest.mark.parametrize("reader", JSON_READERS)
def test_json_is_read_in_linear_time(reader: str, body: str) -> None:
    assert_linear(_refusing(JSON_READERS[reader]), JSON_BODIES[body])


def _refusing(reader: Callable[[bytes], Any]) -> Callable[[bytes], Any]:
    """The reader, which may only refuse in Lens' own words or msgspec's: whatever else comes fails the test."""

    def read(body: bytes) -> None:
        try:
            reader(body)
        except (LensError, msgspec.DecodeError):
            return

    return read


MESSAGE_PACKS: dict[str, Callable[[int], bytes]] = {
    "nested": lambda n: b"\x81\xa7records" + b"\x91" * n,
    "wrong records": lambda n: b"\x81\xa7records\xdd" + (n // 2).to_bytes(4, "big") + b"\x91\x01" * (n // 2),
    "an announced length": lambda n: b"\x81\xa7records\xdd\xff\xff\xff\xff" + b"\x80" * n,
    "rows": lambda n: encode_envelope(
        [StepMetrics(data_source="a", row_step=step, values={"a": 1.0}) for step in range(n // 40)]
    ),
}


@pytest.mark.parametrize("body", MESSAGE_PACKS)
def test_message_pack_is_read_in_linear_time(body: str) -> None:
    assert_linear(_refusing(decode_envelope), MESSAGE_PACKS[body])


COMPRESSED: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "empty members": ("gzip", lambda n: gzip.compress(b"") * (n // 20)),
    "small members": ("gzip", lambda n: gzip.compress(b"a" * 50) * (n // 24)),
    "zeros by gzip": ("gzip", lambda n: gzip.compress(bytes(n * 5))),
    "empty frames": ("zstd", lambda n: zstandard.ZstdCompressor().compress(b"") * (n // 9)),
    "noise by zstd": ("zstd", lambda n: zstandard.ZstdCompressor().compress(Random(0).randbytes(n))),
    "zeros by snappy": ("snappy", lambda n: bytes(cramjam.snappy.compress_raw(bytes(n * 5)))),
    "noise": ("snappy", lambda n: b"\xff\xff\x03" + b"\x01" * n),
}


@pytest.mark.parametrize("body", COMPRESSED)
def test_bodies_are_decompressed_in_linear_time(body: str) -> None:
    encoding, make = COMPRESSED[body]
    assert_linear(lambda data: decompress(data, encoding, LIMIT), make)


def _protobuf(body: bytes) -> None:
    try:
        for field in fields(body):
            list(fields(field.value) if isinstance(field.value, bytes) else [])
    except WireError:
        return


@pytest.mark.parametrize(
    "make",
    [
        lambda n: numeric(1, 1) * (n // 2),
        lambda n: delimited(1, delimited(1, b"a" * 20)) * (n // 24),
        lambda n: b"\x80" * n,
        lambda n: delimited(1, b"\x80" * n),
    ],
)
def test_protobuf_is_read_in_linear_time(make: Callable[[int], bytes]) -> None:
    assert_linear(_protobuf, make)
    assert_linear(decode_grpc, make)


PICKLES: dict[str, Callable[[int], bytes]] = {
    "marks": lambda n: b"\x80\x04" + b"(" * n + b".",
    "tuples": lambda n: b"\x80\x04" + b")" * (n // 2) + b"t" * (n // 2),
    "lists that hold themselves": lambda n: b"\x80\x04]q\x00" + b"h\x00a" * (n // 3) + b".",
    "one list in many places": lambda n: b"\x80\x04]" + b"q\x00h\x00a" * (n // 5) + b".",
    "keys": lambda n: b"\x80\x04}(" + b"".join(_long(i * (2**61 - 1)) + b"N" for i in range(n // 12)) + b"u.",
    "a long number": lambda n: b"\x80\x04\x8b" + n.to_bytes(4, "little") + b"\x7f" * n + b".",
    "digits": lambda n: b"\x80\x04L" + b"7" * n + b"L\n.",
}


def _long(number: int) -> bytes:
    data = number.to_bytes(10, "little", signed=True)
    return b"\x8a" + bytes((len(data),)) + data


@pytest.mark.parametrize("body", PICKLES)
def test_pickles_are_read_in_linear_time(body: str) -> None:
    assert_linear(load, PICKLES[body])


def test_a_name_of_megabytes_is_not_written_out_for_every_number_below_it() -> None:
    with pytest.raises(ValueError, match="longer than"):
        numbers_of({"n" * 5000: {str(number): 1.0 for number in range(5000)}})
