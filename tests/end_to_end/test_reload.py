"""Reloads that fail: the configuration before goes on, or the daemon ends; it never answers 503 for ever."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from lens_core import PointQuery
from lens_core.commands import open_store
from tests.end_to_end.running_lens import RunningLens, http_get, ledgers_add_up, metrics_body, wait_for

MakeLens = Callable[..., RunningLens]

RAISING = """
from lens_core import Delivered, Sink, Source, hookimpl
import msgspec

class Raising(Sink):
    name = "raising"

    def __init__(self, settings, context):
        super().__init__(settings, context)
        raise SystemError("from the constructor")

    async def send(self, batch):
        return Delivered()

class BadRoutes(Sink):
    name = "bad_routes"

    def routes(self):
        raise ZeroDivisionError("from the routes")

    async def send(self, batch):
        return Delivered()

@hookimpl
def lens_sinks():
    return [Raising, BadRoutes]
"""


def jsonl(path: Path) -> str:
    return f"sinks: {{file: {{type: jsonl, path: '{path}'}}}}\n"


def reload(lens: RunningLens) -> None:
    assert lens.process is not None
    lens.process.send_signal(signal.SIGHUP)


def wait_until_ready(lens: RunningLens) -> None:
    wait_for(lambda: http_get(f"{lens.url}/readyz").status_code == 200, what="readiness")


@pytest.mark.parametrize("trouble", ["folder", "constructor", "routes", "spool"])
def test_whatever_a_reload_raises_the_configuration_before_goes_on(
    make_lens: MakeLens, tmp_path: Path, trouble: str
) -> None:
    plugins = tmp_path / "single_files"
    plugins.mkdir()
    (plugins / "raising.py").write_text(RAISING)
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    lens = make_lens(jsonl(one)).start(LENS_PLUGINS_DIR=str(plugins))
    broken = {
        "folder": f"sinks: {{inway: {{type: jsonl, path: '{two}'}}}}\n",
        "constructor": "sinks: {x: {type: raising}}\n",
        "routes": "sinks: {x: {type: bad_routes}}\n",
        "spool": f"{jsonl(two)}pipelines: {{inway: {{from: [wandb_api], to: [file]}}}}\n",
    }[trouble]
    (lens.data_dir / "plugins" / "inway").write_text("a file in the way of a folder")
    (lens.data_dir / "spool" / "inway.sqlite3").mkdir(parents=True)

    lens.configure(broken)
    reload(lens)
    wait_for(lambda: "keeping the previous configuration" in lens.log.read_text(), what="the refusal")
    wait_until_ready(lens)
    assert lens.post("/wandb/metrics", metrics_body("w", range(2))).status_code == 200
    ledgers_add_up(lens.drained())
    assert [json.loads(line)["row_step"] for line in one.read_text().splitlines()] == [0, 1]

    lens.configure(jsonl(two))
    reload(lens)
    wait_for(lambda: "Reloaded." in lens.log.read_text(), what="the reload")
    wait_until_ready(lens)
    assert lens.post("/wandb/metrics", metrics_body("w", range(2, 4))).status_code == 200
    lens.drained()
    assert [json.loads(line)["row_step"] for line in two.read_text().splitlines()] == [2, 3]


def test_a_daemon_that_can_go_neither_way_ends_with_an_error(make_lens: MakeLens, tmp_path: Path) -> None:
    lens = make_lens(jsonl(tmp_path / "one.jsonl")).start()
    shutil.rmtree(lens.data_dir / "plugins" / "file")
    (lens.data_dir / "plugins" / "file").write_text("a file in the way of a folder")
    reload(lens)
    assert lens.process is not None
    assert lens.process.wait(timeout=240) == 1
    assert lens.process.stdout is not None
    lens.process.stdout.close()
    assert "the configuration before it cannot be started either" in lens.log.read_text()
    assert "Traceback" not in lens.log.read_text()


def test_a_command_that_opens_the_store_waits_for_the_end_of_a_reload(make_lens: MakeLens) -> None:
    """A reload stops the embedded server and starts it: a command may neither meet that nor start its own."""
    lens = make_lens("sinks: {store: {type: postgresql}}\n").start()
    assert lens.post("/wandb/metrics", metrics_body("kept", range(20))).is_success
    lens.drained()

    async def count_points() -> int:
        async with open_store(lens.data_dir.with_suffix(".yaml"), lens.data_dir) as store:
            query = PointQuery(workload_uid="kept", metrics=("m0",))
            return sum([len(points) async for points in store.metric_points(query)])

    assert asyncio.run(count_points()) == 20
    for _ in range(3):
        reload(lens)
        wait_for(lambda: http_get(f"{lens.url}/readyz").text == "reloading\n", what="the exchange of the configuration")
        assert http_get(f"{lens.url}/livez").text == "ok\n"
        assert asyncio.run(count_points()) == 20
        wait_until_ready(lens)
        assert len(lens.points("kept", metrics="m0")) == 20
    assert "leftover" not in lens.log.read_text()
