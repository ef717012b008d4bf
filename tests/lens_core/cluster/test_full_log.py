"""A log that is full because of a sink refuses at every daemon, and takes again once the sink has caught up."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any, ClassVar

from lens_core import Answer, Batch, Delivered, LogLine, Retry, Sink, StepMetrics
from lens_core.model.records import encode_envelope
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.cluster_fleet import line
from tests.lens_core.cluster.conftest import Daemons
from tests.lens_core.cluster.test_cluster_road import row

# What a daemon has dropped is counted by that daemon.
LEASE_SECONDS = 6.0


class Blocked(Sink):
    """Answers Retry until it is opened, then keeps the steps."""

    name = "blocked"
    is_open: ClassVar[bool] = False
    steps: ClassVar[list[int]] = []

    async def send(self, batch: Batch) -> Answer:
        if not Blocked.is_open:
            return Retry("not yet", after_seconds=0.05)
        Blocked.steps += [record.row_step for record in batch.records if isinstance(record, StepMetrics)]
        return Delivered()


async def status_of_send(lens: RunningLens, step: int) -> int:
    wide = StepMetrics(
        origin=row("job", step).origin,
        data_source="w",
        run_id="r",
        row_step=step,
        sequence=step + 1,
        values={f"metric-{number}-{step * 7919 % 10007}": float(number) / (step + 3) for number in range(400)},
    )
    answer = await lens.post("/records", encode_envelope([wide]), content_type="application/msgpack")
    if answer.status_code == 503:
        assert "retry-after" in answer.headers
        assert "full" in answer.text
    return answer.status_code


async def test_a_full_log_is_answered_503_until_the_sink_has_caught_up(daemons: Daemons) -> None:
    Blocked.is_open, Blocked.steps = False, []
    config: dict[str, Any] = {"sinks": {"b": {"type": "blocked"}}, "spool": {"max_bytes": 64 * 1024}}
    both = [await daemons(config, Blocked), await daemons(config, Blocked)]
    taken = []
    for step in range(200):
        status = await status_of_send(both[step % 2], step)
        if status == 503:
            break
        assert status == 200
        taken.append(step)
    assert 0 < len(taken) < 200
    assert await status_of_send(both[(step + 1) % 2], step) == 503
    Blocked.is_open = True
    await until(lambda: set(Blocked.steps) >= set(taken), "the sink gets what was taken")
    while await status_of_send(both[0], step) != 200:
        await asyncio.sleep(0.1)
    await until(lambda: step in Blocked.steps, "the refused row, too")
    assert sorted(Blocked.steps) == [*taken, step]


async def test_lines_that_fill_the_log_are_processed_once_there_is_room(daemons: Daemons) -> None:
    """The input alone may fill its stream, and the output its own: both drain when the sink does."""
    Blocked.is_open, Blocked.steps = False, []
    config: dict[str, Any] = {"sinks": {"b": {"type": "blocked"}}, "spool": {"max_bytes": 64 * 1024}}
    lens = await daemons(config, Blocked)
    taken = []
    for step in range(1, 400):
        noise = secrets.token_hex(400)
        made = line(step)
        lines = [made, *(LogLine(origin=made.origin, text=noise + str(n), event_time=float(step)) for n in range(3))]
        answer = await lens.post("/records", encode_envelope(lines), content_type="application/msgpack")
        if answer.status_code == 503:
            break
        taken.append(step)
    assert len(taken) < 399
    Blocked.is_open = True
    await until(lambda: len(set(Blocked.steps)) == len(taken), "every step")
    assert sorted(Blocked.steps) == taken


class Steady(Sink):
    """Keeps the steps at once."""

    name = "steady"
    steps: ClassVar[list[int]] = []

    async def send(self, batch: Batch) -> Answer:
        Steady.steps += [record.row_step for record in batch.records if isinstance(record, StepMetrics)]
        return Delivered()


async def test_an_optional_sink_that_is_behind_loses_the_oldest_and_refuses_nobody(daemons: Daemons) -> None:
    Blocked.is_open, Blocked.steps, Steady.steps = False, [], []
    config: dict[str, Any] = {
        "sinks": {"b": {"type": "blocked", "required": False}, "s": {"type": "steady"}},
        "spool": {"max_bytes": 128 * 1024},
    }
    lens = await daemons(config, Blocked, Steady)
    refused = 0
    for step in range(120):
        while (status := await status_of_send(lens, step)) == 503:
            refused += 1
            await asyncio.sleep(0.05)
        assert status == 200
    await until(lambda: len(Steady.steps) == 120, "the required sink gets all")
    assert sorted(Steady.steps) == list(range(120))
    Blocked.is_open = True
    await until(lambda: 119 in Blocked.steps, "the optional sink goes on with the newest")

    async def ledger() -> dict[str, Any]:
        (pipeline,) = (await lens.get_json("/status"))["pipelines"]
        return next(sink for sink in pipeline["sinks"] if sink["name"] == "b")

    while (found := await ledger())["pending_records"]:
        await asyncio.sleep(0.05)
    counted = found["ledger"]
    dropped = counted["dropped"]["spool_full"]
    assert dropped > 0
    assert len(set(Blocked.steps)) + dropped >= 120
    assert counted["accepted"] + counted["recovered"] == counted["delivered"] + counted["filtered"] + dropped
    assert set(Blocked.steps) < set(range(120))
