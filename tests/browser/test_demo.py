from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.browser.browsing import EXPECTED_WHEN_AWAY
from tests.browser.conftest import Browse


@pytest.mark.slow("trains the demo for sixteen seconds")
def test_every_view_has_something_true_to_show_while_the_demo_trains(browse: Browse, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    command = [sys.executable, "-m", "lens_core.cli", "demo", "--seconds", "16", "--no-browser"]
    with subprocess.Popen([*command, "--data-dir", str(tmp_path)], stdout=subprocess.PIPE, text=True) as demo:
        assert demo.stdout is not None
        told = [demo.stdout.readline() for _ in range(2)]
        found = re.search(r"(http://[^/]+)(/#/workload\?uid=\S+)", told[1])
        assert found is not None, told
        # the page asks for the workload before its first row is there
        with browse(found[1]) as watched:
            watched.expected = EXPECTED_WHEN_AWAY
            page = watched.open(found[2])
            page.wait_for_selector(".card[data-drawn]")
            first = page.locator(".tiles .progress").inner_text()
            # the run, whose attempts are one line, and its log
            watched.until("document.querySelectorAll('.swatch').length === 2")
            watched.until(f"document.querySelector('.tiles .progress').innerText !== {first!r}")
            page.get_by_role("tab", name="Events").click()
            page.wait_for_selector("text=checkpoint saved")
            page.get_by_role("tab", name="Runs").click()
            page.get_by_role("region", name="Runs and attempts").wait_for()
            assert "log" in page.locator("#panel").inner_text()
            page.get_by_role("tab", name="Charts").click()
            page.wait_for_selector(".card[data-drawn]")
            watched.until("[...document.querySelectorAll('.plot')].some(p => p.chart?.picture.specials.length)")
            watched.shot("demo")
        out, _ = demo.communicate(timeout=240)
        assert demo.returncode == 0, out
    assert "are stored" in out
