"""Each difference between two daemons on one database, as a test that there is none with a cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import httpx

from lens_core import LogLine, Origin, StepMetrics
from lens_core.detection.log_lines.text import PARTIAL
from lens_core.testing import until
from lens_core.testing.running import RunningLens
from tests.lens_core.cluster.conftest import Daemons
from tests.waiting import until_answer

# The last lines of a job are those since a partition has its owner.
LEASE_SECONDS = 6.0


async def asked(lens: RunningLens, path: str) -> Any:
    async with httpx.AsyncClient(timeout=30) as client:
        answer = await client.get(f"{lens.url}/api/v1{path}")
    return answer.json() if answer.is_success else None


def wandb_row(step: int, session: str) -> StepMetrics:
    return StepMetrics(
        origin=Origin(workload_uid="job", pod_name="trainer-0", namespace="team"),
        data_source="wandb",
        run_id="run",
        session=session,
        row_step=step,
        sequence=1000 + step,
        values={"loss": 1.0 / (step + 1)},
        event_time=1_700_000_000.0 + step,
    )


def line(step: int, rank: int | None = None, text: str = "") -> LogLine:
    shown = text or f"[2026-01-01 00:00:{step % 60:02d}] iteration {step:8d}/ 100 | lm loss: {5.0 / step:.6E} |"
    origin = Origin(workload_uid="job", pod_name="trainer-0", namespace="team", rank=rank)
    return LogLine(origin=origin, text=shown, event_time=1_700_000_000.0 + step)


def with_store(dsn: str) -> dict[str, Any]:
    return {"sinks": {"store": {"type": "postgresql", "dsn": dsn}}, "store": "store"}


async def test_two_daemons_answer_as_one_for_rows_and_events(daemons: Daemons, postgres_dsn: str) -> None:
    both = [await daemons(with_store(postgres_dsn)), await daemons(with_store(postgres_dsn))]
    for step in range(40):
        await both[step % 2].send([wandb_row(step, "s1")])
    for step in range(1, 13):
        await both[step % 2].send([line(step)])
    boom = "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    for rank in range(2):
        await both[rank].send([line(20, rank, boom)])

    async def points(lens: RunningLens) -> dict[str, list[int]]:
        found = await asked(lens, "/workloads/job/metrics/data?metrics=loss,lm_loss")
        named: dict[str, list[int]] = {}
        for point in (found or {}).get("data", []):
            named.setdefault(point["metric_name"], []).append(point["iteration"])
        return {name: sorted(steps) for name, steps in named.items()}

    wanted = {"loss": list(range(40)), "lm_loss": list(range(1, 13))}
    for lens in both:
        await until_answer(partial(points, lens), lambda answer: answer == wanted)
    events = [await asked(lens, "/workloads/job/events") for lens in both]
    assert events[0] == events[1]


async def test_a_job_that_goes_on_at_another_daemon_is_one_attempt(daemons: Daemons, postgres_dsn: str) -> None:
    first = await daemons(with_store(postgres_dsn))
    for step in range(1, 7):
        await first.send([line(step)])
    second = await daemons(with_store(postgres_dsn))
    await first.stop()
    for step in range(7, 13):
        await second.send([line(step)])

    async def steps() -> list[tuple[int, int]]:
        found = await asked(second, "/workloads/job/metrics/data?metrics=lm_loss")
        return sorted((point["iteration"], point["attempt"]) for point in (found or {}).get("data", []))

    found = await until_answer(steps, lambda found: len(found) == 12)
    assert [step for step, _ in found] == list(range(1, 13))
    assert len({attempt for _, attempt in found}) == 1


async def test_sessions_that_begin_at_different_daemons_are_numbered_in_their_order(
    daemons: Daemons, postgres_dsn: str
) -> None:
    both = [await daemons(with_store(postgres_dsn)), await daemons(with_store(postgres_dsn))]
    for number in range(6):
        await both[number % 2].send([wandb_row(number, f"session-{number}")])

    async def attempts() -> list[tuple[int, int]]:
        found = await asked(both[0], "/workloads/job/metrics/data?metrics=loss")
        return sorted((point["iteration"], point["attempt"]) for point in (found or {}).get("data", []))

    found = await until_answer(attempts, lambda found: len(found) == 6)
    numbers = [attempt for _, attempt in found]
    assert numbers == sorted(set(numbers)), found
    async with httpx.AsyncClient(timeout=30) as client:
        deleted = await client.delete(f"{both[0].url}/api/v1/workloads/job")
    assert deleted.status_code == 200, deleted.text
    assert await asked(both[1], "/workloads/job") is None


async def test_lines_without_a_step_at_two_daemons_are_steps_of_their_own(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    for number in range(24):
        text = f"{{'loss': {2.0 - number / 100:.4f}, 'grad_norm': 1.5, 'learning_rate': 1e-05}}"
        origin = Origin(workload_uid="job", pod_name="trainer-0", namespace="team")
        await both[number % 2].send([LogLine(origin=origin, text=text, event_time=1_700_000_000.0 + number)])

    def steps() -> list[int]:
        return sorted(one.row_step for lens in both for one in lens.records if isinstance(one, StepMetrics))

    await until(lambda: len(set(steps())) == 24, "24 steps")
    assert len(steps()) == 24


async def test_a_line_in_two_parts_at_two_daemons_is_one_step(daemons: Daemons) -> None:
    both = [await daemons(), await daemons()]
    whole = line(5).text
    origin = line(5).origin
    await both[0].send([LogLine(origin=origin, text=whole[:40], event_time=1.0, source=PARTIAL, stream="stdout")])
    await both[1].send([LogLine(origin=origin, text=whole[40:], event_time=2.0, stream="stdout")])

    def stepped() -> list[int]:
        return [one.row_step for lens in both for one in lens.records if isinstance(one, StepMetrics)]

    await until(lambda: stepped() == [5], "the step of the joined line")


async def test_any_daemon_has_the_last_lines_of_a_job(daemons: Daemons, postgres_dsn: str) -> None:
    both = [await daemons(with_store(postgres_dsn)), await daemons(with_store(postgres_dsn))]
    for number in range(6):
        await both[number % 2].send([line(number + 1)])
    found: list[list[str]] = []
    for _ in range(300):
        answers = [await asked(lens, "/workloads/job/log-tail") for lens in both]
        streams = [(answer or {}).get("streams", []) for answer in answers]
        found = [[one["text"] for stream in some for one in stream["lines"]] for some in streams]
        # A partition that moves to the second daemon leaves what came before behind.
        if all(one[-1:] == [line(6).text] for one in found):
            break
        await asyncio.sleep(0.1)
    assert found[0] == found[1]
    assert found[0][-1:] == [line(6).text]
