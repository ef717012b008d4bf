"""An owner that was superseded writes nothing, and the next one knows everything that it knew."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import pytest

from lens_core import LogLine, Origin, Position, Record
from lens_core.base.errors import SpoolError
from lens_core.cluster.connection import Connection, Fenced
from lens_core.cluster.key_values import KeyValues
from lens_core.cluster.log_stream import LogStream
from lens_core.cluster.messages import IN, MESSAGE_ID, OWNER, RECORDS, STATE, decode_output, make_parts
from lens_core.cluster.owner import PartitionOwner
from lens_core.cluster.partition_log import PartitionLog
from lens_core.cluster.server_checks import check_servers
from lens_core.cluster.tasks import cancel_tasks
from lens_core.config.loading import ClusterSettings
from lens_core.model.processing import Processed
from lens_core.testing import until
from tests.nats_servers import when_answered


class Counting:
    """Counts the lines of each job in its state, and adds to every line how many there were."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._before: dict[str, int] = {}

    def load(self, state: Mapping[str, bytes]) -> None:
        self.counts = {job: int(count) for job, count in state.items()}

    def process(self, records: Sequence[Record]) -> Processed:
        self._before = dict(self.counts)
        out: list[Record] = []
        for record in records:
            job = record.origin.workload_uid
            self.counts[job] = self.counts.get(job, 0) + 1
            out.append(LogLine(origin=record.origin, text=f"line {self.counts[job]}"))
        changes = {job: str(n).encode() for job, n in self.counts.items() if self._before.get(job) != n}
        return Processed(records=out, state_changes=changes)

    def end_jobs(self, is_over: Callable[[Origin], bool]) -> Mapping[str, bytes | None]:
        return {}

    def rollback(self) -> None:
        self.counts = self._before


@pytest.fixture
async def stream(cluster_settings: dict[str, Any]) -> AsyncIterator[LogStream]:
    settings = ClusterSettings(**cluster_settings)
    connection = Connection(settings)
    await connection.connect()
    made = LogStream(connection, "p", 16 * 1024 * 1024, 0)
    await made.ensure_streams(await check_servers(settings))
    yield made
    await connection.close()


def owner_of(stream: LogStream, epoch: int, processor: Any) -> PartitionOwner:
    return PartitionOwner(
        stream, 0, epoch, processor, process=lambda one, records: one.process(records), keep=lambda done: done.records
    )


async def append_lines(stream: LogStream, *texts: str) -> None:
    for text in texts:
        record = LogLine(origin=Origin(workload_uid="job"), text=text)
        for part in make_parts(0, IN, [record], stream.connection.max_payload):
            headers = {MESSAGE_ID: part.message_id, RECORDS: "1"}
            await when_answered(partial(stream.append_to, 0, IN, part.body, headers))


async def numbers_made(stream: LogStream, count: int) -> list[str]:
    """Wait until owners have written so many messages and return them; a replica that answers may be behind."""
    ends = asyncio.get_running_loop().time() + 60
    while len(made := await _numbers_now(stream)) < count and asyncio.get_running_loop().time() < ends:
        await asyncio.sleep(0.02)
    return made


async def _numbers_now(stream: LogStream) -> list[str]:
    from lens_core.model.records import decode_envelope

    made: list[str] = []
    position = 0
    while found := await stream.read_after(0, OWNER, position):
        position = found[-1].sequence
        for message in found:
            output = decode_output(message.body) if message.body else None
            if output is not None and output.envelope:
                made += [record.text for record in decode_envelope(output.envelope).records]  # type: ignore[union-attr]
    return made


@contextlib.asynccontextmanager
async def running(owner: PartitionOwner) -> AsyncIterator[asyncio.Task[None]]:
    task = asyncio.create_task(when_answered(owner.own_partition))
    await until(lambda: owner.is_loaded or task.done(), "the owner has taken over")
    yield task
    await cancel_tasks([task])


async def test_the_next_owner_goes_on_where_the_one_before_ended(stream: LogStream) -> None:
    await append_lines(stream, "a", "b")
    first = owner_of(stream, 1, Counting())
    async with running(first):
        await until(lambda: first.input[0] >= 2, "two lines are processed")
    await append_lines(stream, "c", "d")
    async with running(owner_of(stream, 2, counting := Counting())):
        await until(lambda: counting.counts.get("job") == 4, "four lines are processed")
        assert await numbers_made(stream, 4) == ["line 1", "line 2", "line 3", "line 4"]


