"""Pages that show commands on their way: each is given as it stands, to a daemon and servers of the test's own."""

from __future__ import annotations

import contextlib
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path

import httpx
import pytest

from lens_core.base.data_dir import running_address
from tests.docs.pages import blocks, run_console
from tests.docs.servers_elsewhere import datadog, secrets_manager
from tests.end_to_end.conftest import make_lens
from tests.end_to_end.running_lens import PLAIN, RunningLens
from tests.plugins.collectors.wandb_cloud.conftest import wandb_server
from tests.plugins.collectors.wandb_cloud.wandb_server import KEY, WandbServer

__all__ = ["make_lens", "wandb_server"]

ROW = {"record": "step_metrics", "data_source": "test", "row_step": 1, "iteration": 1, "values": {"loss": 2.5}}
EVENT = {"record": "event", "type": "checkpoint_saved", "iteration": 1}


@pytest.fixture
def running(make_lens: Callable[..., RunningLens], tmp_path: Path) -> RunningLens:
    return make_lens(f"sinks: {{out: {{type: jsonl, path: {tmp_path / 'out.jsonl'}}}}}\n").start()


def published(data_dir: Path) -> str:
    """Return the address that a daemon prints; '' while there is none."""
    address = running_address(data_dir)
    return address.url if address else ""


@contextmanager
def always_sending(lens: Callable[[], str]) -> Iterator[None]:
    """A row and an event repeatedly, for whoever watches the records that pass."""
    over = threading.Event()
    envelope = {"version": 1, "origin": {"workload_uid": "llama-7b"}, "records": [ROW, EVENT]}

    def send() -> None:
        while not over.wait(0.1):
            # The daemon may be on its way up or down.
            with contextlib.suppress(httpx.TransportError):
                if url := lens():
                    httpx.post(f"{url}/api/v1/records", json=envelope, timeout=240, verify=PLAIN)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        over.set()
        sender.join()


def test_the_commands_of_the_configuration_page(tmp_path: Path) -> None:
    (block,) = blocks("configuration.md", "console")
    printed = run_console(block, tmp_path)
    assert "valid" in printed[1]
    assert (tmp_path / "lens.schema.json").stat().st_size > 10_000
    assert "dsn" in printed[4]
    assert "Lens listens on" in printed[5]


def test_the_token_of_the_page_is_made(running: RunningLens, tmp_path: Path) -> None:
    (block,) = blocks("page.md", "console")
    run_console(block, tmp_path, {"LENS_DATA_DIR": str(running.data_dir)})


@pytest.mark.skipif(shutil.which("jq") is None, reason="needs jq")
def test_the_taps_of_the_terminal_page_show_what_passes(running: RunningLens, tmp_path: Path) -> None:
    (block,) = blocks("terminal.md", "console")
    with always_sending(lambda: running.url):
        event, row = run_console(block, tmp_path, {"LENS_URL": running.url})
    assert "checkpoint_saved" in event
    assert row == "[1,2.5]\n"


def test_a_plugin_of_the_cookbook_is_watched(tmp_path: Path) -> None:
    trying = tmp_path / "trying"
    trying.mkdir()
    (trying / "acme.py").write_text('"""As the page has it."""\n\n' + blocks("write_a_sink.md", "python")[0])
    disk = blocks("plugin_cookbook.md", "python")[0].replace("import Collector,", "import Collector, hookimpl,")
    (trying / "disk.py").write_text(f"{disk}\n\n@hookimpl\ndef lens_collectors():\n    return [Disk]\n")
    (tmp_path / "lens.yaml").write_text(blocks("write_a_sink.md", "yaml")[0])
    (block,) = [block for block in blocks("plugin_cookbook.md", "console") if "tap" in block]
    with always_sending(lambda: published(tmp_path / "data")):
        listed, checked, collected, _, tapped, status, _ = run_console(block, tmp_path)
    assert "acme" in listed
    assert "In order" in checked
    assert "disk.used" in collected
    assert "llama-7b" in tapped
    assert "acme" in status


def test_the_plugin_page_writes_and_lists_plugins(tmp_path: Path) -> None:
    write, listing = blocks("plugins.md", "console")[1:]
    run_console(write, tmp_path)
    (tmp_path / "trying").mkdir()
    (tmp_path / "trying" / "acme_lens.py").write_text(blocks("plugins.md", "python")[0])
    (listed,) = run_console(listing, tmp_path)
    assert "acme_lens" in listed


def test_collectors_run_once(wandb_server: WandbServer, tmp_path: Path) -> None:
    collect, _, _ = blocks("collectors.md", "console")
    (tmp_path / "lens.yaml").write_text(blocks("collectors.md", "yaml")[0])
    with datadog(tmp_path) as (api, environ):
        environ |= {"WANDB_BASE_URL": wandb_server.url, "WANDB_API_KEY": KEY}
        printed = run_console(collect, tmp_path, environ, values={"…": KEY})
    assert all("wandb.runs.active" in text for text in printed)
    assert api.series >= 2, "the two that push"


def test_credentials_come_from_amazon(wandb_server: WandbServer, tmp_path: Path) -> None:
    _, store, _ = blocks("collectors.md", "console")
    with secrets_manager() as environ:
        run_console(store, tmp_path, environ, values={"…": KEY})
        environ |= {"LENS_WANDB_AWS_SECRET": "dev/datadog/collectors/wandb", "WANDB_BASE_URL": wandb_server.url}
        (found,) = run_console("$ lens collect wandb_cloud\n", tmp_path, environ)
    assert "wandb.runs.active" in found


def test_the_dashboard_is_taken_by_datadog(tmp_path: Path) -> None:
    _, _, create = blocks("collectors.md", "console")
    assets = files("lens_plugins.sinks.datadog").joinpath("assets")
    (tmp_path / "dashboard.json").write_bytes(assets.joinpath("dashboard.json").read_bytes())
    with datadog(tmp_path) as (api, _):
        run_console(create, tmp_path, values={"…": "k"})
    (dashboard,) = api.dashboards
    assert len(dashboard.widgets) > 3
