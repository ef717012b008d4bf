from __future__ import annotations

import time
from itertools import pairwise

import pytest

from tests.browser.conftest import Browse
from tests.browser.training import send_rows, send_stacks
from tests.end_to_end.running_lens import RunningLens


def test_the_list_shows_what_failed_first_and_what_is_known_of_each(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/", "tbody tr .badge")
        page.wait_for_selector("tbody tr .spark path")
        names = page.locator("tbody tr th a").all_inner_texts()
        assert set(names[:2]) == {"vit-broken", "stuck"}
        assert set(names) >= {"llama-70b", "gpt-small"}
        assert page.locator("tbody tr", has_text="vit-broken").locator(".state").inner_text() == "Failed"
        assert page.locator("tbody tr", has_text="stuck").locator(".state").inner_text() == "Stalled"
        assert "Out of device memory on rank" in page.locator("tbody tr", has_text="vit-broken").inner_text()
        spike = page.locator("tbody tr", has_text="sweep").locator(".spark").inner_text()
        assert float(spike) < 5  # its last value, and not a spike of another run
        row = page.locator("tbody tr", has_text="llama-70b")
        assert "deepspeed" in row.locator(".badges").inner_text()
        assert row.locator(".spark .nan").count() == 1
        watched.shot("list")


def test_a_workload_shows_charts_with_marks_and_numbers_that_are_none(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b", ".card[data-drawn]")
        watched.until("document.querySelectorAll('.card[data-drawn]').length >= 6")
        watched.shot("workload")
        card = page.locator(".card", has_text="loss").first
        symbols = card.locator(".plot").evaluate(
            "p => p.data.filter(t => t.name.includes('not a number')).map(t => t.x.length)"
        )
        assert symbols
        assert all(count == 1 for count in symbols)
        watched.until("document.querySelector('.card .plot').data.some(t => t.name === 'events')")
        marks = card.locator(".plot").evaluate("p => p.data.find(t => t.name === 'events').customdata")
        assert "checkpoint saved at 300" in marks
        spike = card.locator(".plot").evaluate("p => Math.max(...p.data.flatMap(t => t.y))")
        assert spike == 25


def test_without_outliers_the_rest_has_the_height(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&metric=loss", ".card[data-drawn]")
        highest = "document.querySelector('.card .plot').layout.yaxis.range[1]"
        assert page.evaluate(highest) > 25  # the spike
        page.get_by_label("Outliers").uncheck()
        watched.until(f"{highest} < 6")
        watched.until("location.hash.includes('outliers=0')")


def test_a_long_run_is_smoothed_over_all_of_its_points(lens: RunningLens, browse: Browse) -> None:
    values = [900.0 if step % 1501 == 7 else 1.5 + step % 3 / 10 for step in range(12_000)]
    entries = [{"step": step, "timestamp": 1.7e9 + step, "data": {"loss": value}} for step, value in enumerate(values)]
    send_rows(lens, "spiky", entries)
    lens.drained()
    shown = 0.0
    for value in values:  # so long that there is nothing left of the bias at its beginning
        shown = 0.97 * shown + 0.03 * value
    with browse() as watched:
        watched.open("/#/workload?uid=spiky&metric=loss&smooth=0.97&outliers=0", ".card[data-drawn]")
        newest = "document.querySelector('.plot').data.filter((trace) => trace.customdata).at(-1).y.at(-1)"
        assert watched.page.evaluate(newest) == pytest.approx(shown)
        assert watched.page.evaluate("document.querySelector('.plot').layout.yaxis.range[1]") < 2
        watched.shot("smoothed")
        watched.page.get_by_label("Outliers").check()
        watched.until("document.querySelector('.plot').layout.yaxis.range[1] > 900")
        watched.page.get_by_label("Smoothing").fill("0.5")
        shown = 0.0
        for value in values:
            shown = 0.5 * shown + 0.5 * value
        watched.until(f"Math.abs({newest} - {shown}) < 1e-9")
        watched.shot("band")


def test_many_runs_have_strokes_and_short_names(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=sweep&metric=loss", ".card[data-drawn]")
        legend = page.get_by_role("group", name="Runs and attempts")
        assert legend.locator("label").all_inner_texts() == [f"run trial-{number:02}" for number in range(12)]
        strokes = "p => p.data.filter(t => t.line).map(t => t.line.color + t.line.dash)"
        assert len(set(page.locator(".card .plot").evaluate(strokes))) == 12
        fewest = "Math.min(...document.querySelector('.card .plot').data.filter(t => t.line).map(t => t.x.length))"
        watched.until(f"{fewest} > 90")  # not a twelfth of what one run gets
        legend.get_by_role("button", name="None").click()
        watched.until("document.querySelector('.card .plot').data.filter(t => t.line).length === 0")
        legend.get_by_role("button", name="All").click()
        watched.until("document.querySelector('.card .plot').data.filter(t => t.line).length === 12")
        watched.shot("many-runs")


COLOURS = "p => Object.fromEntries(p.data.filter(t => t.line).map(t => [t.name, t.line.color]))"


def test_a_run_has_one_colour_in_every_chart_whichever_is_first(browse: Browse) -> None:
    found = []
    with browse() as watched:
        for shown in (
            "metric=loss&metric=mem_usage",
            "metric=mem_usage",
            "metric=loss",
            "metric=mem_usage&metric=loss",
        ):
            page = watched.open(f"/#/workload?uid=two-phases&{shown}", ".card[data-drawn]")
            watched.until("document.querySelectorAll('.card:not([data-drawn])').length === 0")
            page.wait_for_selector(".head h1")
            watched.until("document.querySelector('.card .plot').data.some(t => t.line?.color === '#e69f00')")
            found += page.locator(".card .plot").evaluate_all(f"all => all.map({COLOURS})")
    both = {"run z-prepare": "#0072b2", "run a-train": "#e69f00"}  # as they began
    assert [colours for colours in found if len(colours) == 2] == [both] * 3
    assert {colour for colours in found if len(colours) == 1 for colour in colours.values()} == {"#e69f00"}


def test_charts_offer_nothing_that_sends_data_elsewhere(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=gpt-small&metric=loss", ".card[data-drawn]")
        titles = page.locator(".modebar-btn").evaluate_all("all => all.map(one => one.dataset.title)")
        assert len(titles) == 1
        assert "png" in titles[0].lower()


def test_several_workloads_are_laid_over_each_other(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/", "tbody tr .choice input")
        for name in ("llama-70b", "gpt-small"):
            page.get_by_label(f"Compare {name}").check()
        page.get_by_role("link", name="Compare 2").click()
        page.wait_for_selector(".card[data-drawn]")
        names = page.locator(".card .plot").first.evaluate("p => p.data.map(t => t.name)")
        assert any(name.startswith("gpt-small") for name in names)
        assert any(name.startswith("llama-70b") for name in names)
        page.get_by_role("tab", name="Compared").click()
        table = page.get_by_role("region", name="Settings that differ")
        table.wait_for()
        assert "1e-3" in table.inner_text() or "0.001" in table.inner_text()
        watched.shot("compare")


def test_why_this_framework(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&tab=why", ".verdict")
        assert "deepspeed" in page.locator(".verdict").inner_text()
        rows = page.get_by_role("region", name="Opinions of detectors").inner_text()
        assert "DEEPSPEED_CONFIG" in rows or "deepspeed" in rows
        page.locator("summary", has_text="wandb").first.click()
        page.wait_for_selector("details[open] pre")
        assert "llm-pretrain" in page.locator("pre").first.inner_text()
        watched.shot("why")


def test_events_and_runs_have_their_tabs(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b", ".tabs")
        page.get_by_role("tab", name="Events").click()
        page.wait_for_selector("text=checkpoint saved")
        watched.shot("events")
        page.get_by_role("tab", name="Runs").click()
        page.get_by_role("region", name="Runs and attempts").wait_for()
        ranked = page.get_by_role("region", name="Runs and attempts").locator("tr", has_text="ranked").inner_text()
        assert [part in ranked for part in ("0–127", "3,831", "0 – 29", "rank 100 at 20")] == [True] * 4
        watched.shot("runs")
        page.get_by_role("tab", name="Diagnosis").click()
        page.wait_for_selector(".verdict")


def test_what_all_ranks_say_is_one_line_with_their_places(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=vit-broken&tab=events", "#panel table")
        (line,) = page.locator("#panel tbody tr", has_text="out of memory").all_inner_texts()
        assert "ranks 0–7 · 8 pods · gpu-7" in line


def test_a_hang_and_the_stack_that_is_the_odd_one_out(lens: RunningLens, browse: Browse) -> None:
    send_stacks(lens, "stuck", time.time())  # what is older than a minute says nothing of now
    lens.drained()
    with browse() as watched:
        page = watched.open("/#/workload?uid=stuck&tab=diagnosis", ".verdict")
        assert "Stalled at iteration 99" in page.locator(".notice").inner_text()
        assert "Yes, it hangs" in page.locator(".verdict").inner_text()
        odd = page.locator("details.stack[open]")
        assert "rank 1" in odd.inner_text() or "1 rank" in odd.inner_text()
        assert "the odd one out" in odd.inner_text()
        assert "load_batch" in odd.inner_text()
        watched.shot("diagnosis")


def test_a_link_shows_somebody_else_the_same(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b", ".card[data-drawn]")
        page.get_by_label("Axis").select_option("time")
        page.get_by_label("Log scale").check()
        page.get_by_label("Smoothing", exact=False).fill("0.6")
        watched.until("location.hash.includes('smooth=0.6')")
        link = page.url
    with browse() as other:
        page = other.page
        page.goto(link)
        page.wait_for_selector(".card[data-drawn]")
        plot = page.locator(".card .plot").first
        assert plot.evaluate("p => [p.layout.yaxis.type, p.layout.xaxis.type]") == ["log", "date"]
        assert plot.evaluate("p => p.data.length") >= 4
        assert page.get_by_label("Log scale").is_checked()


def test_a_zoom_asks_the_server_for_finer_points(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&metric=loss", ".card[data-drawn]")
        box = page.locator(".plot .nsewdrag").first.bounding_box()
        assert box is not None
        with page.expect_request(lambda request: "start=" in request.url and "buckets" in request.url):
            page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
            page.mouse.up()
        page.get_by_role("button", name="Whole run").click()
        watched.until("!location.hash.includes('from=')")


def test_a_chart_is_zoomed_by_keys(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&metric=loss", ".card[data-drawn]")
        page.locator(".card").first.focus()
        with page.expect_request(lambda request: "start=" in request.url and "buckets" in request.url):
            page.keyboard.press("+")
        watched.until("location.hash.includes('from=')")
        before = page.evaluate("location.hash")
        page.keyboard.press("ArrowRight")
        watched.until(f"location.hash !== {before!r} && location.hash.includes('from=')")
        for _ in range(3):
            page.keyboard.press("-")
        watched.until("!location.hash.includes('from=')")


def test_csv_has_every_point_of_what_is_shown(browse: Browse) -> None:
    with browse(accept_downloads=True) as watched:
        page = watched.open("/#/workload?uid=gpt-small&metric=loss", ".card[data-drawn]")
        with page.expect_download() as download:
            page.get_by_role("button", name="CSV").click()
        lines = download.value.path().read_text().splitlines()
        assert len(lines) == 201
        assert any("NaN" in line for line in lines)


def test_light_dark_and_a_phone(browse: Browse) -> None:
    with browse(color_scheme="dark", viewport={"width": 390, "height": 800}) as watched:
        page = watched.open("/", "tbody tr .spark path")
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        tops = page.locator("tbody tr").evaluate_all("rows => rows.map(row => [row.offsetTop, row.scrollHeight])")
        assert all(above[0] + above[1] <= below[0] + 1 for above, below in pairwise(tops))
        watched.shot("list-phone-dark")
        page.get_by_role("link", name="llama-70b").click()
        page.wait_for_selector(".card[data-drawn]")
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        watched.shot("workload-phone-dark")
        page.keyboard.press("t")
        assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_all_of_it_by_keyboard(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/", "tbody tr")
        page.keyboard.press("/")
        page.keyboard.type("llama")
        watched.until("document.querySelectorAll('tbody tr').length === 1")
        for _ in range(20):  # the columns, the heads that sort
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.closest('tbody th') !== null"):
                break
        page.keyboard.press("Enter")
        page.wait_for_selector(".card[data-drawn]")
        page.locator("#tab-charts").focus()
        page.keyboard.press("ArrowRight")
        page.get_by_role("region", name="Runs and attempts").wait_for()
        ranked = page.get_by_role("region", name="Runs and attempts").locator("tr", has_text="ranked").inner_text()
        assert [part in ranked for part in ("0–127", "3,831", "0 – 29", "rank 100 at 20")] == [True] * 4
        assert page.evaluate("document.activeElement.id") == "tab-runs"
        page.keyboard.press("?")
        page.wait_for_selector("dialog[open]")
        page.keyboard.press("Escape")
        page.keyboard.press("h")
        page.wait_for_selector(".health h2")


def test_the_health_view_shows_the_road(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/health", "h2:has-text('Pipeline')")
        assert "wandb_api" in page.locator(".health").inner_text()
        watched.shot("health")


def test_a_job_shows_where_its_time_went(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&tab=time", ".life rect")
        assert "made progress" in page.locator(".sentence").first.inner_text()
        buckets = page.get_by_role("region", name="Where the time went").first
        assert "productive" in buckets.inner_text()
        assert "step times cannot tell" in page.locator("#panel").inner_text()
        watched.shot("time")


def test_the_fleet_shows_where_the_time_of_all_jobs_went(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/time?since=90d", "main h1")
        page.get_by_role("heading", name="Where the time went").wait_for()
        page.locator(".life rect, .empty").first.wait_for(state="attached")
        page.get_by_label("Groups").select_option("name")
        watched.until("location.hash.includes('by=name')")


def test_the_list_is_a_triage_whose_filters_order_and_columns_are_in_the_address(browse: Browse) -> None:
    def names() -> list[str]:
        return [text.split("\n")[0] for text in page.locator("tbody th").all_inner_texts()]

    with browse() as watched:
        page = watched.open("/", "tbody tr")
        failed = page.get_by_role("button", name="1 Failed")
        failed.click()
        watched.until("location.hash.includes('state=failed')")
        page.wait_for_selector("text=1–1 of 1")
        assert names() == ["vit-broken"]
        page.get_by_role("button", name="1 Hung").click()
        page.wait_for_selector("text=1–2 of 2")
        page.get_by_role("button", name="Workload", exact=True).click()
        watched.until("location.hash.includes('sort=name')")
        watched.until("document.querySelector('tbody th').innerText.startsWith('stuck')")
        page.get_by_role("button", name="Workload ↑").click()
        watched.until("document.querySelector('tbody th').innerText.startsWith('vit-broken')")
        page.locator("summary", has_text="Columns").click()
        page.get_by_label("Memory").uncheck()
        page.get_by_label("Rows").check()
        page.keyboard.press("Escape")
        watched.until("location.hash.includes('column=rows') && !location.hash.includes('column=memory')")
        watched.shot("triage")
        with browse() as another:
            page = another.open(page.url.removeprefix(watched.home), "tbody tr")
            another.until("document.querySelectorAll('tbody tr').length === 2")
            assert names() == ["vit-broken", "stuck"]
            heads = page.locator("thead th").all_inner_texts()
            assert "Rows" in heads
            assert "Memory" not in heads
            assert page.get_by_role("button", name="1 Failed").get_attribute("aria-pressed") == "true"
            page.get_by_label("No longer only Failed").click()
            another.until("document.querySelectorAll('tbody tr').length === 1")
            assert names() == ["stuck"]


def test_runs_are_rows_that_are_compared_with_a_baseline(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=sweep&tab=runs", "table")
        compared = page.get_by_role("region", name="Runs compared")
        assert compared.locator("tbody tr").count() == 12
        page.get_by_label("Baseline: trial-03").check()
        watched.until("location.hash.includes('baseline=')")
        page.wait_for_selector("text=/[+-][0-9.]+ %/")
        compared.get_by_role("button", name="loss", exact=True).click()
        watched.until("location.hash.includes('runsort=last.loss')")
        page.get_by_label("Filter runs").fill("run_id~trial-0")
        page.keyboard.press("Enter")
        page.wait_for_selector("text=1–10 of 10")
        watched.shot("run-table")
        with browse() as another:
            page = another.open(page.url.removeprefix(watched.home), "table")
            page.wait_for_selector("text=1–10 of 10")
            assert page.get_by_label("Baseline: trial-03").is_checked()
            page.get_by_label("Filter runs").fill("nonsense")
            page.keyboard.press("Enter")
            page.wait_for_selector(".problem:has-text('filter must be like')")
            page.get_by_label("No longer only nonsense").click()
            page.wait_for_selector("text=1–10 of 10")
            another.expected = ("400",)
