"""Figures of charts that move: 20 of them while rows come, their zoom, and the memory that they hold; for page.py.

TensorBoard has no like of them: it loads anew on a timer or by hand, and a zoom is of one chart.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import httpx
from playwright.sync_api import Browser, CDPSession, Page, ViewportSize

CHARTS = 20
LIVE_POINTS, ZOOMED_POINTS = 1_000, 2_000
ROWS_A_SECOND = 5
# High enough for all charts at once.
SCREEN: ViewportSize = {"width": 1600, "height": 2600}
_SHARE_SECONDS = 10.0
_HEAP_SAMPLES = 12
_ZOOM_SECONDS = 3.0
_DRAWN = f":nth-match(.card[data-drawn], {CHARTS})"

# One step of the wheel in each frame, four to the inside and four to the outside in turn: frames per second, and how
# often each chart was drawn in a second.
_ZOOM = """seconds => new Promise(done => {
  const plots = [...document.querySelectorAll(".plot")];
  const over = plots[0].querySelector(".u-over");
  const box = over.getBoundingClientRect();
  const began = performance.now();
  let [frames, drawn] = [0, 0];
  for (const { chart } of plots) chart.u.hooks.draw.push(() => (drawn += 1));
  const step = now => {
    const passed = (now - began) / 1000;
    if (passed > seconds) return done([frames / passed, drawn / plots.length / passed]);
    const deltaY = frames % 8 < 4 ? -100 : 100;
    const [clientX, clientY] = [box.x + box.width / 2, box.y + box.height / 2];
    const more = { ctrlKey: true, bubbles: true, cancelable: true, clientX, clientY };
    over.dispatchEvent(new WheelEvent("wheel", { deltaY, ...more }));
    frames += 1;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
# Frames per second of the same page if it only clears its canvases and fills each with one colour.
_CLEAR = """seconds => new Promise(done => {
  const pens = [...document.querySelectorAll(".plot canvas")].map(canvas => canvas.getContext("2d"));
  const began = performance.now();
  let frames = 0;
  const step = now => {
    const passed = (now - began) / 1000;
    if (passed > seconds) return done(frames / passed);
    for (const pen of pens) {
      pen.clearRect(0, 0, pen.canvas.width, pen.canvas.height);
      pen.fillStyle = frames % 2 ? "#888" : "#999";
      pen.fillRect(0, 0, pen.canvas.width, pen.canvas.height);
    }
    frames += 1;
    requestAnimationFrame(step);
  };
  requestAnimationFrame(step);
})"""
_SHOWN_POINTS = "[...document.querySelectorAll('.card')].reduce((sum, one) => sum + Number(one.dataset.drawn), 0)"


class LiveFigures(NamedTuple):
    """The share of the main thread in per cent, kB by which the heap grew, and what happens in a second of a zoom.

    That is: its frames, how often each chart is drawn, and the frames of a page that only fills its canvases.
    """

    main_thread: float
    heap_growth: float
    zoom_frames: float
    zoom_redraws: float
    empty_frames: float


def measure_live(browser: Browser, url: str, minutes: float) -> LiveFigures:
    """All three; the heap is watched for so many minutes."""
    _send_rows(url, "zoomed", range(ZOOMED_POINTS))
    _send_rows(url, "live", range(LIVE_POINTS))
    with _opened(browser, url, "zoomed") as (page, _):
        zoom_frames, zoom_redraws = page.evaluate(_ZOOM, _ZOOM_SECONDS)
        page.wait_for_timeout(1000)
        empty_frames = page.evaluate(_CLEAR, _ZOOM_SECONDS)
    with _opened(browser, url, "live") as (page, session), _rows_coming(url):
        page.wait_for_timeout(3000)
        before = page.evaluate(_SHOWN_POINTS)
        main_thread = _share_of_main_thread(page, session)
        if page.evaluate(_SHOWN_POINTS) == before:
            raise RuntimeError("no rows came to the charts")
        growth = _heap_growth(page, session, minutes)
        return LiveFigures(main_thread, growth, zoom_frames, zoom_redraws, empty_frames)


def _send_rows(url: str, uid: str, steps: Sequence[int]) -> None:
    records = [
        {
            "record": "step_metrics",
            "origin": {"workload_uid": uid},
            "data_source": "wandb",
            "row_step": step,
            "values": {f"m{number}": math.sin(step / 50 + number) for number in range(CHARTS)},
            "event_time": time.time(),
            "run_id": "r",
            "session": "s",
        }
        for step in steps
    ]
    body = {"version": 1, "producer": "benchmark", "records": records}
    httpx.post(f"{url}/api/v1/records", json=body, timeout=60).raise_for_status()


@contextmanager
def _rows_coming(url: str) -> Iterator[None]:
    """Rows of the workload `live`, from a thread of its own."""
    done = threading.Event()

    def send() -> None:
        step = LIVE_POINTS
        while not done.wait(1 / ROWS_A_SECOND):
            _send_rows(url, "live", [step])
            step += 1

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@contextmanager
def _opened(browser: Browser, url: str, uid: str) -> Iterator[tuple[Page, CDPSession]]:
    """A workload with all of its charts drawn."""
    context = browser.new_context(viewport=SCREEN)
    page = context.new_page()
    session = context.new_cdp_session(page)
    session.send("Performance.enable")
    page.goto(f"{url}/#/workload?uid={uid}")
    page.wait_for_selector(_DRAWN, timeout=60_000)
    page.wait_for_timeout(1000)
    yield page, session
    context.close()


def _metrics(session: CDPSession) -> dict[str, float]:
    found: list[dict[str, Any]] = session.send("Performance.getMetrics")["metrics"]
    return {one["name"]: float(one["value"]) for one in found}


def _share_of_main_thread(page: Page, session: CDPSession) -> float:
    before = _metrics(session)
    page.wait_for_timeout(1000 * _SHARE_SECONDS)
    after = _metrics(session)
    return 100 * (after["TaskDuration"] - before["TaskDuration"]) / (after["Timestamp"] - before["Timestamp"])


def _heap_growth(page: Page, session: CDPSession, minutes: float) -> float:
    """kB of live objects: the least in the second half of the time beyond the least in the first.

    The charts themselves grow, by megabytes, until they are asked for anew: only what is left then is a leak.
    """
    found = []
    for _ in range(_HEAP_SAMPLES):
        page.wait_for_timeout(60_000 * minutes / _HEAP_SAMPLES)
        session.send("HeapProfiler.collectGarbage")
        found.append(_metrics(session)["JSHeapUsedSize"] / 1000)
    half = _HEAP_SAMPLES // 2
    return min(found[half:]) - min(found[:half])
