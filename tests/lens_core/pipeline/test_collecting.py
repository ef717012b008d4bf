from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil
import pytest

from lens_core import Collector, ConfigurationError, LensError, Measurement, Record, Secret
from lens_core.base.errors import Overloaded
from lens_core.pipeline.collecting import Collected, CollectorRunner, collect_all, collect_once, validate
from lens_core.pipeline.ingest_gate import IngestGate
from lens_core.testing import make_context, until
from tests.lens_core.pipeline.collectors_for_tests import Alone, Odd, OddSettings, Pieces

ROOT = Path(__file__).parents[3]


class KeepingGate(IngestGate):
    """A gate without pipelines that keeps what it gets."""

    def __init__(self, collector: Collector) -> None:
        super().__init__(collector.context.name, [], metrics=collector.context.metrics)
        self.kept: list[Record] = []
        self.full = False

    def _ensure_taken(self, records: Sequence[Record]) -> None:
        """Everything is kept."""

    async def submit(
        self,
        records: Sequence[Record],
        *,
        received: int | None = None,
        filtered: int = 0,
        rejected: Mapping[str, int] | None = None,
    ) -> None:
        if self.full:
            raise Overloaded("the spool is full")
        await super().submit(records, received=received, filtered=filtered, rejected=rejected)
        self.kept += records


def make(kind: type[Odd], folder: Path, do: str = "answer", **more: str) -> Odd:
    secret = Secret(more["key"]) if "key" in more else None
    settings = OddSettings(do=do, key=secret, file=more.get("file", ""))
    return kind(settings, make_context("c", folder))


def runner_of(collector: Collector, timeout_seconds: float = 20.0) -> tuple[CollectorRunner, KeepingGate]:
    gate = KeepingGate(collector)
    return CollectorRunner(collector, gate, interval_seconds=3600, timeout_seconds=timeout_seconds), gate


def gauge(runner: CollectorRunner, name: str) -> float | None:
    value = runner.collector.context.metrics.registry.get_sample_value(name, {"collector": "c"})
    return value


async def test_an_isolated_collector_runs_elsewhere_with_its_settings(tmp_path: Path) -> None:
    found = await collect_once(make(Alone, tmp_path, key="s3cret"), 30)
    (record,) = found.records
    assert isinstance(record, Measurement)
    assert record.value not in (None, float(os.getpid()))
    assert record.tags == {"key": "s3cret"}


async def test_what_an_isolated_collector_prints_is_no_answer(tmp_path: Path) -> None:
    found = await collect_once(make(Alone, tmp_path, "print"), 30)
    assert len(found.records) == 1


async def test_a_large_answer_does_not_block(tmp_path: Path) -> None:
    assert len((await collect_once(make(Alone, tmp_path, "large"), 30)).records) == 2000


