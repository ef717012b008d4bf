"""The file follower: growth, rotation, truncation, progress bars, restarts, refusals; and commands."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
from lens_plugins.collectors.log_sources import IDLE_SECONDS, FileTail
from lens_plugins.collectors.training_log import TrainingLog, TrainingLogSettings

from lens_core import ConfigurationError, LogLine, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.config.loading import load_config
from lens_core.detection.detectors import make_detectors
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.plugin_host.host import PluginHost
from lens_core.testing import check_collector, make_context

Make = Callable[..., TrainingLog]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make the collector; its positions are in the test's folder."""

    def made(**settings: object) -> TrainingLog:
        settings.setdefault("paths", (str(tmp_path / "*.log"),))
        return TrainingLog(TrainingLogSettings(**settings), make_context("follow", tmp_path / "state"))

    return made


async def texts(collector: TrainingLog, *, taken: bool = True) -> list[str]:
    records = await collector.collect()
    if taken:
        await collector.stored()
    return [record.text for record in records if isinstance(record, LogLine)]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


async def test_what_grows_is_read_once(make: Make, tmp_path: Path) -> None:
    log, collector = tmp_path / "a.log", make()
    await collector.start()
    assert await texts(collector) == []
    append(log, "one\ntwo\nthr")
    assert await texts(collector) == ["one", "two"]
    append(log, "ee\r\nfour\n")
    assert await texts(collector) == ["three", "four"]
    assert await texts(collector) == []


