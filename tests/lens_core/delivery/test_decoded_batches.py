from __future__ import annotations

from lens_core import StepMetrics
from lens_core.delivery import spool_file
from lens_core.delivery.answers import Position
from lens_core.delivery.spool_queries import Chunk, Segment
from lens_core.delivery.unpack import DecodedBatches, Unpacked
from lens_core.record_filter import EVERYTHING, Matcher
from lens_core.records import encode_envelope


def segment(batch: int, steps: range, first: int = 0, last: int | None = None) -> Segment:
    body = encode_envelope([StepMetrics(data_source="w", row_step=step, values={"a": 1.0}) for step in steps], 1.0)
    return Segment(
        batch=batch,
        first=first,
        last=len(steps) if last is None else last,
        records=len(steps),
        size=len(body),
        created_at=1.0,
        checksum=spool_file.checksum(body),
        body=body,
    )


def steps_of(decoded: DecodedBatches | None, *segments: Segment) -> list[int]:
    chunk = Chunk(Position(0, 0), Position(segments[-1].batch, segments[-1].last), list(segments))
    unpacked = Unpacked(chunk, Matcher(EVERYTHING), decoded)
    return [record.row_step for record in unpacked.records if isinstance(record, StepMetrics)]


def test_the_second_sink_gets_the_same_records_and_its_own_part_of_them() -> None:
    decoded = DecodedBatches()
    whole, part = segment(1, range(10)), segment(1, range(10), 3, 5)
    assert steps_of(decoded, whole) == list(range(10))
    kept = decoded.get(whole)
    assert kept is not None
    assert steps_of(decoded, part, segment(2, range(20, 22))) == [3, 4, 20, 21]
    assert decoded.get(part) is kept
    assert len(kept) == 10


def test_another_batch_of_the_same_number_is_not_taken_for_it() -> None:
    decoded = DecodedBatches()
    steps_of(decoded, segment(1, range(10)))
    assert steps_of(decoded, segment(1, range(50, 60))) == list(range(50, 60))


def test_it_is_bounded_and_the_oldest_make_room() -> None:
    decoded = DecodedBatches(max_bytes=3 * len(segment(1, range(10)).body))
    segments = [segment(number, range(10)) for number in range(1, 6)]
    for one in segments:
        steps_of(decoded, one)
    assert [decoded.get(one) is not None for one in segments] == [False, False, True, True, True]
    large = segment(9, range(1000))
    steps_of(decoded, large)
    assert decoded.get(large) is None
