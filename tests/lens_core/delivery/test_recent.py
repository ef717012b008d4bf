"""Batches in memory equal those of the file, and stay within their limit."""

from __future__ import annotations

import asyncio
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import BatchLimits, StepMetrics
from lens_core.delivery.sending.cursor import Unpacked
from lens_core.delivery.spool import file as spool_file
from lens_core.delivery.spool.batches import Chunk, NewBatch, RecentBatches
from lens_core.delivery.spool.sink_state import SpooledBatch
from lens_core.delivery.spool.spool import Spool
from lens_core.model.record_filter import EVERYTHING, Matcher
from lens_core.model.records import encode_envelope
from lens_core.plugin_api.sink_answers import Position
from tests.generated import examples

WIDE = BatchLimits()


def body_of(steps: range) -> bytes:
    return encode_envelope([StepMetrics(data_source="w", row_step=step, values={"a": 1.0}) for step in steps], 1.0)


def hold(recent: RecentBatches, number: int, steps: range, only_sink: str = "") -> None:
    body = body_of(steps)
    recent.append_batch(SpooledBatch(number, 1.0, len(steps), len(body), only_sink, len(body)), body)


def steps_of(chunk: Chunk | None) -> list[int]:
    assert chunk is not None
    return [one.row_step for one in Unpacked(chunk, Matcher(EVERYTHING)).records if isinstance(one, StepMetrics)]


def test_the_second_sink_gets_the_same_objects_and_its_own_part_of_them() -> None:
    recent = RecentBatches()
    hold(recent, 1, range(10))
    hold(recent, 2, range(10, 12))
    whole = recent.chunk("a", Position(0, 0), WIDE)
    assert steps_of(whole) == list(range(12))
    part = recent.chunk("b", Position(1, 3), BatchLimits(max_records=2))
    assert part is not None
    assert part.segments[0].body == b""
    assert (steps_of(part), part.end, part.size) == ([3, 4], Position(1, 5), 0)


def test_a_segment_that_was_cut_before_another_sink_has_decoded_the_batch_can_be_read() -> None:
    recent = RecentBatches()
    hold(recent, 1, range(10))
    first, second = (recent.chunk(sink, Position(0, 0), WIDE) for sink in "ab")
    assert steps_of(first) == steps_of(second) == list(range(10))


def test_the_oldest_make_room_and_are_asked_of_the_file() -> None:
    recent = RecentBatches(max_bytes=3 * len(body_of(range(10))))
    for number in range(1, 6):
        hold(recent, number, range(10))
    assert recent.chunk("a", Position(1, 10), WIDE) is None
    assert len(steps_of(recent.chunk("a", Position(2, 10), WIDE))) == 30
    hold(recent, 6, range(1000))
    assert recent.chunk("a", Position(2, 10), WIDE) is None
    assert recent.chunk("a", Position(6, 1000), WIDE) is None


def test_what_all_have_taken_is_let_go() -> None:
    recent = RecentBatches()
    hold(recent, 1, range(10))
    hold(recent, 2, range(10))
    recent.drop_passed(Position(2, 4))
    assert recent.chunk("a", Position(0, 0), WIDE) is None
    assert steps_of(recent.chunk("a", Position(2, 4), WIDE)) == [4, 5, 6, 7, 8, 9]


def test_what_was_there_before_is_not_missed() -> None:
    recent = RecentBatches()
    recent.restart(Position(7, 3))
    hold(recent, 8, range(2))
    assert recent.chunk("a", Position(7, 1), WIDE) is None
    assert steps_of(recent.chunk("a", Position(7, 3), WIDE)) == [0, 1]


def test_a_replay_is_for_its_sink_alone() -> None:
    recent = RecentBatches()
    hold(recent, 1, range(2), only_sink="a")
    hold(recent, 2, range(2, 4))
    assert steps_of(recent.chunk("a", Position(0, 0), WIDE)) == [0, 1, 2, 3]
    assert steps_of(recent.chunk("b", Position(0, 0), WIDE)) == [2, 3]


async def compare(path: Path, sizes: list[int], most: int, held: int) -> None:
    """Chunk by chunk, memory (as far as it reaches) and file give the same."""
    spool = Spool(path / "p.spool")
    await spool.open({"a": True})
    spool.engine.recent = RecentBatches(held)
    limits = BatchLimits(max_records=most)
    await spool.append_all([NewBatch(body_of(range(size)), size) for size in sizes])
    start = Position(0, 0)
    while True:
        read = await spool.run_in_reader(lambda c, at=start: spool_file.read_chunk(c, "a", at, limits))  # type: ignore[misc]
        if read is None:
            break
        recent = spool.engine.recent.chunk("a", start, limits)
        if recent is not None:
            assert (recent.end, recent.size, steps_of(recent)) == (read.end, read.size, steps_of(read))
        start = read.end
    assert spool.engine.recent.chunk("a", start, limits) is None
    await spool.close()


@settings(max_examples=examples(15), deadline=None)
@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=6), most=st.integers(1, 12), held=st.integers(200, 2000))
def test_memory_gives_what_the_file_gives(tmp_path_factory: object, sizes: list[int], most: int, held: int) -> None:
    folder = tmp_path_factory.mktemp("spool")  # type: ignore[attr-defined]
    asyncio.run(compare(folder, sizes, most, held))
