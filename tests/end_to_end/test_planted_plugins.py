"""A daemon with plugins that misbehave: they are named and contained, and all else goes on."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import planted
from tests.durations import Stopwatch
from tests.end_to_end.running_lens import RunningLens, http_get, http_post, wait_for

Make = Callable[..., RunningLens]
CONFIG = """
server: {{shutdown_deadline_seconds: 2}}
sources: {{logs: {{}}{sources}}}
sinks: {{out: {{type: jsonl, path: {path}}}{sinks}}}
collectors: {{{collectors}}}
"""
LINE = " iteration      100/ 1000 | consumed samples: 100 | lm loss: 2.5E+00 |"


@pytest.fixture
def plugins(tmp_path: Path) -> dict[str, str]:
    """A folder with the planted plugins, and the file while which is there some of them are broken."""
    folder = tmp_path / "plugins"
    folder.mkdir()
    shutil.copy(planted.__file__, folder / "planted.py")
    (tmp_path / "broken").touch()
    return {"LENS_PLUGINS_DIR": str(folder), "PLANTED_BROKEN": str(tmp_path / "broken")}


def configured(make: Make, folder: Path, *, sources: str = "", sinks: str = "", collectors: str = "") -> RunningLens:
    config = CONFIG.format(path=folder / "out.jsonl", sources=sources, sinks=sinks, collectors=collectors)
    return make(config)


def send(lens: RunningLens, text: str = LINE) -> None:
    answer = http_post(f"{lens.url}/logs?workload_uid=job", json=[{"message": text}])
    assert answer.is_success, answer.text


def states(lens: RunningLens) -> dict[str, Any]:
    status = lens.get("/status")
    sinks = [sink for pipeline in status["pipelines"] for sink in pipeline["sinks"]]
    return {one["name"]: one for one in (*status["sources"], *sinks)}


def test_an_exception_in_start_disables_that_component_until_it_can_be_started(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str]
) -> None:
    lens = configured(
        make_lens,
        tmp_path,
        sources=", bad: {type: broken_source}",
        sinks=", bad_sink: {type: broken_sink}",
        collectors="bad_collector: {type: broken_collector}",
    ).start(**plugins)
    send(lens)
    wait_for(lambda: (tmp_path / "out.jsonl").exists() and "lm_loss" in (tmp_path / "out.jsonl").read_text())
    found = states(lens)
    assert (found["bad"]["state"], "the port is taken" in found["bad"]["last_error"]) == ("failed", True)
    assert (found["bad_collector"]["state"], "no such device" in found["bad_collector"]["last_error"]) == (
        "failed",
        True,
    )
    assert "no such account" in found["bad_sink"]["last_error"]
    assert found["bad_sink"]["pending_records"] > 0
    ready = http_get(f"{lens.url}/readyz")
    assert (ready.status_code, "sink bad_sink is not started: RuntimeError: no such account" in ready.text) == (
        503,
        True,
    )
    assert "planted.py" in lens.log.read_text()
    (tmp_path / "broken").unlink()
    wait_for(lambda: http_get(f"{lens.url}/readyz").status_code == 200)
    wait_for(lambda: states(lens)["bad_sink"]["pending_records"] == 0)
    wait_for(lambda: all(one["state"] != "failed" for one in states(lens).values()))
    assert lens.stop() == 0


def test_an_optional_sink_that_cannot_be_started_is_no_reason_to_be_unready(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str]
) -> None:
    lens = configured(make_lens, tmp_path, sinks=", bad_sink: {type: broken_sink, required: false}").start(**plugins)
    assert http_get(f"{lens.url}/readyz").status_code == 200
    assert lens.stop() == 0


def test_a_plugin_that_blocks_the_loop_is_named(make_lens: Make, tmp_path: Path, plugins: dict[str, str]) -> None:
    lens = configured(make_lens, tmp_path, sinks=", slow: {type: blocking_sink, required: false}").start(**plugins)
    send(lens)
    wait_for(lambda: lens.get("/status")["blockers"])
    (blocker,) = lens.get("/status")["blockers"]
    assert (blocker["plugin"], blocker["function"]) == ("planted", "send")
    assert blocker["longest_seconds"] > 0.5
    assert "planted.py: send blocked the event loop for" in lens.log.read_text()
    assert 'lens_plugin_blocked_loop_seconds_total{plugin="planted"}' in http_get(f"{lens.url}/metrics").text
    assert lens.stop() == 0


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("collectors", "deaf: {type: deaf_collector}"),
        ("collectors", "deaf: {type: deaf_collector, timeout_seconds: 0.5}"),
        ("sources", ", deaf: {type: deaf_stop}"),
        ("collectors", "busy: {type: busy_collector}"),
    ],
    ids=["deaf collector", "deaf to its time limit", "deaf stop", "busy"],
)
def test_sigterm_ends_the_daemon_within_its_deadline(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str], kind: str, settings: str
) -> None:
    lens = configured(make_lens, tmp_path, **{kind: settings}).start(**plugins)
    send(lens)
    if "busy" in settings:
        wait_for(lambda: "still held" in lens.log.read_text())
    watch = Stopwatch()
    lens.stop()
    assert watch.seconds() < 12
    log = lens.log.read_text()
    assert "continuing without it" in log or "did not stop within its deadline" in log
    again = configured(make_lens, tmp_path).start()  # what was accepted is still there
    wait_for(lambda: states(again)["out"]["pending_records"] == 0)
    assert "lm_loss" in (tmp_path / "out.jsonl").read_text()


def test_a_deaf_collector_is_named_while_the_daemon_runs_and_at_its_end(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str]
) -> None:
    deaf = "deaf: {type: deaf_collector, timeout_seconds: 0.5, interval_seconds: 0.5}"
    lens = configured(make_lens, tmp_path, collectors=deaf).start(**plugins)
    wait_for(lambda: "ignores its cancellation" in states(lens)["deaf"]["last_error"])
    assert "collect ignores its cancellation; continuing without it" in lens.log.read_text()
    wait_for(lambda: "it is not called again meanwhile" in states(lens)["deaf"]["last_error"])
    lens.stop()
    assert "planted.py: collect, which waits in asyncio.tasks.sleep" in lens.log.read_text()


def test_a_sink_that_leaks_is_named(make_lens: Make, tmp_path: Path, plugins: dict[str, str]) -> None:
    lens = configured(make_lens, tmp_path, sinks=", leak: {type: leaking_sink, required: false}").start(**plugins)
    for number in range(9):
        send(lens, LINE.replace("100/", f"{100 + number}/"))
        wait_for(lambda: states(lens)["leak"]["ledger"]["delivered"] > number)  # noqa: B023 - it is asked at once
    (found,) = wait_for(lambda: lens.get("/status")["memory_growth"])
    assert (found["component"], found["function"]) == ("leak", "send")
    assert found["grown_bytes"] > 256 * 1024 * 1024
    assert "planted.py: send of leak grew the daemon's memory by" in lens.log.read_text()
    metrics = http_get(f"{lens.url}/metrics").text
    assert 'lens_component_memory_growth_bytes{component="leak"}' in metrics
    assert 'lens_component_call_seconds_count{component="leak"} 9.0' in metrics
    assert lens.stop() == 0


def test_an_isolated_sink_that_sleeps_for_ever_stops_nothing(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str]
) -> None:
    sinks = ", hung: {type: hanging_sink, required: false, isolate: true, delivery: {send_timeout_seconds: 0.5}}"
    lens = configured(make_lens, tmp_path, sinks=sinks).start(**plugins)
    send(lens)
    wait_for(lambda: "lm_loss" in (tmp_path / "out.jsonl").read_text())
    wait_for(lambda: lens.get("/status")["processes"][0]["restarts"] > 0)
    assert "send ignored its cancellation, so its process was killed" in lens.log.read_text()
    assert lens.get("/status")["blockers"] == []
    watch = Stopwatch()
    assert lens.stop() == 0
    assert watch.seconds() < 12


def test_a_sink_that_calls_exit_ends_nothing(make_lens: Make, tmp_path: Path, plugins: dict[str, str]) -> None:
    sinks = ", leaves: {type: exiting_sink, required: false}, deaf: {type: deaf_sink, required: false,"
    sinks += " delivery: {send_timeout_seconds: 0.5}}"
    lens = configured(make_lens, tmp_path, sinks=sinks).start(**plugins)
    send(lens)
    wait_for(lambda: "called sys.exit(4)" in states(lens)["leaves"]["last_error"])
    wait_for(lambda: "A task called sys.exit(5)" in lens.log.read_text())
    wait_for(lambda: "sink deaf ignores the cancellation of send" in lens.log.read_text())
    send(lens, LINE.replace("100/", "200/"))
    wait_for(lambda: (tmp_path / "out.jsonl").read_text().count("lm_loss") >= 2)
    watch = Stopwatch()
    lens.stop()
    assert watch.seconds() < 15


def test_a_daemon_whose_parent_is_gone_ends_although_a_plugin_is_deaf(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str]
) -> None:
    lens = configured(make_lens, tmp_path, collectors="deaf: {type: deaf_collector}")
    with subprocess.Popen(["sleep", "600"]) as parent:
        lens.parent = parent.pid
        lens.start(**plugins)
        parent.kill()
    assert lens.process is not None
    assert lens.process.stdout is not None
    with lens.process.stdout:
        lens.process.wait(timeout=60)
    assert "did not stop within its deadline" in lens.log.read_text()


def test_a_source_with_a_path_of_lens_is_failed_and_the_rest_runs(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str]
) -> None:
    lens = configured(make_lens, tmp_path, sources=", copycat: {}").start(**plugins)
    found = states(lens)["copycat"]
    assert (found["state"], "POST /replay of copycat (copycat) is a path of Lens' own" in found["last_error"]) == (
        "failed",
        True,
    )
    send(lens)
    wait_for(lambda: (tmp_path / "out.jsonl").exists() and "lm_loss" in (tmp_path / "out.jsonl").read_text())
    assert lens.stop() == 0


def test_a_busy_helper_is_named(make_lens: Make, tmp_path: Path, plugins: dict[str, str]) -> None:
    lens = configured(make_lens, tmp_path, sources=", busy: {type: busy_helper}").start(**plugins)
    wait_for(lambda: "planted.py: compute has kept a thread busy" in lens.log.read_text())
    assert lens.get("/status")["busy_threads"][0]["function"] == "compute"
    assert lens.stop() == 0


def test_a_line_that_a_pattern_cannot_stand_stops_nothing(
    make_lens: Make, tmp_path: Path, plugins: dict[str, str]
) -> None:
    lens = configured(make_lens, tmp_path).start(**plugins)
    for number in range(8):
        send(lens, f"evil step {number} " + "a" * 4000)
    send(lens)
    wait_for(lambda: "lm_loss" in (tmp_path / "out.jsonl").read_text())
    assert http_get(f"{lens.url}/livez").status_code == 200
    assert "Patterns paused" in lens.log.read_text()
    (plugin,) = [one for one in lens.get("/status")["plugins"] if one["name"] == "planted"]
    (detector,) = [one for one in plugin["components"] if one["kind"] == "detector"]
    assert "took more than" in detector["paused"]
    assert 'lens_detector_overruns_total{detector="evil_detector"} 5.0' in http_get(f"{lens.url}/metrics").text
    assert lens.stop() == 0
