from __future__ import annotations

import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.conftest import Browse

VIEWS = {
    "list": ("/", "tbody tr .spark path"),
    "charts": ("/#/workload?uid=llama-70b", ".card[data-drawn]"),
    "runs": ("/#/workload?uid=llama-70b&tab=runs", "#panel table"),
    "events": ("/#/workload?uid=llama-70b&tab=events", "#panel table"),
    "failed": ("/#/workload?uid=vit-broken", ".evidence pre"),
    "machines": ("/#/workload?uid=vit-broken&tab=machines", ".machine"),
    "ranks": ("/#/workload?uid=llama-70b&tab=ranks", "canvas.ranks"),
    "why": ("/#/workload?uid=llama-70b&tab=why", ".verdict"),
    "diagnosis": ("/#/workload?uid=stuck&tab=diagnosis", "#panel .verdict"),
    "compare": ("/#/workload?uid=llama-70b&uid=gpt-small&tab=compare", "#panel table"),
    "many runs": ("/#/workload?uid=sweep", ".card[data-drawn]"),
    "health": ("/#/health", ".health h2"),
    "login": ("/login", "form"),
}


@pytest.mark.slow("axe looks at every element of every view")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(browse: Browse, scheme: str) -> None:
    found = []
    # The colours differ in the dark, the structure does not.
    views = (
        VIEWS if scheme == "light" else {view: VIEWS[view] for view in ("list", "charts", "why", "health", "machines")}
    )
    for view, (path, wait) in views.items():
        # axe's own script is put into the page from outside, which the page's policy rightly refuses.
        with browse(color_scheme=scheme, bypass_csp=True) as watched:
            page = watched.open(path, wait)
            results = Axe().run(page).response
            for violation in results["violations"]:
                places = [node["html"][:120] for node in violation["nodes"][:3]]
                found.append(f"{view}: {violation['id']}: {violation['help']}: {places}")
    assert found == []
