"""A daemon asks NATS for what has changed, hears of its own partitions only, and is quiet where nothing comes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import nats.js.errors
import pytest

from lens_core import Position
from lens_core.base.errors import Overloaded
from lens_core.cluster import connection as connection_module
from lens_core.cluster.connection import Connection
from lens_core.cluster.follower import Follower
from lens_core.cluster.key_values import KeyValues, KnownEntries
from lens_core.cluster.log_stream import LogStream
from lens_core.cluster.messages import MESSAGE_ID, OUT, ROWS
from lens_core.cluster.partition_log import PartitionLog
from lens_core.cluster.server_checks import check_servers
from lens_core.cluster.tasks import cancel_tasks
from lens_core.config.loading import ClusterSettings
from lens_core.testing import until
from tests.nats_servers import when_answered


@contextlib.asynccontextmanager
async def connected(settings: dict[str, Any]) -> AsyncIterator[tuple[Connection, LogStream]]:
    """A connection as of one daemon, with the streams of a pipeline."""
    connection = Connection(ClusterSettings(**settings))
    await connection.connect()
    try:
        stream = LogStream(connection, "p", 16 * 1024 * 1024, 0)
        await stream.ensure_streams(await check_servers(connection.settings))
        yield connection, stream
    finally:
        await connection.close()


@pytest.fixture
async def both(cluster_settings: dict[str, Any]) -> AsyncIterator[list[tuple[Connection, LogStream]]]:
    """Two daemons' connections and streams."""
    async with connected(cluster_settings) as one, connected(cluster_settings) as other:
        yield [one, other]


Both = list[tuple[Connection, LogStream]]


async def keys_of(connection: Connection) -> KeyValues:
    keys = KeyValues(connection, f"{connection.settings.name}_state")
    await keys.ensure_bucket()
    return keys


async def until_read(known: KnownEntries, wanted: dict[str, str]) -> None:
    """Read again until the values are these; a replica that answers may be behind."""
    ends = asyncio.get_running_loop().time() + 60
    while {key: entry.text for key, entry in (await known.read_again()).items()} != wanted:
        assert asyncio.get_running_loop().time() < ends, known.entries
        await asyncio.sleep(0.02)


async def test_known_values_follow_every_change_and_a_bucket_that_was_made_anew(both: Both) -> None:
    (connection, _), (other_connection, _) = both
    keys, other = await keys_of(connection), await keys_of(other_connection)
    known = KnownEntries(keys, "leases")
    for number in range(5):
        await when_answered(partial(other.write_entry, f"leases.{number}", "a"))
    await until_read(known, {f"leases.{number}": "a" for number in range(5)})
    await other.write_entry("leases.3", "b")
    await until_read(known, {f"leases.{number}": "b" if number == 3 else "a" for number in range(5)})
    await connection.jetstream.delete_stream(keys.stream)
    await keys.ensure_bucket()
    await when_answered(partial(other.write_entry, "leases.1", "c"))
    await until_read(known, {"leases.1": "c"})


async def test_more_values_are_read_than_nats_answers_at_once(both: Both) -> None:
    keys = await keys_of(both[0][0])
    wanted = {f"leases.partition.{number}": str(number) for number in range(1100)}
    await when_answered(partial(keys.write_entry, "leases.partition.0", "0"))
    for first in range(1, 1100, 100):
        names = list(wanted)[first : first + 100]
        await asyncio.gather(*(keys.write_entry(name, wanted[name]) for name in names))
    await until_read(KnownEntries(keys, "leases"), wanted)


async def append(stream: LogStream, partition: int, text: str) -> int:
    return await when_answered(partial(stream.append_to, partition, ROWS, text.encode(), {MESSAGE_ID: text}))


@contextlib.asynccontextmanager
async def following(stream: LogStream, partition: int) -> AsyncIterator[tuple[Follower, list[str]]]:
    """A follower of a partition, and the bodies that it has found."""
    follower, found = Follower(stream, partition, OUT, 0), list[str]()

    async def read() -> None:
        async with contextlib.aclosing(follower.batches(600.0)) as batches:
            async for messages in batches:
                found.extend(message.body.decode() for message in messages)

    task = asyncio.create_task(read())
    try:
        await until(lambda: follower.is_at_end, "all that is there was read")
        yield follower, found
    finally:
        await cancel_tasks([task])


async def test_a_follower_is_told_of_its_partition_and_reads_nothing_else(both: Both) -> None:
    (_, stream), (_, other) = both
    async with following(stream, 1) as (_, found):
        reads: list[int] = []
        read_after = stream.read_after

        async def counted(partition: int, *arguments: Any, **options: Any) -> Any:
            reads.append(partition)
            return await read_after(partition, *arguments, **options)

        stream.read_after = counted  # type: ignore[method-assign]
        for number in range(20):
            await append(other, 2, f"elsewhere {number}")
        await append(other, 1, "mine")
        await until(lambda: found == ["mine"], "it was told of its message")
        assert set(reads) == {1}
        assert len(reads) < 10, "not once for each message of others"
    async with following(stream, 1) as (_, found):
        assert found == ["mine"]
        assert not stream._subscriptions.keys() - {(1, "out")}
    assert not stream._subscriptions, "nothing is listened to any more"


async def test_a_message_of_which_nobody_told_is_found_when_the_stream_is_looked_at(both: Both) -> None:
    (_, stream), (other_connection, other) = both

    async def tell_nobody(*_: object, **__: object) -> None:
        pass

    other_connection.notify = tell_nobody  # type: ignore[method-assign]
    async with following(stream, 1) as (_, found):
        await append(other, 1, "silent")
        await when_answered(stream.refresh)
        await until(lambda: found == ["silent"], "the stream has grown")


async def test_the_position_of_a_sink_that_keeps_its_own_is_written_now_and_then(both: Both) -> None:
    connection, stream = both[0]
    keys = await keys_of(connection)
    log = PartitionLog(stream, 0, "sink", 4, keys, is_kept_by_sink=True)
    await when_answered(log.find_position)
    for batch in range(1, 4):
        await log.advance("sink", Position(batch, 1), 0)
    assert await keys.read_entry("positions.p.0.sink") is None
    await when_answered(log.keep_position)
    entry = await keys.read_entry("positions.p.0.sink")
    assert entry is not None
    assert entry.text == f"3.1.4.{stream.mark}"
    await log.keep_position()
    again = await keys.read_entry("positions.p.0.sink")
    assert again == entry, "nothing has moved since"


async def test_a_stream_that_is_made_just_now_is_waited_for(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RECONNECT_SECONDS", 240.0)
    (connection, _), (other, _) = both
    name = f"{connection.settings.name}_late"
    with pytest.raises(nats.js.errors.NotFoundError):
        await connection.jetstream.stream_info(name)
    reading = asyncio.create_task(connection.read_messages(name, f"{name}.x", 0))
    await other.jetstream.add_stream(name=name, subjects=[f"{name}.*"], num_replicas=3, allow_direct=True)
    assert await reading == []


async def test_a_stream_that_is_not_there_is_not_waited_for_long(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "RECONNECT_SECONDS", 0.1)
    with pytest.raises(Overloaded, match="no server answers for its streams"):
        await both[0][0].read_messages("nowhere", "nowhere.x", 0)