async def test_what_was_not_taken_comes_again(make: Make, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one\n")
    collector = make()
    await collector.start()
    assert await texts(collector, taken=False) == ["one"]
    assert await texts(collector) == ["one"]
    assert await texts(collector) == []


async def test_rotation_loses_nothing_and_repeats_nothing(make: Make, tmp_path: Path) -> None:
    log, collector = tmp_path / "a.log", make(paths=(str(tmp_path / "*.log*"),))
    await collector.start()
    append(log, "one\n")
    assert await texts(collector) == ["one"]
    append(log, "two\n")
    log.rename(tmp_path / "a.log.1")
    append(log, "three\n")
    found = await texts(collector)
    while more := await texts(collector):
        found += more
    assert found == ["two", "three"]


async def test_rotation_to_a_name_that_is_not_followed(make: Make, tmp_path: Path) -> None:
    log, collector = tmp_path / "a.log", make()
    await collector.start()
    append(log, "one\n")
    assert await texts(collector) == ["one"]
    append(log, "two\n")
    log.rename(tmp_path / "a.log.1")
    append(log, "three\n")
    assert [*await texts(collector), *await texts(collector)] == ["two", "three"]


async def test_truncation_begins_anew(make: Make, tmp_path: Path) -> None:
    log, collector = tmp_path / "a.log", make()
    await collector.start()
    append(log, "one\ntwo\n")
    await texts(collector)
    log.write_text("new\n")
    assert await texts(collector) == ["new"]


async def test_truncation_that_grew_beyond_the_position_is_noticed(make: Make, tmp_path: Path) -> None:
    log, collector = tmp_path / "a.log", make()
    await collector.start()
    append(log, "one\n")
    await texts(collector)
    log.write_text("other and longer\n")
    assert await texts(collector) == ["other and longer"]


async def test_progress_bars_come_update_by_update(make: Make, tmp_path: Path) -> None:
    log, collector = tmp_path / "a.log", make()
    await collector.start()
    append(log, "\r 1%| 1/100 [00:01<01:40]\r 2%| 2/100 [00:02<01:38]\r")
    assert await texts(collector) == [" 1%| 1/100 [00:01<01:40]"]
    append(log, "\n{'loss': 1.0}\n")
    assert await texts(collector) == [" 2%| 2/100 [00:02<01:38]", "{'loss': 1.0}"]


async def test_positions_survive_a_restart(make: Make, tmp_path: Path) -> None:
    log, collector = tmp_path / "a.log", make()
    await collector.start()
    append(log, "one\n")
    await texts(collector)
    await collector.stop()
    append(log, "two\n")
    again = make()
    await again.start()
    assert await texts(again) == ["two"]


async def test_from_the_end_passes_over_what_was_there(make: Make, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "old\n" * 1000)
    collector = make(from_end=True)
    await collector.start()
    assert await texts(collector) == []
    append(tmp_path / "a.log", "new\n")
    append(tmp_path / "b.log", "all of a new file\n")
    assert await texts(collector) == ["new", "all of a new file"]


def test_a_last_line_without_an_end_is_whole_after_a_while(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("one\nlast")
    tail = FileTail(log)
    now = time.time()
    assert [piece.text for piece in (tail.read_lines(4096, now) or (None, []))[1]] == ["one"]
    tail.commit()
    assert tail.read_lines(4096, now + IDLE_SECONDS / 2) is None
    assert [piece.text for piece in (tail.read_lines(4096, now + IDLE_SECONDS + 1) or (None, []))[1]] == ["last"]


def test_a_line_without_end_is_let_go_in_pieces(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 10_000)
    tail = FileTail(log)
    sizes = []
    while found := tail.read_lines(4096, time.time()):
        sizes.append(sum(len(piece.text) for piece in found[1]))
        tail.commit()
        if len(sizes) > 10:
            break
    assert sizes[:2] == [4096, 4096]


async def test_whose_file_it_is_stands_in_its_path(make: Make, tmp_path: Path) -> None:
    collector = make(workload_uid="w")
    origin = collector._origin_of_file("/var/log/pods/ml_trainer-0_11-22/pytorch/0.log")
    assert (origin.namespace, origin.pod_name, origin.pod_uid, origin.container) == (
        "ml",
        "trainer-0",
        "11-22",
        "pytorch",
    )
    assert collector._origin_of_file("/logs/run/rank_3/out.log").rank == 3
    assert collector._origin_of_file("/logs/none_x/attempt_0/5/stdout.log").local_rank == 5
    for name, job in (("slurm-17.out", "slurm-17"), ("slurm-17_4.err", "slurm-17_4"), ("my-slurm-17.out", "")):
        assert make(paths=("/logs/*",))._origin_of_file(f"/logs/{name}").workload_uid == job
    assert collector._origin_of_file("/logs/plain.log").workload_uid == "w"


async def test_kubelet_files_are_opened(make: Make, tmp_path: Path) -> None:
    folder = tmp_path / "var" / "log" / "pods" / "ml_trainer-0_11" / "main"
    folder.mkdir(parents=True)
    append(folder / "0.log", "2026-05-18T16:04:46.5Z stderr P step: 14  lo\n2026-05-18T16:04:46.6Z stderr F ss: 2\n")
    collector = make(paths=(str(tmp_path / "var/log/pods/*/*/*.log"),))
    await collector.start()
    first, second = await collector.collect()
    assert isinstance(first, LogLine)
    assert isinstance(second, LogLine)
    assert (first.text, first.source, second.source) == ("step: 14  lo", "log_partial", "log")
    assert first.origin.pod_name == "trainer-0"
    assert second.event_time == pytest.approx(1779120286.6)


async def test_lines_read_twice_are_taken_once(make: Make, tmp_path: Path) -> None:
    detectors = make_detectors(load_config(None, PluginHost.load(), {}).detectors)
    processor = DetectorProcessor(detectors, SelfMetrics())
    lines = "".join(f" iteration {step}/ 100 | lm loss: 1.0E+00 |\n" for step in range(1, 6))
    append(tmp_path / "a.log", lines)

    def rows(records: Sequence[object]) -> list[tuple[int | None, int]]:
        return [(record.attempt, record.row_step) for record in records if isinstance(record, StepMetrics)]

    for expected in ([(1, step) for step in range(1, 6)], []):
        collector = make(workload_uid="w")  # each time as after a crash: nothing was stored
        await collector.start()
        assert rows(processor.process(await collector.collect()).records) == expected


async def test_a_command_is_followed(make: Make) -> None:
    script = "import sys\nfor i in range(3): print('line', i, flush=True)\nsys.stderr.write('bar\\rend')"
    collector = make(paths=(), command=(sys.executable, "-c", script))
    await collector.start()
    found: list[str] = []
    ends = time.monotonic() + 240
    while len(found) < 5 and time.monotonic() < ends:
        found += await texts(collector)
    assert sorted(found) == ["bar", "end", "line 0", "line 1", "line 2"]
    await collector.stop()


async def test_a_command_ends_with_the_collector(make: Make) -> None:
    script = "import time\nprint('the command is up', flush=True)\ntime.sleep(600)"
    collector = make(paths=(), command=(sys.executable, "-c", script))
    await collector.start()
    ends = time.monotonic() + 240
    while not await texts(collector) and time.monotonic() < ends:
        continue
    # Other tests' processes that have ended may still be listed; they have no command line.
    running = [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
    (child,) = [child for child in running if script in child.cmdline()]
    await collector.stop()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


async def test_nothing_to_follow_is_said(make: Make) -> None:
    with pytest.raises(ConfigurationError, match="paths or a command"):
        await make(paths=()).start()


async def test_a_pipe_among_the_files_does_not_block(make: Make, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    append(tmp_path / "a.log", "one\n")
    collector = make()
    await collector.start()
    assert await texts(collector) == ["one"]


async def test_memory_stays_flat_on_a_large_file(make: Make, tmp_path: Path) -> None:
    log = tmp_path / "large.log"
    block = b"2026-01-01 00:00:00,000 - INFO - nothing of interest here, move along\n" * 15_000
    with log.open("wb") as file:
        for _ in range(64):
            file.write(block)
    collector = make(max_bytes_per_run=1 << 20)
    await collector.start()
    process = psutil.Process()
    seen, sizes = 0, []
    while found := len(await texts(collector)):
        seen += found
        sizes.append(process.memory_info().rss)
    assert seen == 64 * 15_000
    settled = sizes[len(sizes) // 4 :]  # what other tests left may go meanwhile
    assert max(settled) - settled[0] < 16 << 20


async def test_the_contract_of_a_collector(make: Make, tmp_path: Path) -> None:
    append(tmp_path / "a.log", "one\ntwo\n")
    await check_collector(make())
