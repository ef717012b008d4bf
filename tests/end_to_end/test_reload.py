"""Reloads that fail: the configuration before goes on, or the daemon ends; it never answers 503 for ever."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

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
