"""The page in a real Chromium: the list, a workload with 20 charts, a zoom, its weight; beside TensorBoard's page.

A thousand workloads, and one run of 1,000,000 steps of 20 metrics (--quick: 50,000) in one PostgreSQL. A time ends when
the browser has painted what was asked for; each profile is fresh, so nothing comes out of a cache. Then 20 charts that
move (page_live.py), for ten minutes (--minutes; --quick: twelve seconds, which say nothing about the heap).

    python -m benchmarks.page [--quick] [--minutes N] [--json]
"""

from __future__ import annotations

import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path

import httpx
from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from benchmarks.harness import Daemon, Figure, option_parser, postgres, report, spread_of, temporary_folder
from benchmarks.page_live import CHARTS, LIVE_POINTS, ROWS_A_SECOND, ZOOMED_POINTS, measure_live
from benchmarks.page_live import SCREEN as TALL_SCREEN
from benchmarks.page_peer import tensorboard, write_events
from benchmarks.query_data import load_run, make_blocks

_SHELL, _BROWSER = shutil.which("chromium-headless-shell"), shutil.which("chromium")
CHROMIUM = os.environ.get("LENS_TEST_CHROMIUM") or _SHELL or _BROWSER or "/usr/bin/chromium-headless-shell"
WORKLOADS = 1000
# On the screen at once.
ROWS = 10
TIMES = 5
SCREEN: ViewportSize = {"width": 1280, "height": 800}
MINUTES, QUICK_MINUTES = 10.0, 0.2
_PIECE_STEPS = 50_000
# Charts do not hold the same in each moment; a leak of every second is more than this after ten minutes.
MOST_GROWTH_KB = 500.0


def main() -> None:
    """All figures."""
    parser = option_parser(__doc__ or "")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="for how long the heap is watched")
    asked = parser.parse_args()
    steps, minutes = (50_000, QUICK_MINUTES) if asked.quick else (1_000_000, asked.minutes)
    with temporary_folder() as folder, postgres(folder) as database:
        dsn = database("page")
        daemon = Daemon(folder / "lens", f'sinks: {{store: {{type: postgresql, dsn: "{dsn}"}}}}\n').start()
        try:
            _fill(daemon, dsn, steps)
            lens = _measure_lens(daemon.url, minutes)
        finally:
            daemon.stop()
    with temporary_folder() as folder:
        peer = _measure_tensorboard(folder, steps)
    report(_figures(lens, peer, steps, minutes), as_json=asked.json)


def _fill(daemon: Daemon, dsn: str, steps: int) -> None:
    now = time.time()
    records = [
        {
            "record": "step_metrics",
            "origin": {"workload_uid": f"job-{number:04}"},
            "data_source": "wandb",
            "row_step": step,
            "values": {"loss": 1.0 / (step + 1), "samples_per_second": 900.0, "mem_usage": 60.0},
            "event_time": now - number,
            "run_id": "r",
            "session": "s",
        }
        for number in range(WORKLOADS)
        for step in range(10)
    ]
    body = {"version": 1, "producer": "benchmark", "records": records}
    httpx.post(f"{daemon.url}/api/v1/records", json=body, timeout=60).raise_for_status()
    while daemon.pending():
        time.sleep(0.1)
    with ThreadPoolExecutor(1) as threads:
        loading = threads.submit(load_run, dsn, "run-0", steps, piece=_PIECE_STEPS)
        while not loading.done():  # one processor loads while the other one makes blocks
            make_blocks(dsn)
            wait([loading], timeout=1)
        loading.result()
    make_blocks(dsn)


def _measure_lens(url: str, minutes: float) -> dict[str, list[float]]:
    with _browser() as browser:
        run = f"{url}/#/workload?uid=run-0"
        rows = _times(browser, f"{url}/", _painted("lens-row", ROWS))
        charts = _times(browser, run, _painted("lens-chart", 6))
        twenty = _times(browser, run, _painted("lens-chart", 20), tall=True)
        whole = _times(browser, run, _shown(":nth-match(.card[data-drawn], 6)"))
        return {
            "list": rows,
            "charts": charts,
            "twenty": twenty,
            "whole": whole,
            "zoom": _zooms(browser, run),
            "weight": [_weight(browser, url)],
            **{name: [value] for name, value in measure_live(browser, url, minutes)._asdict().items()},
        }


@contextmanager
def _browser() -> Iterator[Browser]:
    arguments = ["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        yield browser
        browser.close()


# The browser's own record of when elements with `elementtiming` were painted (Element Timing API).
_PAINTED = """identifier => {
  const times = [];
  const observer = new PerformanceObserver(list => {
    for (const one of list.getEntries()) if (one.identifier === identifier) times.push(one.renderTime);
  });
  observer.observe({ type: "element", buffered: true });
  return new Promise(done => setTimeout(() => {
    observer.disconnect();
    done(times);
  }, 50));
}"""


def _painted(identifier: str, number: int) -> Callable[[Page], float]:
    """Milliseconds from the navigation until the browser had painted so many elements of a name."""

    def wait(page: Page) -> float:
        deadline = time.monotonic() + 60
        while len(times := sorted(page.evaluate(_PAINTED, identifier))) < number:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(times)} of {number} {identifier} were painted")
        return float(times[number - 1])

    return wait


