from __future__ import annotations

import struct
import time
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import Route

from tests.browser.conftest import Browse
from tests.browser.training import send_rows, send_slow_rank, send_stacks
from tests.end_to_end.running_lens import RunningLens

PICTURE = "document.querySelector('.card .plot').chart.picture"


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


def test_the_list_names_no_consequence_as_the_cause_while_the_verdict_is_not_known(browse: Browse) -> None:
    with browse() as watched:
        held: list[Route] = []
        is_known = False

        def hold(answer: Route) -> None:
            if is_known:
                answer.continue_()
            else:
                held.append(answer)

        watched.page.route("**/glance*", hold)
        page = watched.open("/", "tbody tr .state")
        row = page.locator("tbody tr", has_text="vit-broken")
        assert row.locator("td[data-head=State]").inner_text().split() == ["Failed", "…"]
        assert row.locator(".state").get_attribute("title") is None
        is_known = True
        for answer in held:
            answer.continue_()
        page.wait_for_selector("tbody tr:has-text('Out of device memory on rank')")


def test_a_workload_shows_charts_with_marks_and_numbers_that_are_none(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b", ".card[data-drawn]")
        watched.until("document.querySelectorAll('.card[data-drawn]').length >= 6")
        watched.shot("workload")
        card = page.locator(".card", has_text="loss").first
        plot = card.locator(".plot")
        assert plot.evaluate("p => p.chart.picture.specials.map(one => one.text)") == [
            "NaN at iteration 300",
            "NaN at iteration 150",
        ]
        watched.until(f"{PICTURE}.marks.length > 0")
        assert "checkpoint saved at 300" in plot.evaluate("p => p.chart.picture.marks.map(one => one.text)")
        assert plot.evaluate("p => Math.max(...p.chart.picture.lines.flatMap(one => one.y))") == 25


def test_without_outliers_the_rest_has_the_height(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&metric=loss", ".card[data-drawn]")
        highest = f"{PICTURE}.heights[1]"
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
        newest = f"{PICTURE}.lines[0].y.at(-1)"
        assert watched.page.evaluate(newest) == pytest.approx(shown)
        coarse = watched.page.evaluate(f"{PICTURE}.lines[0].x.length")
        assert watched.page.evaluate(f"{PICTURE}.heights[1]") < 2
        watched.shot("smoothed")
        watched.page.get_by_label("Outliers").check()
        watched.until(f"{PICTURE}.heights[1] > 900")
        watched.page.get_by_label("Smoothing").fill("0.5")
        shown = 0.0
        for value in values:
            shown = 0.5 * shown + 0.5 * value
        watched.until(f"Math.abs({newest} - {shown}) < 1e-9")
        watched.shot("band")
        page = watched.open("/#/workload?uid=spiky&metric=loss&from=3000&to=3100", ".card[data-drawn]")
        watched.until(f"{PICTURE}.lines[0].x.length > {coarse} + 80")  # every step of a range that is in the address
        assert (
            page.evaluate(f"{PICTURE}.lines[0].points.filter(one => one.x > 3002 && one.x < 3098 && one.steps > 1)")
            == []
        )


def test_many_runs_have_strokes_and_short_names(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=sweep&metric=loss", ".card[data-drawn]")
        legend = page.get_by_role("group", name="Runs and attempts")
        assert legend.locator("label").all_inner_texts() == [f"run trial-{number:02}" for number in range(12)]
        strokes = "p => p.chart.picture.lines.map(one => one.look.colour + one.look.dash)"
        assert len(set(page.locator(".card .plot").evaluate(strokes))) == 12
        fewest = f"Math.min(...{PICTURE}.lines.map(one => one.x.length))"
        watched.until(f"{fewest} > 90")  # not a twelfth of what one run gets
        legend.get_by_role("button", name="None").click()
        watched.until(f"{PICTURE}.lines.length === 0")
        legend.get_by_role("button", name="All").click()
        watched.until(f"{PICTURE}.lines.length === 12")
        watched.shot("many-runs")


COLOURS = "p => Object.fromEntries(p.chart.picture.lines.map(one => [one.look.label, one.look.colour]))"


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
            watched.until(f"{PICTURE}.lines.some(one => one.look.colour === '#e69f00')")
            found += page.locator(".card .plot").evaluate_all(f"all => all.map({COLOURS})")
    both = {"run z-prepare": "#0072b2", "run a-train": "#e69f00"}  # as they began
    assert [colours for colours in found if len(colours) == 2] == [both] * 3
    assert {colour for colours in found if len(colours) == 1 for colour in colours.values()} == {"#e69f00"}


def test_a_chart_is_kept_as_a_picture_with_its_title_and_legend(browse: Browse, tmp_path: Path) -> None:
    with browse(accept_downloads=True) as watched:
        page = watched.open("/#/workload?uid=llama-70b&metric=loss&log=1", ".card[data-drawn]")
        watched.until(f"{PICTURE}.marks.length > 0")
        for kind in ("SVG", "PNG"):
            page.get_by_label("Picture of loss").click()
            with page.expect_download() as download:
                page.get_by_role("button", name=kind).click()
            assert download.value.suggested_filename == f"loss.{kind.lower()}"
            download.value.save_as(tmp_path / kind)
        drawing = ElementTree.parse(tmp_path / "SVG").getroot()
        texts = [text.text for text in drawing.iter("{http://www.w3.org/2000/svg}text")]
        assert texts[:2] == ["loss", "llama-70b"]
        assert {"iteration", "run first", "run second", "run ranked"} <= set(texts)
        strokes = [path.get("stroke") for path in drawing.iter("{http://www.w3.org/2000/svg}path")]
        assert {"#0072b2", "#e69f00", "#009e73"} <= set(strokes)
        assert (tmp_path / "PNG").read_bytes().startswith(b"\x89PNG")
        width, height = struct.unpack(">II", (tmp_path / "PNG").read_bytes()[16:24])
        assert (width, height) == (1800, 896)


def test_several_workloads_are_laid_over_each_other(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/", "tbody tr .choice input")
        for name in ("llama-70b", "gpt-small"):
            page.get_by_label(f"Compare {name}").check()
        page.get_by_role("link", name="Compare 2").click()
        watched.until("document.querySelector('.card .plot')?.chart?.picture")
        names = page.evaluate(f"{PICTURE}.lines.map(one => one.look.label)")
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
        page = watched.open("/#/workload?uid=llama-70b&metric=loss", ".card[data-drawn]")
        page.get_by_label("Axis").select_option("time")
        page.get_by_label("Log y").check()
        page.get_by_label("Smoothing", exact=False).fill("0.6")
        watched.until("location.hash.includes('smooth=0.6')")
        link = page.url
    with browse() as other:
        page = other.page
        page.goto(link)
        page.wait_for_selector(".card[data-drawn]")
        plot = page.locator(".card .plot").first
        assert plot.evaluate("p => [p.chart.picture.log, p.chart.picture.axis]") == [True, "time"]
        assert plot.evaluate("p => p.chart.picture.lines.every(one => one.faint)")
        assert page.get_by_label("Log y").is_checked()


def test_a_zoom_asks_the_server_for_finer_points(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&metric=loss", ".card[data-drawn]")
        box = page.locator(".plot .u-over").first.bounding_box()
        assert box is not None
        with page.expect_request(lambda request: "start=" in request.url and "buckets" in request.url):
            page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
            page.mouse.down()
            page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
            page.mouse.up()
        page.get_by_role("button", name="Whole run").click()
        watched.until("!location.hash.includes('from=')")


CHARTS = "[...document.querySelectorAll('.card .plot')].map(p => p.chart).filter(c => c)"
RANGES = f"{CHARTS}.map(c => [c.u.scales.x.min, c.u.scales.x.max].join())"


def test_all_charts_have_one_range_and_one_cursor(browse: Browse) -> None:
    with browse() as watched:
        # One of these runs began later and has no loss: what its charts reach to is that of all.
        page = watched.open(
            "/#/workload?uid=two-phases&metric=loss&metric=mem_usage&metric=grad_norm", ".card[data-drawn]"
        )
        watched.until(f"{RANGES}.length === 3 && new Set({RANGES}).size === 1")
        box = page.locator(".plot .u-over").first.bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] * 0.4, box["y"] + 60)
        cursors = f"{CHARTS}.map(c => Math.round(c.u.posToVal(c.u.cursor.left, 'x')))"
        watched.until(f"new Set({cursors}).size === 1 && {cursors}[0] > 0")
        page.wait_for_selector(".tooltip:not([hidden])")
        assert page.locator(".tooltip:not([hidden])").count() == 1
        assert "iteration" in page.locator(".tooltip:not([hidden])").inner_text()
        page.mouse.down()
        page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=4)
        page.mouse.up()
        watched.until(
            f"location.hash.includes('from=') && new Set({RANGES}).size === 1 && !{RANGES}[0].startsWith('0,')"
        )
        heights = page.evaluate(f"{PICTURE}.heights")
        assert heights[1] < 20, "the height fits what is shown, without the spike before it"
        page.keyboard.down("Control")
        before = page.evaluate(f"{RANGES}[0]")
        page.mouse.wheel(0, 240)
        page.keyboard.up("Control")
        watched.until(f"{RANGES}[0] !== '{before}' && new Set({RANGES}).size === 1")


def test_a_slow_browser_zooms_sketches_and_has_whole_charts_once_the_zoom_ends(
    lens: RunningLens, browse: Browse
) -> None:
    entries = [{"step": step, "timestamp": 1.7e9 + step, "data": {"loss": step % 7, "mem": 1}} for step in range(2000)]
    send_rows(lens, "banded", entries)
    lens.drained()
    looks = "all => all.map(p => p.chart.u.series.slice(1).map(one => [one.show, one.width].join()).join())"
    with browse() as watched:
        page = watched.open("/#/workload?uid=banded&metric=loss&metric=mem", ":nth-match(.card[data-drawn], 2)")
        before = page.locator(".plot").evaluate_all(looks)
        zoom = """p => {
            const { grid } = p.card;
            const range = grid.whole.map(end => end / 2);
            const drawn = [];
            grid.frames.qualityOf = () => "sketch";
            const noted = u => drawn.push(u.series.filter(one => one.show).length);
            for (const { place } of grid.cards.values()) place.chart.u.hooks.draw.push(noted);
            grid.zoom(range);
            const again = () => {
                if (drawn.includes(2)) return grid.zoom(null);
                grid.zoom(range);
                requestAnimationFrame(again);
            };
            again();
            window.drawn = drawn;
        }"""
        page.locator(".plot").first.evaluate(zoom)
        watched.until("drawn.includes(2) && drawn.at(-1) === 4")
        watched.until("!document.querySelector('.plot').card.grid.frames.isBehind")
        assert page.locator(".plot").evaluate_all(looks) == before


def test_charts_are_found_pinned_and_folded_and_the_address_has_it(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b", ".card[data-drawn]")
        titles = page.locator("h2.fold button")
        assert titles.all_inner_texts() == ["▾ Charts 6", "▾ layer* 16"]
        page.get_by_label("Pin grad_norm").click()
        watched.until("document.querySelector('.card').getAttribute('aria-label') === 'grad_norm'")
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Pin grad_norm"
        page.get_by_role("button", name="layer*").click()
        watched.until("document.querySelectorAll('.card').length === 6")
        watched.shot("sections")
        page.reload()
        page.wait_for_selector(".card[data-drawn]")
        assert titles.all_inner_texts() == ["▾ Pinned 1", "▾ Charts 5", "▸ layer* 16"]
        page.get_by_label("Filter charts").fill("^loss|layer0[13]")
        watched.until("location.hash.includes('filter=') && document.querySelectorAll('.card').length === 2")
        page.get_by_role("button", name="layer*").click()
        cards = "[...document.querySelectorAll('.card')].map(card => card.getAttribute('aria-label')).join()"
        watched.until(f"{cards} === 'grad_norm,loss,layer01/norm,layer03/norm'")
        page.get_by_label("Filter charts").fill("(")
        page.wait_for_selector("[aria-label='Filter charts'][aria-invalid='true']")
        page.get_by_label("Filter charts").fill("")
        page.get_by_text("Metrics (").click()
        page.get_by_label("Search metrics").fill("norm$")
        page.get_by_label("Choose none of the found metrics").click()
        watched.until(f"!{cards}.includes('layer')")
        page.get_by_label("Choose all found metrics").click()
        watched.until("location.hash.includes('metric=*')")


def test_any_metric_is_an_axis_and_what_log_scales_hide_is_said(lens: RunningLens, browse: Browse) -> None:
    entries = [
        {
            "step": step,
            "timestamp": 1.7e9 + step,
            "data": {"loss": 2 - step / 100, "tokens": step * 4096.0, "wave": step % 50, "huge": 1e35 * step},
        }
        for step in range(400)
    ]
    send_rows(lens, "axes", entries)
    lens.drained()
    with browse() as watched:
        page = watched.open("/#/workload?uid=axes&metric=loss", ".card[data-drawn]")
        page.get_by_label("Axis").select_option(label="tokens")
        watched.until(f"{PICTURE}.axis === 'metric:tokens' && {PICTURE}.range[1] === 399 * 4096")
        page.get_by_label("Log x").check()
        page.get_by_label("Log y").check()
        watched.until(
            "document.querySelector('.card .hint').textContent"
            " === '200 points at or below 0 not shown, 1 point at or left of 0 not shown'"
        )
        watched.shot("log-log")
        with browse() as another:
            another.open(page.url.removeprefix(watched.home), ".card[data-drawn]")
            another.until(f"{PICTURE}.axis === 'metric:tokens' && {PICTURE}.logX && {PICTURE}.log")
        with browse() as zoomed:
            page_of_zoom = zoomed.open("/#/workload?uid=axes&metric=huge&from=0&to=100", ".card[data-drawn]")
            assert page_of_zoom.evaluate("document.querySelector('.card .plot').chart.u.axes[1]._splits.length") > 2
            page_of_zoom.get_by_label("Log x").check()  # has no place for 0
            zoomed.until(f"{PICTURE}.logX && {PICTURE}.range[0] === 1 && !location.hash.includes('from=')")
        page.get_by_label("Axis").select_option(label="wave")  # goes back
        watched.until(f"{PICTURE}.lines[0].isScattered")
        page.get_by_label("Axis").select_option("relative")
        watched.until(f"{PICTURE}.range[1] === 399000")
        page.get_by_label("Axis").select_option("time")
        watched.until(f"!{PICTURE}.logX")
        assert page.get_by_label("Log x").is_disabled()


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
        page.set_viewport_size({"width": 360, "height": 800})
        watched.until("innerWidth === 360 && document.documentElement.scrollWidth <= innerWidth")
        assert page.locator("#connection").evaluate("one => one.getClientRects().length") == 1, "it is not broken"
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
        assert "Price" in buckets.locator("thead").inner_text()
        assert "step times cannot tell" in page.locator("#panel").inner_text()
        watched.shot("time")


@pytest.mark.parametrize(("metric", "slow"), [("forward_time", 200.0), ("backward_time", 3.0)])
def test_the_rank_that_holds_the_others_up_is_orange(
    lens: RunningLens, browse: Browse, metric: str, slow: float
) -> None:
    """Example: its own work takes twice as long, or it is the one that does not wait."""
    uid = f"slow-{metric}"
    send_slow_rank(lens, uid, metric, slow)
    with browse() as watched:
        page = watched.open(f"/#/workload?uid={uid}&tab=time", ".heat rect")
        assert "rank 2 holds the others up" in page.locator("#panel").inner_text()
        cells = page.locator(".heat rect").evaluate_all(
            "cells => cells.map((cell) => [cell.querySelector('title').textContent, cell.getAttribute('fill')])"
        )
        assert len(cells) >= 4 * 5
        orange = {title.split(":")[0] for title, fill in cells if fill == "rgb(213 94 0)"}
        assert orange == {"rank 2"}
        watched.shot(f"ranks-{metric}")


def test_any_metric_is_a_map_of_ranks_whose_slowest_is_first(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b&tab=ranks", "canvas.ranks")
        label = page.locator("canvas.ranks").get_attribute("aria-label") or ""
        assert label.startswith("tokens_per_gpu by rank and iteration; from the top: ranks 0, 1, 2")
        assert page.locator("canvas.ranks").evaluate("canvas => canvas.height") == 128
        watched.shot("rank-map")
        page.locator("canvas.ranks").hover(position={"x": 5, "y": 1})
        page.wait_for_selector("text=rank 0, iteration 0: 4,000")
        page.select_option("select[aria-label=Metric]", "loss")
        page.wait_for_selector("canvas[aria-label^=loss]")
        assert "rankmetric=loss" in page.url
        watched.open(page.url.removeprefix(watched.home).replace("llama-70b", "gpt-small"), "#panel .empty")


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
        page.get_by_label("Filter runs").fill("run_id~trial-0")
        compared.get_by_role("button", name="loss", exact=True).click()
        watched.until("location.hash.includes('runsort=last.loss')")
        page.wait_for_selector("button[data-sort='last.loss']:text('↑')")
        page.get_by_label("Filter runs").press("Enter")  # what was written is still there
        page.wait_for_selector("text=1–10 of 10")
        assert page.evaluate("location.hash.includes('runsort=last.loss')")
        page.get_by_label("Group runs by").select_option("state")
        page.wait_for_selector("tr.group:has-text('10 runs')")
        watched.shot("run-table")
        with browse() as another:
            page = another.open(page.url.removeprefix(watched.home), "table")
            page.wait_for_selector("text=1–10 of 10")
            assert page.get_by_label("Baseline: trial-03").is_checked()
            assert page.locator("tr.group").count() == 1
            page.get_by_label("Filter runs").fill("nonsense")
            page.keyboard.press("Enter")
            page.wait_for_selector(".problem:has-text('filter must be like')")
            page.get_by_label("No longer only nonsense").click()
            page.wait_for_selector("text=1–10 of 10")
            another.expected = ("400",)


def test_a_failed_job_shows_its_last_lines_and_its_machines(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=vit-broken", ".evidence pre")
        watched.shot("failed")
        told = page.locator(".evidence pre").first
        assert "OutOfMemoryError" in told.inner_text()
        assert "HF_TOKEN=***" in told.inner_text()
        assert "rank 3, gpu-7" in page.locator(".evidence summary").first.inner_text()
        page.locator(".evidence summary").first.click()
        page.get_by_role("tab", name="Host and GPU").click()
        page.wait_for_selector(".machine")
        titles = [title.split()[0] for title in page.locator(".machine h2").all_inner_texts()]
        assert titles == ["loss", "gpu.used_pct", "gpu.memory_used_bytes", "host.cpu.used_pct"]
        plot = page.locator(".machine .plot").nth(1)
        assert plot.evaluate("p => p.chart.picture.lines.length") == 2
        assert page.locator(".machine .readout").nth(1).locator("svg").count() == 2, "each line is named by its stroke"
        plot.hover()
        assert "gpu-7 gpu 1" in page.locator(".machine .readout").nth(1).inner_text()
        watched.shot("machines")
        shown = "() => document.querySelectorAll('.machine .plot')[1].chart.picture.range"
        whole = page.evaluate(shown)
        box = plot.locator(".u-over").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + 0.3 * box["width"], box["y"] + 20)
        page.mouse.down()
        page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 20, steps=3)
        page.mouse.up()
        watched.until(f"location.hash.includes('mfrom=') && ({shown})()[0] > {whole[0]}")
        zoomed = page.evaluate("[new URLSearchParams(location.hash).get('mfrom'), location.href]")
        page.goto("about:blank")
        page.goto(zoomed[1])
        page.wait_for_selector(".machine .u-over")
        assert page.evaluate(shown)[0] >= int(zoomed[0])
        page.keyboard.press("r")
        watched.until(f"!location.hash.includes('mfrom=') && ({shown})()[0] <= {whole[0]}")
        assert not page.locator(".evidence details").first.get_attribute("open"), "it stays folded"
        page.goto("about:blank")
        watched.open("/#/workload?uid=gpt-small&tab=machines", "#panel .empty")


def test_the_list_is_grouped_and_the_grouping_is_in_the_address(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/", "tbody tr")
        page.get_by_label("Group by").focus()
        page.wait_for_selector("option[value='project']", state="attached")
        page.get_by_label("Group by").select_option("project")
        watched.until("location.hash.includes('group=project')")
        page.wait_for_selector("tr.group")
        heads = page.locator("tr.group").all_inner_texts()
        assert [head.split(" · ")[0] for head in heads][:-1] == ["project: llm-pretrain 2 workloads"]
        assert heads[-1].startswith("project: none ")  # other tests send more workloads
        assert "1 failed · 1 hung" in heads[-1]
        watched.shot("groups")
        with browse() as another:
            page = another.open(page.url.removeprefix(watched.home), "tr.group")
            assert page.get_by_label("Group by").input_value() == "project"


def test_attempts_are_one_line_with_marks_until_somebody_parts_them(lens: RunningLens, browse: Browse) -> None:
    records = [
        {
            "record": "step_metrics",
            "origin": {"workload_uid": "restarted"},
            "data_source": "wandb",
            "run_id": "run",
            "session": f"s{attempt}",
            "row_step": step,
            "values": {"loss": 10.0 * attempt + step / 100, "tiny": 1e-30 * step},
            "event_time": 1.7e9 + 1000 * attempt + step,
        }
        for attempt, first, last in ((1, 0, 60), (2, 40, 80), (3, 70, 100))
        for step in range(first, last)
    ]
    assert lens.post("/records", {"version": 1, "records": records}).json()["rejected"] == []
    lens.drained()
    with browse() as watched:
        page = watched.open("/#/workload?uid=restarted&metric=loss&metric=tiny", ".card[data-drawn]")
        page.get_by_label("Join attempts").wait_for()
        assert page.evaluate(f"{PICTURE}.lines.map(one => one.x)") == [list(range(100))]
        attempts = page.evaluate(f"{PICTURE}.lines[0].y.map(value => Math.floor(value / 10))")
        assert attempts == [1] * 40 + [2] * 30 + [3] * 30
        begins = f"{PICTURE}.marks.filter(one => one.type === 'attempt_began').map(one => one.text)"
        assert page.evaluate(begins) == ["attempt 2 begins at 40", "attempt 3 begins at 70"]
        watched.until("document.querySelectorAll('.card[data-drawn]').length === 2")
        tiny = page.locator(".card", has_text="tiny").locator(".plot")
        # The library draws no scale that is narrower than 1e-16, which would be an empty chart.
        assert tiny.evaluate("p => p.chart.u.scales.y.max > p.chart.u.scales.y.min")
        assert tiny.evaluate("p => p.chart.u.valToPos(p.chart.u.data[1].at(-1), 'y') < p.clientHeight / 4")
        watched.shot("joined")
        page.get_by_label("Join attempts").uncheck()
        watched.until(f"{PICTURE}.lines.length === 3")
        assert page.get_by_role("group", name="Runs and attempts").locator("label").count() == 3
        watched.until("location.hash.includes('joined=0')")
        page.get_by_label("Join attempts").check()
        page.get_by_label("Axis").select_option("time")  # by time they stand beside each other
        watched.until(f"{PICTURE}.lines.length === 3")
        page.get_by_role("tab", name="Runs").click()
        rows = page.get_by_role("region", name="Runs and attempts").locator("tbody tr")
        rows.first.wait_for()
        assert [row.split("\t")[9] for row in rows.all_inner_texts()] == ["20", "10", "–"]


def test_of_ranks_with_runs_of_their_own_the_lowest_is_drawn(lens: RunningLens, browse: Browse) -> None:
    records = [
        {
            "record": "step_metrics",
            "origin": {"workload_uid": "own-runs", "rank": rank},
            "data_source": "wandb",
            "run_id": f"run-{rank}",
            "row_step": step,
            "values": {"loss": float(rank)},
            "event_time": 1.7e9 + step,
        }
        for rank in range(4)
        for step in range(50)
    ]
    assert lens.post("/records", {"version": 1, "records": records}).json()["rejected"] == []
    lens.drained()
    with browse() as watched:
        page = watched.open("/#/workload?uid=own-runs&metric=loss", ".card[data-drawn]")
        page.get_by_label("All ranks").wait_for()
        watched.until(f"{PICTURE}.lines.length === 1")
        assert page.evaluate(f"{PICTURE}.lines[0].y[0]") == 0
        page.get_by_label("All ranks").check()
        watched.until(f"{PICTURE}.lines.length === 4")
        watched.until("location.hash.includes('ranks=1')")
