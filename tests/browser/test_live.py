from __future__ import annotations

import signal
import time
from collections.abc import Callable

import pytest

from tests.browser.browsing import EXPECTED_WHEN_AWAY
from tests.browser.conftest import Browse
from tests.browser.training import rows, send_events, send_evidence, send_many, send_rows
from tests.end_to_end.running_lens import RunningLens

OwnLens = Callable[..., RunningLens]


def test_an_empty_place_tells_the_next_command_and_fills_by_itself(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("empty")
    with browse(lens.url) as watched:
        page = watched.open("/", ".empty")
        assert "lens run --workload" in page.locator(".empty").inner_text()
        watched.shot("empty")
        send_rows(lens, "fresh", rows(5))
        page.wait_for_selector("tbody tr a:has-text('fresh')")


def test_a_workload_is_waited_for_before_its_first_row(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("early")
    with browse(lens.url) as watched:
        page = watched.open("/#/workload?uid=soon", ".empty")
        assert "lens doctor" in page.locator(".empty").inner_text()
        watched.shot("waiting")
        send_rows(lens, "soon", rows(5))
        page.wait_for_selector(".card[data-drawn]")
        page.wait_for_selector(".empty", state="detached")
        assert page.locator("h1").inner_text() == "soon"


def test_a_run_that_trains_while_one_looks_and_a_daemon_that_comes_back(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("live")
    send_rows(lens, "job", rows(50))
    lens.drained()
    drawn = "() => Math.max(...document.querySelector('.card .plot').chart.picture.lines[0].x)"
    with browse(lens.url) as watched:
        watched.expected = EXPECTED_WHEN_AWAY
        page = watched.open("/#/workload?uid=job&metric=loss", ".card[data-drawn]")
        assert page.evaluate(drawn) == 49
        send_rows(lens, "job", rows(10, first=50))
        watched.until(f"({drawn})() === 59")
        port = lens.url.rpartition(":")[2]
        lens.stop()
        page.wait_for_selector(".connection.down")
        lens.start(f"127.0.0.1:{port}")
        page.wait_for_selector(".connection.up")
        send_rows(lens, "job", rows(10, first=60))
        watched.until(f"({drawn})() === 69")
        assert page.locator("#problem").is_hidden()


def test_a_view_that_is_opened_while_the_daemon_is_away_comes_by_itself(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("away")
    send_rows(lens, "job", rows(50))
    lens.drained()
    with browse(lens.url) as watched:
        watched.expected = EXPECTED_WHEN_AWAY
        page = watched.open("/", "tbody tr a")
        port = lens.url.rpartition(":")[2]
        lens.stop()
        page.wait_for_selector(".connection.down")
        assert "since" in page.locator(".connection").inner_text()
        page.evaluate("location.hash = '#/workload?uid=job&metric=loss'")
        page.wait_for_selector("#problem:not([hidden])")
        lens.start(f"127.0.0.1:{port}")
        page.wait_for_selector(".card[data-drawn]")
        assert page.locator("#problem").is_hidden()


@pytest.mark.slow("waits for as long as the page takes silence for a pause")
def test_a_daemon_that_stands_still_is_not_live(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("frozen")
    send_rows(lens, "job", rows(5))
    lens.drained()
    with browse(lens.url) as watched:
        watched.expected = EXPECTED_WHEN_AWAY
        page = watched.open("/#/workload?uid=job", ".connection.up")
        page.wait_for_selector(".tiles [data-seen]")
        assert lens.process is not None
        lens.process.send_signal(signal.SIGSTOP)
        try:
            page.wait_for_selector(".connection.down")
            page.wait_for_selector(".tiles [data-seen]:has-text('s ago')")  # which nobody tells the page now
        finally:
            lens.process.send_signal(signal.SIGCONT)
        page.wait_for_selector(".connection.up")


def test_every_tab_moves_and_what_is_unfolded_stays_so(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("tabs")
    now = time.time()
    send_rows(lens, "job", rows(5, now=now))
    long = {"type": "custom", "event_time": now, "details": {"text": "x" * 300}}
    send_events(lens, "job", [long])
    lens.drained()
    with browse(lens.url) as watched:
        page = watched.open("/#/workload?uid=job&tab=events", "#panel details")
        page.locator("#panel details summary").click()
        send_events(lens, "job", [{"type": "checkpoint_saved", "event_time": now + 1, "iteration": 3}])
        page.wait_for_selector("#panel .event.checkpoint_saved")
        assert page.locator("#panel details").get_attribute("open") is not None
        page.get_by_role("tab", name="Runs").click()
        page.wait_for_selector("#panel td:has-text('5')")
        send_rows(lens, "job", rows(7, first=5, now=now))
        page.wait_for_selector("#panel td:has-text('12')")


def test_answers_that_fail_are_told_with_the_time_and_every_view_comes_back(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("refusing")
    send_rows(lens, "job", rows(50))
    lens.drained()
    views = {
        "/": "tbody tr a",
        "/#/workload?uid=job&metric=loss": ".card[data-drawn]",
        "/#/workload?uid=job&tab=runs": "#panel table",
        "/#/workload?uid=job&tab=events": "#panel .empty",
        "/#/health": ".health h2",
    }
    with browse(lens.url) as watched:
        watched.expected = ("503",)
        page = watched.page
        for path, content in views.items():
            page.goto("about:blank")
            watched.open(path, content)
            page.route(
                lambda url: "/api/v1/" in url and not url.endswith("/changes"),
                lambda route: route.fulfill(status=503, body='{"code": "Unavailable", "message": "the store is away"}'),
            )
            send_rows(lens, "job", rows(5, first=50))
            page.wait_for_selector("#problem:has-text('the store is away. The page shows what was known at')")
            assert "as of" in page.locator(".connection").inner_text()
            assert page.locator(content).count(), "nothing is blank"
            page.unroute_all()
            page.wait_for_selector("#problem", state="hidden")
            assert page.locator(".connection").inner_text() == "live"


def test_a_loss_that_is_no_number_any_more_is_shown_as_that(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("nan")
    now = time.time()
    good = rows(600, now=now)
    for row in good[100:]:
        row["data"]["loss"] = "NaN"
    send_rows(lens, "job", good)
    events = [{"type": "loss_not_finite", "event_time": now, "iteration": step} for step in range(100, 600)]
    send_events(lens, "job", events)
    lens.drained()
    with browse(lens.url) as watched:
        page = watched.open("/", "tbody .spark .trouble")
        assert page.locator("tbody .spark .trouble").inner_text() == "NaN"
        page = watched.open("/#/workload?uid=job&metric=loss", ".card[data-drawn]")
        spans = "document.querySelector('.card .plot').chart.picture.spans.map(one => [one.from, one.to]).join()"
        watched.until(f"{spans} === '100,599'")


def test_what_is_chosen_stays_chosen_and_in_the_address(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("chosen")
    send_many(lens, 120)
    lens.drained()
    with browse(lens.url) as watched:
        page = watched.open("/", "tbody tr:nth-child(50)")
        page.get_by_label("Compare job-00003").check()
        page.get_by_role("button", name="Next").click()
        page.wait_for_selector("text=51–100")
        page.get_by_label("Compare job-00060").check()
        page.reload()
        page.wait_for_selector("text=51–100")
        assert page.get_by_label("Compare job-00060").is_checked()
        assert page.get_by_role("link", name="Compare 2").is_visible()
        page.get_by_label("Search workloads").fill("job-00003")
        page.wait_for_selector("text=1–1 of 1")
        assert page.get_by_label("Compare job-00003").is_checked()
        page.get_by_role("button", name="Choose none").click()
        assert not page.get_by_label("Compare job-00003").is_checked()
        many = "&".join(f"uid=job-{number:05}" for number in range(43))
        page = watched.open(f"/#/workload?{many}", ".notice")
        assert page.locator(".notice").inner_text().startswith("43 workloads are chosen; the first 20")


def test_what_a_slower_run_sends_late_is_drawn_too(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("late")
    now = time.time()
    send_rows(lens, "job", rows(20, now=now), run_id="fast")
    send_rows(lens, "job", rows(10, now=now - 12), run_id="slow")
    lens.drained()
    lines = "document.querySelector('.card .plot').chart.picture.lines"
    slow = f"Math.max(...({lines}.find(one => one.look.label === 'run slow')?.x ?? []))"
    with browse(lens.url) as watched:
        watched.open("/#/workload?uid=job&metric=grad_norm", ".card[data-drawn]")
        watched.until(f"{slow} === 9")
        send_rows(lens, "job", rows(10, first=10, now=now - 2), run_id="slow")
        watched.until(f"{slow} === 19")


def test_five_thousand_workloads(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("many")
    send_many(lens, 5000)
    lens.drained()
    with browse(lens.url) as watched:
        page = watched.open("/", "tbody tr:nth-child(50)")
        assert "of 5,000" in page.locator(".bar").inner_text()
        page.get_by_role("button", name="Next").click()
        page.wait_for_selector("text=51–100")
        assert page.locator("tbody tr th a").first.inner_text() == "job-00050"
        page.get_by_label("Search workloads").fill("job-04321")
        page.wait_for_selector("text=1–1 of 1")
        assert page.locator("tbody tr th a").inner_text() == "job-04321"
        page.get_by_label("Search workloads").fill("no such thing")
        page.wait_for_selector(".empty")


HOSTILE = (
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "\u202egnp.exe\u202c and \u05e9\u05dc\u05d5\u05dd",
    "quotes \" ' ` ${x} {{y}} %s",
    "a/b?c=d&e=f#g",
    "x" * 500,
)


def test_hostile_names_are_only_names(browse: Browse, own_lens: OwnLens) -> None:
    lens = own_lens("hostile")
    for number, name in enumerate(HOSTILE):
        entries = rows(3)
        for entry in entries:
            entry["data"] |= {name: float(number), f"<b>{number}</b>": 1.0}
        send_rows(lens, name, entries, run_id=f"<i>{name[:60]}</i>")
        send_evidence(lens, name, {"<script>alert(3)</script>": name * 100})
    huge = {"step": 1, "data": {"m" * 1_000_000: 1.0, "loss": 1.0}}
    send_rows(lens, "huge", [huge], run_id="r" * 100_000)
    lens.drained()
    with browse(lens.url) as watched:
        page = watched.open("/", "tbody tr .badge")
        assert page.locator("tbody script, tbody img, tbody b, tbody i").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert "\u202e" not in page.locator("tbody").inner_text()
        watched.shot("hostile")
        links = page.locator("tbody tr th a").evaluate_all("all => all.map(a => a.getAttribute('href'))")
        assert len(links) == len(HOSTILE) + (1 if "huge" in page.locator("tbody").inner_text() else 0)
        for link in links:
            page.goto(f"{lens.url}/{link}")
            page.wait_for_selector(".card[data-drawn]")
            assert page.locator("main script, main img, .card b").count() == 0
            page.get_by_role("tab", name="Why").click()
            page.wait_for_selector(".verdict")
            page.get_by_role("tab", name="Runs").click()
            page.wait_for_selector("#panel table")