def _shown(selector: str) -> Callable[[Page], float]:
    """Milliseconds until a selector's element was painted, as the page's own clock has it."""

    def wait(page: Page) -> float:
        page.wait_for_selector(selector, timeout=60_000)
        frame = "new Promise(done => requestAnimationFrame(() => setTimeout(() => done(performance.now()), 0)))"
        return float(page.evaluate(frame))

    return wait


def _times(browser: Browser, address: str, wait: Callable[[Page], float], *, tall: bool = False) -> list[float]:
    """Milliseconds from the request to the painted answer, each in a fresh profile."""
    found = []
    for _ in range(TIMES):
        context = browser.new_context(viewport=TALL_SCREEN if tall else SCREEN)
        page = context.new_page()
        page.goto(address, wait_until="commit")
        found.append(wait(page))
        context.close()
    return found


def _zooms(browser: Browser, address: str) -> list[float]:
    """Milliseconds from the end of a drag until the chart shows the finer points."""
    page = browser.new_page(viewport=SCREEN)
    page.goto(address)
    page.wait_for_selector(":nth-match(.card[data-drawn], 6)")
    page.wait_for_timeout(1000)
    found = []
    for _ in range(TIMES):
        box = page.locator(".plot .u-over").first.bounding_box()
        assert box is not None
        page.evaluate("performance.clearMarks()")
        page.mouse.move(box["x"] + box["width"] * 0.3, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
        page.mouse.up()
        while not page.evaluate("performance.getEntriesByName('lens:finer').length"):
            page.wait_for_timeout(20)
        script = "['lens:zoom', 'lens:finer'].map(name => performance.getEntriesByName(name).at(-1).startTime)"
        began, ended = page.evaluate(script)
        found.append(ended - began)
        page.wait_for_timeout(500)
    page.close()
    return found


def _weight(browser: Browser, url: str) -> float:
    """kB on the wire of everything but the data."""
    page = browser.new_page()
    page.goto(url)
    page.wait_for_selector("tbody tr")
    script = """[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
        .filter(item => !item.name.includes('/api/')).map(item => item.transferSize)"""
    sizes: list[int] = page.evaluate(script)
    page.close()
    return sum(sizes) / 1000


def _measure_tensorboard(folder: Path, steps: int) -> list[float]:
    """TensorBoard's time series page of the same run: milliseconds until six charts are painted."""
    write_events(folder / "run" / "events.out.tfevents.1700000000.host.1.0", steps)
    with tensorboard(folder) as url, _browser() as browser:
        return _times(browser, f"{url}/#timeseries", _shown(":nth-match(scalar-card line-chart, 6)"))


def _figures(lens: dict[str, list[float]], peer: Sequence[float], steps: int, minutes: float) -> list[Figure]:
    theirs = statistics.median(peer)
    charts = statistics.median(lens["charts"])
    live = f"{CHARTS} charts from {LIVE_POINTS:,} points on, {ROWS_A_SECOND} rows a second"
    return [
        _figure(f"list of {WORKLOADS + 1:,} workloads painted", lens["list"], 500),
        Figure(
            figure=f"workload of {steps:,} steps: the screen's 6 charts painted",
            unit="ms",
            lens=charts,
            peer=theirs,
            peer_name="TensorBoard",
            ratio=theirs / charts,
            spread=spread_of(lens["charts"]),
        ),
        _figure("all 20 of its charts painted, on a high screen", lens["twenty"], 1000),
        _figure("the 6 charts with axes and hover", lens["whole"], None),
        _figure("a zoom until the finer points are drawn", lens["zoom"], 150),
        _figure("weight of the page", lens["weight"], 150, "kB"),
        _figure(f"main thread: {live}", lens["main_thread"], 15, "%"),
        _frames(lens["zoom_frames"], lens["empty_frames"]),
        _figure(f"redraws of each of {CHARTS} charts while they are zoomed", lens["zoom_redraws"], None, "a second"),
        _figure(
            f"heap: {live}, its growth in {minutes:g} minutes",
            lens["heap_growth"],
            MOST_GROWTH_KB if minutes == MINUTES else None,
            "kB",
        ),
    ]


def _frames(values: Sequence[float], empty: Sequence[float]) -> Figure:
    rate, most = statistics.median(values), statistics.median(empty)
    return Figure(
        figure=f"zooming {CHARTS} charts of {ZOOMED_POINTS:,} points",
        unit="frames/s",
        lens=rate,
        peer=most,
        peer_name="the same canvases, only filled",
        ratio=rate / most,
        goal="≥ 59 frames/s",
        holds=rate >= 59,
    )


def _figure(name: str, values: Sequence[float], limit: float | None, unit: str = "ms") -> Figure:
    middle = statistics.median(values)
    goal = "" if limit is None else f"< {limit:g} {unit}"
    holds = None if limit is None else middle < limit
    return Figure(figure=name, unit=unit, lens=middle, goal=goal, holds=holds, spread=spread_of(values))


if __name__ == "__main__":
    main()
