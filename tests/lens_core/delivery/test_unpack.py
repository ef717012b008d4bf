"""From spooled bytes to records with places: filters, parts of batches, unreadable records."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from lens_core import Event, LogLine, Position, Record, StepMetrics
from lens_core.delivery.sending.cursor import Unpacked
from lens_core.delivery.sending.policy import Part
from lens_core.delivery.spool.batches import Chunk, Segment
from lens_core.model.record_filter import EVERYTHING, Matcher
from lens_core.model.records import Envelope, decode_envelope, encode_envelope

ALL = Matcher(EVERYTHING)
ROWS = Matcher(EVERYTHING, (StepMetrics,))


def row(step: int) -> StepMetrics:
    return StepMetrics(data_source="wandb", row_step=step, values={"x": 1.0})


def segment(batch: int, records: list[Record], first: int = 0, last: int | None = None) -> Segment:
    return raw_segment(batch, encode_envelope(records), len(records), first, last)


def raw_segment(batch: int, body: bytes, records: int, first: int = 0, last: int | None = None) -> Segment:
    end = records if last is None else last
    return Segment(batch, first, end, records, len(body), 0.0, body)


def chunk(*segments: Segment) -> Chunk:
    return Chunk(Position(0, 0), Position(segments[-1].batch, segments[-1].last), list(segments))


def with_unknown(*records: object) -> bytes:
    """An envelope with records of a kind that nobody knows where None is."""
    parts = [msgspec.msgpack.encode({"record": "from_the_future"} if r is None else r) for r in records]
    return msgspec.msgpack.encode(Envelope(records=[msgspec.Raw(part) for part in parts]))


def test_everything_wanted_is_the_quick_case() -> None:
    found = Unpacked(chunk(segment(1, [row(1), row(2)]), segment(2, [row(3)])), ALL)
    assert found.records == [row(1), row(2), row(3)]
    assert found.ordinals is None
    assert [found.position(ordinal) for ordinal in range(4)] == [(0, 0), (1, 1), (1, 2), (2, 1)]


def test_what_a_sink_does_not_want_keeps_its_place() -> None:
    line = LogLine(text="x")
    found = Unpacked(chunk(segment(1, [line, row(1), line]), segment(2, [row(2), line])), ROWS)
    assert found.records == [row(1), row(2)]
    assert (found.total, found.ordinals) == (5, [1, 3])
    assert found.end_of(Part(0, 1)) == 2
    assert found.end_of(Part(1, 2)) == 5


def test_a_wanted_batch_after_an_unwanted_record_keeps_its_places() -> None:
    found = Unpacked(chunk(segment(1, [LogLine(text="x"), row(1)]), segment(2, [row(2), row(3)])), ROWS)
    assert found.ordinals == [1, 2, 3]


def test_a_part_of_a_batch() -> None:
    found = Unpacked(chunk(segment(5, [row(step) for step in range(10)], first=4, last=7)), ALL)
    assert [record.row_step for record in found.records if isinstance(record, StepMetrics)] == [4, 5, 6]
    assert [found.position(ordinal) for ordinal in (1, 3)] == [(5, 5), (5, 7)]


def test_a_record_that_cannot_be_read_is_kept_as_it_is_and_loses_no_other() -> None:
    body = with_unknown(row(1), None, row(2))
    found = Unpacked(chunk(raw_segment(1, body, 3)), ALL)
    assert found.records == [row(1), row(2)]
    assert found.ordinals == [0, 2]
    assert [(entry.first, entry.last) for entry in found.unreadable] == [(1, 2)]
    assert "from_the_future" in str(msgspec.msgpack.decode(found.unreadable[0].body))


def test_unreadable_records_outside_the_part_are_not_of_this_part() -> None:
    body = with_unknown(None, row(1), row(2), None)
    found = Unpacked(chunk(raw_segment(1, body, 4, first=1, last=3)), ALL)
    assert (found.records, found.unreadable) == ([row(1), row(2)], [])


def test_a_batch_that_the_disk_has_changed_is_not_believed() -> None:
    bad = segment(1, [row(1), row(2)])._replace(fault="the batch has changed on the disk (wrong checksum)")
    found = Unpacked(chunk(bad, segment(2, [row(3)])), ALL)
    assert found.records == [row(3)]
    assert [(entry.first, entry.last, entry.body) for entry in found.unreadable] == [(0, 2, bad.body)]
    assert "checksum" in found.unreadable[0].reason


def test_what_the_spool_has_packed_goes_with_all_of_its_records_only() -> None:
    whole = segment(1, [row(1), Event(type="t")])._replace(packed=b"packed")
    assert Unpacked(chunk(whole), ALL).packed == b"packed"
    assert Unpacked(chunk(whole), ROWS).packed is None
    assert Unpacked(chunk(whole._replace(last=1)), ALL).packed is None
    assert Unpacked(chunk(whole, segment(2, [row(3)])), ALL).packed is None
    assert Unpacked(chunk(segment(1, [row(1)])), ALL).packed is None


def test_a_batch_that_is_no_envelope_or_lies_about_its_size() -> None:
    found = Unpacked(chunk(raw_segment(1, b"\xc1garbage", 4), raw_segment(2, encode_envelope([row(1)]), 2)), ALL)
    assert found.records == []
    assert [(entry.first, entry.last) for entry in found.unreadable] == [(0, 4), (4, 6)]


kinds = st.sampled_from(["row", "line", "event", "unknown"])


@given(batches=st.lists(st.lists(kinds, min_size=1, max_size=6), min_size=1, max_size=5), cut=st.integers(0, 5))
def test_every_ordinal_is_wanted_or_unreadable_or_unwanted(batches: list[list[str]], cut: int) -> None:
    made: dict[str, Record | None] = {
        "row": row(1), "line": LogLine(text="x"), "event": Event(type="resumed"), "unknown": None
    }  # fmt: skip
    segments = [
        raw_segment(number, with_unknown(*(made[kind] for kind in batch)), len(batch), min(cut, len(batch) - 1))
        for number, batch in enumerate(batches, 1)
    ]
    flat = [kind for batch in batches for kind in batch[min(cut, len(batch) - 1) :]]
    found = Unpacked(chunk(*segments), ROWS)
    ordinals = found.ordinals if found.ordinals is not None else list(range(len(found.records)))
    assert found.total == len(flat)
    assert ordinals == [place for place, kind in enumerate(flat) if kind == "row"]
    assert [entry.first for entry in found.unreadable] == [
        place for place, kind in enumerate(flat) if kind == "unknown"
    ]
    positions = [found.position(ordinal) for ordinal in range(found.total + 1)]
    assert positions == sorted(set(positions))
    assert found.finished_bytes(0, found.total) == sum(len(piece.body) for piece in segments)
    assert all(decode_envelope(entry.body).rejected for entry in found.unreadable)
