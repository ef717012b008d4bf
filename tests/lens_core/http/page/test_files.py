from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from lens_plugins.sources.wandb_api import WandbApi

from lens_core.http.page.assets import assets
from tests.plugins.sources.ingest_app import IngestApp

STATIC = Path("lens_core/http/page/static")


@pytest.fixture
def app(tmp_path: Path) -> IngestApp:
    return IngestApp(WandbApi, tmp_path)


async def test_the_page_and_all_that_it_names_is_there(app: IngestApp) -> None:
    async with app.client() as client:
        page = await client.get("/")
        assert page.headers["cache-control"] == "no-cache"
        assert page.headers["content-security-policy"].endswith("; frame-ancestors 'none'")
        assert page.headers["x-frame-options"] == "DENY"
        named = re.findall(r'(?:href|src)="(page/[^"]+)"', page.text)
        modules = {f"page/{assets().version}/{path.name}" for path in STATIC.glob("*.js")}
        assert modules | {f"page/{assets().version}/uplot.css"} < set(named)
        for path in named:
            answer = await client.get(f"/{path}")
            assert answer.status_code == 200, path
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["content-encoding"] == "gzip"


def test_the_modules_import_what_others_export() -> None:
    sources = {path.name: path.read_text() for path in STATIC.glob("*.js")}
    for name, source in sources.items():
        if name == "uplot.js":
            continue
        for imported, module in re.findall(r'^import \{ ([^}]+) \} from "\./([a-z]+\.js)";$', source, re.MULTILINE):
            for part in imported.split(", "):
                exported = rf"^export (?:async )?(?:function|class|const) {part.split(' as ')[0]}\b"
                assert re.search(exported, sources[module], re.MULTILINE), (name, module, part)


async def test_the_chart_library_comes_with_the_installation(app: IngestApp) -> None:
    async with app.client() as client:
        answer = await client.get(f"/page/{assets().version}/uplot.js")
        assert "immutable" in answer.headers["cache-control"]
        assert b"The MIT License" in answer.content
        plain = await client.get("/page/any/uplot.js", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == answer.content
        assert plain.content.endswith(b"export default uPlot;\n")


def test_the_page_names_every_module_once_and_those_of_every_view_first() -> None:
    links = re.findall(
        r'<link rel="modulepreload"(.*?) href="page/\w+/([^"]+)">', assets().named("index.html").plain.decode()
    )
    names = [name for _, name in links]
    assert sorted(names) == sorted(path.name for path in STATIC.glob("*.js"))
    needed = [name for more, name in links if not more]
    assert needed == names[: len(needed)]
    for name in needed:  # what they import is needed, too
        assert set(re.findall(r'from "\./([^"]+)"', (STATIC / name).read_text())) <= set(needed)
    assert {"list.js", "workload.js", "uplot.js"}.isdisjoint(needed)


def test_the_page_is_light() -> None:
    weight = assets().size_bytes()
    assert weight < 120_000  # with the chart library
    plain = sum(path.stat().st_size for path in STATIC.iterdir())
    assert plain < 320_000
    html = assets().named("index.html")
    assert gzip.decompress(html.compressed) == html.plain


def test_nothing_inline_and_nothing_from_elsewhere() -> None:
    for path in STATIC.glob("*.html"):
        text = path.read_text()
        assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
        assert re.findall(r"\son\w+=", text) == []
        assert re.findall(r"https?://", text) == []
    for path in STATIC.glob("*.js"):
        text = "" if path.name == "uplot.js" else path.read_text()
        for forbidden in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"):
            assert forbidden not in text, (path.name, forbidden)


async def test_what_is_not_there_is_said(app: IngestApp) -> None:
    async with app.client() as client:
        for path in ("/page/x/nothing.js", "/page/x/index.html", "/page/x/..%2f..%2fauth.py", "/page/x/style.css/x"):
            assert (await client.get(path)).status_code == 404, path
        assert (await client.get("/page/old/style.css")).headers["cache-control"] == "no-cache"


async def test_api_answers_are_guarded_too(app: IngestApp) -> None:
    async with app.client() as client:
        headers = (await client.get("/api/v1/status")).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
