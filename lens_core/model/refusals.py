"""Why a record is refused although every field has its type: facts that no JSON holds, chains without end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from .ranges import MAX_ANCESTORS, MAX_FACT_DEPTH, MAX_FACTS
from .records import Detection, Event, Evidence, Pod, Record, kind_of

_LARGEST = 2**63 - 1
# Errors of encoding: a number over 64 bits, an object of an unknown type, a lone surrogate, a list in itself.
_ENCODE_ERRORS = (OverflowError, TypeError, ValueError, RecursionError)
_encoder = msgspec.msgpack.Encoder()


class Rejection(msgspec.Struct, frozen=True):
    """One item of a body that was refused, as answers name it: its place from 0, and why."""

    index: int
    reason: str


def why_refused(record: Record) -> str:
    """Why this record cannot be taken; '' if it can. Its fields' types are checked where it is decoded."""
    kind = type(record)
    if kind is Evidence or kind is Detection:
        return why_no_facts(record.facts)  # type: ignore[attr-defined]
    if kind is Event:
        return why_no_facts(record.details)  # type: ignore[attr-defined]
    if kind is Pod:
        return why_no_ancestors({work.uid: work.parent_uid for work in record.workloads})  # type: ignore[attr-defined]
    return ""


def sift_encodable(records: Sequence[Record]) -> tuple[list[Record], list[str]]:
    """Those of the records that can be stored, and why not the others; slow, for when storing all of them failed."""
    good: list[Record] = []
    reasons: list[str] = []
    for record in records:
        try:
            _encoder.encode(record)
            good.append(record)
        except _ENCODE_ERRORS as error:
            reasons.append(f"a {kind_of(record)} cannot be encoded: {error}")
    return good, reasons


def why_no_facts(facts: Mapping[str, Any]) -> str:
    """Why these facts cannot be kept; '' if they can. They must be what JSON can hold, and neither deep nor many."""
    waiting: list[tuple[Any, int]] = [(facts, 0)]
    seen = 0
    while waiting:
        value, depth = waiting.pop()
        kind = type(value)
        if kind is dict or isinstance(value, Mapping):
            if not all(type(key) is str for key in value):
                return "a key of the facts is not a text"
            parts = value.values()
        elif isinstance(value, list | tuple):
            parts = value
        elif kind is int:
            if not -_LARGEST - 1 <= value <= _LARGEST:
                return "a number of the facts does not fit in 64 bits"
            continue
        elif value is None or kind in (str, float, bool):
            continue
        else:
            return f"the facts hold a {kind.__name__}, which JSON does not have"
        seen += len(parts)
        if depth >= MAX_FACT_DEPTH:
            return f"the facts are nested more than {MAX_FACT_DEPTH} levels deep"
        if seen > MAX_FACTS:
            return f"the facts have more than {MAX_FACTS:,} parts"
        waiting.extend((part, depth + 1) for part in parts)
    return ""


def why_no_ancestors(parents: Mapping[str, str]) -> str:
    """Why workloads (uid → uid of the parent, or '') cannot be kept; '' if they can.

    A chain may have `MAX_ANCESTORS` links; a circle ends where it began.
    """
    for uid, parent in parents.items():
        passed = {uid}
        while parent and parent not in passed:
            passed.add(parent)
            if len(passed) > MAX_ANCESTORS + 1:
                return f"the workload {uid[:100]} has more than {MAX_ANCESTORS} ancestors"
            parent = parents.get(parent, "")
    return ""
