"""The pages about writing plugins: their code is used, their tests are run, their commands too."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import tomllib

from tests.docs.pages import blocks, lead_curl, run_console
from tests.ports import free_port

# Page → the file into which its first Python block is saved, as the page says.
PAGES = {
    "write_a_source.md": "trying/acme.py",
    "write_a_detector.md": "trying/acme.py",
    "write_a_sink.md": "trying/acme.py",
    "add_a_collector.md": "trying/queue_length.py",
}
# What the page has running in another terminal.
UP_WITH_PLUGINS = "lens up --plugins-dir trying"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "trying").mkdir()
    return tmp_path


@pytest.mark.parametrize("page", PAGES)
def test_the_commands_print_what_the_page_shows(page: str, folder: Path) -> None:
    (folder / PAGES[page]).write_text('"""As the page has it."""\n\n' + blocks(page, "python")[0])
    for text in blocks(page, "yaml"):
        (folder / "lens.yaml").write_text(text)
    consoles = blocks(page, "console")
    port = free_port()
    lead_curl(folder, "127.0.0.1:8080", port)
    for block in consoles:
        up = [UP_WITH_PLUGINS] if "curl" in block else []
        run_console(block, folder, {"PAGE_PORT": str(port)}, before=up)
    assert consoles


@pytest.mark.parametrize("page", [*PAGES, "plugin_cookbook.md"])
def test_the_tests_of_the_page_pass(page: str, folder: Path) -> None:
    (folder / "test_page.py").write_text("\n\n".join(blocks(page, "python")))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto"]
    command += ["-o", "asyncio_default_fixture_loop_scope=function"]
    done = subprocess.run(
        [*command, "-W", "error", "test_page.py"], cwd=folder, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_the_extra_of_the_cookbook_is_asked_for() -> None:
    (text,) = blocks("plugin_cookbook.md", "toml")
    project = tomllib.loads(text)["project"]
    point = EntryPoint("influx", project["entry-points"]["lens"]["influx"], "lens")
    assert point.extras == [*project["optional-dependencies"]]


def test_the_line_of_the_detector_page_is_read(folder: Path) -> None:
    (folder / "trying" / "acme.py").write_text(blocks("write_a_detector.md", "python")[0])
    (line,) = blocks("write_a_detector.md", "text")
    (folder / "train.log").write_text(line)
    (read,) = run_console("$ lens explain --json train.log --plugins-dir trying\n", folder)
    assert json.loads(read)["framework"] == "acme"
