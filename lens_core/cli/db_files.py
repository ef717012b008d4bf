"""The files of `lens db export`: a line that says what this is, then one record per line as JSON; .gz is compressed."""

from __future__ import annotations

import gzip
import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import msgspec

from ..base.errors import LensError
from ..model.records import PRODUCER, AnyRecord, Record, StepMetrics

FORMAT = 1
_decode = msgspec.json.Decoder(AnyRecord, strict=False).decode


def open_file(path: Path, mode: str) -> IO[bytes]:
    """The file, uncompressed on the way where its name ends in .gz. Raises LensError."""
    try:
        if path.suffix == ".gz":
            return gzip.open(path, mode)  # type: ignore[return-value]
        return path.open(mode)
    except OSError as error:
        raise LensError(f"{path} cannot be opened: {error.strerror}") from None


def header() -> bytes:
    """The first line."""
    return msgspec.json.encode({"lens_export": FORMAT, "producer": PRODUCER}) + b"\n"


def lines(records: Sequence[Record]) -> bytes:
    """Records as lines; what JSON has no number for is a text."""
    return b"".join(msgspec.json.encode(_with_texts(record)) + b"\n" for record in records)


def _with_texts(record: Record) -> Any:
    if not isinstance(record, StepMetrics) or all(map(math.isfinite, record.values.values())):
        return record
    described = msgspec.to_builtins(record)
    described["values"] = {n: v if math.isfinite(v) else str(v) for n, v in record.values.items()}
    return described


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file. Raises LensError that names the line which cannot be read."""
    with open_file(path, "rb") as file:
        first = file.readline()
        try:
            known = msgspec.json.decode(first or b"{}")
        except msgspec.DecodeError:
            known = {}
        if not isinstance(known, dict) or "lens_export" not in known:
            raise LensError(f"{path} was not made by `lens db export`")
        if known["lens_export"] != FORMAT:
            raise LensError(f"{path} is of format {known['lens_export']}; this Lens reads format {FORMAT}")
        for number, line in enumerate(file, 2):
            try:
                yield _decode(line)
            except msgspec.DecodeError as error:
                raise LensError(f"{path}, line {number}: {error}") from None
