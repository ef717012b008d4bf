from __future__ import annotations

import asyncio
import logging
from pathlib import Path

import httpx
import pytest
from lens_plugins.sinks.jsonl import Jsonl

from lens_core import SeriesBatch
from lens_core.config.loading import parse_config
from lens_core.daemon.daemon import Daemon
from lens_core.plugin_host.host import PluginHost
from tests.plugins.sources.remote_write.wire import packed, request, series

NOTICE = "no sink takes what it brings (SeriesBatch)"


@pytest.mark.parametrize(
    ("wanted", "written"),
    [(True, True), (False, True), (False, False)],
    ids=["taken", "taken by nobody", "taken by nobody, nor asked for"],
)
async def test_series_that_no_sink_takes_are_said_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, wanted: bool, written: bool
) -> None:
    """At start to those who wrote the source down; to everybody who looks at the status."""
    caplog.set_level(logging.INFO, "lens.assembly")
    text = "sources: {remote_write: {}}\n" if written else ""
    text += f"sinks: {{file: {{type: jsonl, path: {tmp_path / 'out'}"
    text += "}}\n" if wanted else ", filter: {kinds: [event]}}}\n"
    text += "server: {listen: '127.0.0.1:0'}\n"
    assert SeriesBatch in Jsonl.accepts
    config = parse_config(text, "test", PluginHost.load(), {}, folder=tmp_path, data_dir=tmp_path / "data")
    started = asyncio.Event()
    daemon = Daemon(config, PluginHost.load(), announce=lambda running: started.set())
    task = asyncio.create_task(daemon.run())
    await asyncio.wait_for(started.wait(), 240)
    async with httpx.AsyncClient(timeout=240) as client:
        body = packed(request(series({"__name__": "up"}, (1.0, 1_795_000_000_000))))
        answer = await client.post(f"{daemon.url}/prometheus", content=body)
        assert answer.status_code == 204
        status = (await client.get(f"{daemon.url}/api/v1/status")).json()
    (source,) = [source for source in status["sources"] if source["type"] == "remote_write"]
    assert source["received"] == 1
    assert (NOTICE in source["notice"]) is not wanted
    assert (NOTICE in caplog.text) is (written and not wanted)
    daemon.stop()
    await asyncio.wait_for(task, 240)
