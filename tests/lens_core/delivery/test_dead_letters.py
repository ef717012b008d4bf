"""Dead letters: listed, bounded, replayed to their own sink, never lost on the way."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from lens_core import BatchLimits, Origin, Overloaded, Position, StepMetrics
from lens_core.base.errors import LensError
from lens_core.delivery.dead_letters import DeadLetters
from lens_core.delivery.spool.spool import DeadLetter, Spool
from lens_core.model.records import Envelope, decode_envelope, encode_envelope
from tests.lens_core.delivery.noise import noise

ALL = BatchLimits(max_records=1_000_000, max_bytes=1 << 30)


def letter(step: int) -> DeadLetter:
    row = StepMetrics(origin=Origin(pod_name="p"), data_source="wandb", row_step=step, values={"x": 1.0})
    return DeadLetter(f"reason {step}", encode_envelope([row], received_at=1000.0 + step))


async def refused(spool: Spool, sink: str, *steps: int) -> None:
    """A batch of which these records are refused."""
    await spool.append(b"batch", len(steps))
    chunk = await spool.read_chunk(sink, ALL)
    assert chunk is not None
    await spool.advance(sink, chunk.end, chunk.records, 5, [letter(step) for step in steps])


async def steps_of(spool: Spool, sink: str) -> list[int]:
    chunk = await spool.read_chunk(sink, ALL)
    records = [decode_envelope(segment.body).records for segment in chunk.segments] if chunk else []
    return [record.row_step for batch in records for record in batch if isinstance(record, StepMetrics)]


@pytest.fixture(params=["disk", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "x.spool" if request.param == "disk" else None


async def test_they_are_listed_in_order_by_sink_and_in_pages(path: Path | None) -> None:
    spool = Spool(path)
    await spool.open({"a": True, "b": True})
    letters = DeadLetters(spool)
    await refused(spool, "a", 1, 2, 3)
    await refused(spool, "b", 4)
    assert (letters.count_letters(), letters.count_letters("a"), letters.count_letters("b")) == (4, 3, 1)
    page = await letters.entries("a", limit=2)
    rest = await letters.entries("a", limit=2, after_id=page[-1].id)
    assert [entry.record["row_step"] for entry in page + rest] == [1, 2, 3]
    assert [entry.reason for entry in await letters.entries("b")] == ["reason 4"]
    assert len(await letters.entries()) == 4
    await spool.close()


async def test_their_reasons_are_listed_the_newest_first(path: Path | None) -> None:
    spool = Spool(path)
    await spool.open({"a": True, "b": True})
    letters = DeadLetters(spool)
    await refused(spool, "a", 1, 1, 2)
    await refused(spool, "b", 4)
    found = await letters.reasons()
    assert [(one.sink, one.reason, one.records) for one in found] == [
        ("b", "reason 4", 1),
        ("a", "reason 2", 1),
        ("a", "reason 1", 2),
    ]
    assert found == [*await letters.reasons("b"), *await letters.reasons("a")]
    assert await letters.reasons(limit=1) == found[:1]
    assert all(one.first_at <= one.last_at and one.bytes > 0 for one in found)
    await spool.close()


async def test_the_newest_reason_is_known_at_once_and_after_a_restart(tmp_path: Path) -> None:
    for expected in ("", "reason 2"):
        spool = Spool(tmp_path / "x.spool")
        await spool.open({"a": True})
        assert spool.sink_state("a").take_snapshot().dead_letter_reason == expected
        if not expected:
            await refused(spool, "a", 1, 2)
        assert spool.sink_state("a").take_snapshot().dead_letter_reason == "reason 2"
        if expected:
            await DeadLetters(spool).replay_letters("a")
            assert spool.sink_state("a").take_snapshot().dead_letter_reason == ""
        await spool.close()


async def test_replay_gives_them_to_their_own_sink_and_removes_them(path: Path | None) -> None:
    spool = Spool(path)
    await spool.open({"a": True, "b": True})
    letters = DeadLetters(spool)
    await refused(spool, "a", 1, 2)
    await refused(spool, "b", 3)
    await spool.advance("a", Position(2, 1), 1, 5)
    pending_b = spool.pending("b").records
    assert await letters.replay_letters("a") == 2
    assert await steps_of(spool, "a") == [1, 2]
    assert spool.pending("b").records == pending_b
    assert (letters.count_letters("a"), letters.count_letters("b")) == (0, 1)
    assert [entry.sink for entry in await letters.entries()] == ["b"]
    assert spool.sink_state("a").take_snapshot().counts["accepted", ""] == 5
    assert await letters.replay_letters("a") == 0
    await spool.close()


async def test_what_was_written_without_its_origin_keeps_it(path: Path | None) -> None:
    """As those are that could not be read: their bytes, in an envelope that has the origin of their batch."""
    spool = Spool(path)
    await spool.open({"a": True})
    rows = [StepMetrics(data_source="wandb", row_step=step, values={}) for step in range(4)]
    bodies = [
        msgspec.msgpack.encode(
            Envelope(origin=Origin(pod_name=pod), records=[msgspec.Raw(msgspec.msgpack.encode(row))])
        )
        for pod, row in zip("aabb", rows, strict=True)
    ]
    await spool.append(b"batch", 4)
    await spool.advance("a", Position(1, 4), 4, 5, [DeadLetter("why", body) for body in bodies])
    entries = await DeadLetters(spool).entries()
    assert [entry.record["origin"] for entry in entries] == [{"pod_name": pod} for pod in "aabb"]
    assert await DeadLetters(spool).replay_letters("a") == 4
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    found = [record for segment in chunk.segments for record in decode_envelope(segment.body).records]
    assert [record.origin.pod_name for record in found] == list("aabb")
    await spool.close()


async def test_a_replay_keeps_when_the_records_were_received(path: Path | None) -> None:
    spool = Spool(path)
    await spool.open({"a": True})
    await refused(spool, "a", 7, 5)
    await DeadLetters(spool).replay_letters("a")
    chunk = await spool.read_chunk("a", ALL)
    assert chunk is not None
    assert decode_envelope(chunk.segments[0].body).received_at == 1005.0
    await spool.close()


async def test_many_are_replayed_in_steps_and_unreadable_ones_stay(path: Path | None) -> None:
    spool = Spool(path)
    await spool.open({"a": True})
    await refused(spool, "a", *range(2500))
    await spool.append(b"batch", 1)
    await spool.advance("a", Position(2, 1), 1, 5, [DeadLetter("no envelope", b"\xc1")])
    letters = DeadLetters(spool)
    assert await letters.replay_letters("a") == 2500
    assert await steps_of(spool, "a") == list(range(2500))
    assert [entry.reason for entry in await letters.entries()] == ["no envelope"]
    assert letters.count_letters("a") == 1
    await spool.close()


async def test_a_full_spool_refuses_a_replay_and_keeps_the_letters(path: Path | None) -> None:
    spool = Spool(path, max_bytes=4000, max_dead_letter_bytes=1 << 20)
    await spool.open({"a": True})
    letters = DeadLetters(spool)
    await refused(spool, "a", 1, 2, 3)
    await spool.append(noise(3900), 1)
    with pytest.raises(Overloaded):
        await letters.replay_letters("a")
    assert letters.count_letters("a") == len(await letters.entries("a")) == 3
    await spool.close()


async def test_the_oldest_make_room_for_new_ones(path: Path | None) -> None:
    size = len(letter(1).body)
    spool = Spool(path, max_dead_letter_bytes=size * 3)
    await spool.open({"a": True, "b": True})
    await refused(spool, "a", 1, 2)
    await refused(spool, "b", 3, 4)
    letters = DeadLetters(spool)
    assert [entry.record["row_step"] for entry in await letters.entries()] == [2, 3, 4]
    assert (letters.count_letters("a"), letters.count_letters("b")) == (1, 2)
    assert spool.spool_status().dead_letters_discarded == 1
    await spool.close()


async def test_they_survive_a_restart_and_the_removal_of_their_sink(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = Spool(path)
    await spool.open({"a": True})
    await refused(spool, "a", 1)
    await spool.close()
    spool = Spool(path)
    await spool.open({"other": True})
    letters = DeadLetters(spool)
    assert [entry.sink for entry in await letters.entries()] == ["a"]
    with pytest.raises(LensError, match="no sink 'a'"):
        await letters.replay_letters("a")
    await spool.close()
    spool = Spool(path)
    await spool.open({"a": True})
    assert DeadLetters(spool).count_letters("a") == 1
    assert await DeadLetters(spool).replay_letters("a") == 1
    await spool.close()


async def test_what_was_replayed_for_a_sink_that_is_gone_is_dropped(tmp_path: Path) -> None:
    path = tmp_path / "x.spool"
    spool = Spool(path)
    await spool.open({"a": True, "b": True})
    await refused(spool, "b", 1)
    await DeadLetters(spool).replay_letters("b")
    await spool.close()
    spool = Spool(path)
    await spool.open({"a": True})
    assert spool.pending("a").records == 1
    await spool.close()