async def test_an_owner_that_was_superseded_writes_nothing_more(stream: LogStream) -> None:
    zombie = owner_of(stream, 1, Counting())
    async with running(zombie) as task:
        await append_lines(stream, "a")
        await until(lambda: zombie.input[0] >= 1, "a line is processed")
        async with running(owner_of(stream, 2, counting := Counting())):
            await append_lines(stream, "b")
            with pytest.raises(Fenced):
                await asyncio.wait_for(asyncio.shield(task), 20)
            with pytest.raises(Fenced):
                await zombie._append_output(Processed(records=[], state_changes={"job": b"99"}), 99, 0)
            await until(lambda: counting.counts.get("job") == 2, "the new owner has the line")
    assert await numbers_made(stream, 2) == ["line 1", "line 2"]


async def test_a_snapshot_stands_for_what_was_deleted(stream: LogStream) -> None:
    await append_lines(stream, *map(str, range(12)))
    first = owner_of(stream, 1, Counting())
    async with running(first):
        await until(lambda: first._state.get("job") == b"12", "all are processed")
    await first.write_snapshot()
    await stream.trim(0, OWNER, min(first.covered + 1, first.last))
    await stream.trim(0, IN, first.input[0] + 1)
    await first.write_snapshot()  # nothing is new: no second one
    second = owner_of(stream, 2, counting := Counting())
    async with running(second):
        assert counting.counts == {"job": 12}
        assert second.input == first.input
        await append_lines(stream, "more")
        await until(lambda: counting.counts["job"] == 13, "one more")
    newest = await stream.read_newest(0, STATE)
    assert newest is not None
    assert newest.sequence == second._state_last


async def test_a_result_that_is_too_large_for_one_message_is_written_in_parts(stream: LogStream) -> None:
    class Inflating(Counting):
        def process(self, records: Sequence[Record]) -> Processed:
            done = super().process(records)
            noise = [__import__("secrets").token_hex(150_000) for _ in done.records]
            out = [LogLine(origin=one.origin, text=text) for one, text in zip(done.records, noise, strict=True)]
            return Processed(records=out, state_changes=done.state_changes)

    lines = [LogLine(origin=Origin(workload_uid="job"), text=str(number)) for number in range(20)]
    (part,) = make_parts(0, IN, lines, stream.connection.max_payload)
    headers = {MESSAGE_ID: part.message_id, RECORDS: "20"}
    await when_answered(partial(stream.append_to, 0, IN, part.body, headers))
    owner = owner_of(stream, 1, Inflating())
    async with running(owner):
        await until(lambda: owner._state.get("job") == b"20" and owner.input[1] == 0, "all are processed")
    assert len(await numbers_made(stream, 20)) == 20


async def test_a_superseded_delivery_moves_no_position(stream: LogStream) -> None:
    keys = KeyValues(stream.connection, f"{stream.connection.settings.name}_state")
    await keys.ensure_bucket()
    old, new = (PartitionLog(stream, 0, "sink", epoch, keys) for epoch in (1, 2))
    await old.find_position()
    await new.find_position()
    await new.advance("sink", Position(5, 1), 0)
    with pytest.raises(SpoolError, match="another daemon"):
        await old.advance("sink", Position(3, 1), 0)
    again = PartitionLog(stream, 0, "sink", 3, keys)
    await again.find_position()
    assert again.sink_state("sink").cursor == Position(5, 1)


async def test_a_position_whose_write_was_never_answered_is_written_all_the_same(stream: LogStream) -> None:
    keys = KeyValues(stream.connection, f"{stream.connection.settings.name}_state")
    await keys.ensure_bucket()
    log = PartitionLog(stream, 0, "sink", 4, keys)
    await log.find_position()
    await keys.write_entry("positions.p.0.sink", "7.1.4", 0)  # as the lost answer would have said
    await log.advance("sink", Position(8, 1), 0)
    await log.advance("sink", Position(9, 1), 0)
    entry = await keys.read_entry("positions.p.0.sink")
    assert entry is not None
    assert entry.text == f"9.1.4.{stream.mark}"