@pytest.mark.parametrize("kind", [Odd, Alone])
@pytest.mark.parametrize(
    ("do", "error", "text"),
    [
        ("raise", Exception, "it broke"),
        ("refuse", ConfigurationError, "the key is missing"),
        ("fail", LensError, "the other side is gone"),
        ("exit", LensError, "3"),
    ],
)
async def test_errors_arrive_as_they_were(
    tmp_path: Path, kind: type[Odd], do: str, error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        await collect_once(make(kind, tmp_path, do), 30)


@pytest.mark.parametrize("kind", [Odd, Alone])
async def test_what_could_be_had_is_stored_and_what_could_not_is_said(tmp_path: Path, kind: type[Odd]) -> None:
    runner, gate = runner_of(make(kind, tmp_path, "partly"), 60)
    assert not await runner.collect_once()
    assert [record.name for record in gate.kept if isinstance(record, Measurement)] == ["odd.part"]
    assert runner.last_error == "2 of 5 clusters gave no answer"
    assert (gate.ledger.received, dict(gate.ledger.rejected)) == (4, {"unreadable": 3})
    assert gauge(runner, "lens_collector_up") == 0


async def test_a_process_that_dies_says_so(tmp_path: Path) -> None:
    with pytest.raises(LensError, match="ended with code 7"):
        await collect_once(make(Alone, tmp_path, "die"), 30)


async def test_when_the_time_is_up_nothing_is_left_alive(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    task = asyncio.create_task(collect_once(make(Alone, tmp_path, "hang", file=str(file)), 4))
    await until(lambda: file.exists() and len(file.read_text().split()) == 3, "its children")
    numbers = [int(number) for number in file.read_text().split()]
    with pytest.raises((TimeoutError, asyncio.TimeoutError)):
        await task
    await until(lambda: not any(alive(number) for number in numbers), "the end of all of them")


async def test_cancelling_kills_as_well(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    task = asyncio.create_task(collect_once(make(Alone, tmp_path, "hang", file=str(file)), 60))
    await until(lambda: file.exists() and len(file.read_text().split()) == 3, "its children")
    numbers = [int(number) for number in file.read_text().split()]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await until(lambda: not any(alive(number) for number in numbers), "the end of all of them")


async def test_a_killed_parent_leaves_no_collector_behind(tmp_path: Path) -> None:
    file = tmp_path / "pids"
    script = f"""
        import asyncio, logging
        from pathlib import Path
        from lens_core.pipeline.collecting import collect_once
        from lens_core.testing import make_context
        from tests.lens_core.pipeline.collectors_for_tests import Alone, OddSettings
        collector = Alone(OddSettings(do="hang", file={str(file)!r}), make_context("c", Path({str(tmp_path)!r})))
        asyncio.run(collect_once(collector, 600))
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)], cwd=ROOT)
    try:
        await until(lambda: file.exists() and len(file.read_text().split()) == 3, "the collector")
        first, inside, outside = (int(number) for number in file.read_text().split())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    await until(lambda: not alive(first) and not alive(inside), "the end of its group")
    psutil.Process(outside).kill()


def alive(number: int) -> bool:
    try:
        return psutil.Process(number).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def test_one_bad_result_costs_no_other(tmp_path: Path) -> None:
    runner, gate = runner_of(make(Odd, tmp_path, "mixed"))
    assert await runner.collect_once()
    assert [record.name for record in gate.kept if isinstance(record, Measurement)] == ["odd.good", "odd.nan"]
    status = gate.ledger.ledger_status()
    assert (status.received, dict(status.rejected)) == (5, {"invalid": 3})


def test_valid_records_are_passed_as_they_are() -> None:
    records = [Measurement(name="a", value=None), Measurement(name="b", value=float("inf"))]
    assert validate(records).records is records


async def test_success_and_failure_are_measured(tmp_path: Path) -> None:
    runner, _ = runner_of(make(Odd, tmp_path))
    assert await runner.collect_once()
    assert gauge(runner, "lens_collector_up") == 1
    assert gauge(runner, "lens_collector_records_total") == 1
    last_success = gauge(runner, "lens_collector_last_success_timestamp_seconds")
    runner.collector.settings = OddSettings(do="raise")
    assert not await runner.collect_once()
    assert gauge(runner, "lens_collector_up") == 0
    assert gauge(runner, "lens_collector_errors_total") == 1
    assert gauge(runner, "lens_collector_runs_total") == 2
    assert gauge(runner, "lens_collector_last_success_timestamp_seconds") == last_success
    assert runner.last_error == "ValueError: it broke"


async def test_the_time_limit_is_said(tmp_path: Path) -> None:
    runner, _ = runner_of(make(Odd, tmp_path, "wait"), timeout_seconds=0.05)
    assert not await runner.collect_once()
    assert runner.last_error == "took longer than 0.05 s"


async def test_nothing_is_a_success(tmp_path: Path) -> None:
    runner, gate = runner_of(make(Odd, tmp_path, "nothing"))
    assert await runner.collect_once()
    assert not gate.kept


async def test_pieces_are_fetched_until_there_is_no_more(tmp_path: Path) -> None:
    collector = Pieces(Pieces.Settings(), make_context("c", tmp_path))
    runner, gate = runner_of(collector)
    assert await runner.collect_once()
    assert (len(gate.kept), collector.remembered) == (3, 3)


async def test_what_was_not_taken_is_not_remembered(tmp_path: Path) -> None:
    collector = Pieces(Pieces.Settings(), make_context("c", tmp_path))
    runner, gate = runner_of(collector)
    gate.full = True
    assert not await runner.collect_once()
    assert collector.remembered == 0
    assert "full" in runner.last_error


async def test_looking_is_not_remembering(tmp_path: Path) -> None:
    collector = Pieces(Pieces.Settings(), make_context("c", tmp_path))

    async def look(found: Collected) -> None:
        assert found.records

    await collect_all(collector, 5, look, remember=False)
    assert (collector.left, collector.remembered) == (2, 0)


async def test_one_run_at_a_time(tmp_path: Path) -> None:
    timeout_seconds = 0.2
    runner, _ = runner_of(make(Odd, tmp_path, "wait"), timeout_seconds=timeout_seconds)
    began = time.monotonic()
    await asyncio.gather(runner.collect_once(), runner.collect_once())
    both = time.monotonic() - began
    assert runner.errors == 2
    assert runner.last_duration_seconds is not None
    # The second began when the first one's time was up: the wait for it is not a part of its duration.
    assert runner.last_duration_seconds < both - timeout_seconds * 0.9
