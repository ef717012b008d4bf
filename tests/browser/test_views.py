from __future__ import annotations

from tests.browser.conftest import Browse


def test_the_list_shows_what_failed_first_and_what_is_known_of_each(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/", "tbody tr .badge")
        page.wait_for_selector("tbody tr .spark path")
        names = page.locator("tbody tr th a").all_inner_texts()
        assert names[0] == "vit-broken"
        assert set(names) >= {"llama-70b", "gpt-small", "vit-broken"}
        assert page.locator("tbody tr").first.locator(".state").inner_text() == "Failed"
        row = page.locator("tbody tr", has_text="llama-70b")
        assert "deepspeed" in row.locator(".badges").inner_text()
        assert row.locator(".spark .nan").count() == 1
        watched.shot("list")


def test_a_workload_shows_charts_with_marks_and_numbers_that_are_none(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/workload?uid=llama-70b", ".card[data-drawn]")
        page.wait_for_function("document.querySelectorAll('.card[data-drawn]').length >= 6")
        watched.shot("workload")
        card = page.locator(".card", has_text="loss").first
        symbols = card.locator(".plot").evaluate(
            "p => p.data.filter(t => t.name.includes('not a number')).map(t => t.x.length)"
        )
        assert symbols and all(count == 1 for count in symbols)
        marks = card.locator(".plot").evaluate("p => p.data.find(t => t.name === 'events').customdata")
        assert "checkpoint saved at 300" in marks
        spike = card.locator(".plot").evaluate("p => Math.max(...p.data[0].y)")
        assert spike == 25


def test_the_health_view_shows_the_road(browse: Browse) -> None:
    with browse() as watched:
        page = watched.open("/#/health", "h2:has-text('Pipeline')")
        assert "wandb_api" in page.locator(".health").inner_text()
        watched.shot("health")
