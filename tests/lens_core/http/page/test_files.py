from __future__ import annotations

import gzip
import re
from pathlib import Path

import pytest
from lens_plugins.sources.wandb_api import WandbApi

from lens_core.http.page.assets import assets, bundle, charts_path
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
        assert len(named) >= 3
        for path in named:
            answer = await client.get(f"/{path}")
            assert answer.status_code == 200, path
            assert "immutable" in answer.headers["cache-control"]
            assert answer.headers["content-encoding"] == "gzip"


def test_the_modules_are_one_file() -> None:
    script = assets().named("page.js").plain.decode()
    for module in STATIC.glob("*.js"):
        assert f"const m_{module.stem} = " in script
    assert re.findall(r"^(import|export)\b", script, re.MULTILINE) == []


def test_bundling() -> None:
    modules = {"a": 'import { x as y } from "./b.js";\nexport const z = y;\n', "b": "export const x = 1;\n"}
    found = bundle(modules, "a")
    assert found.index("m_b") < found.index("m_a")
    assert "const { x: y } = m_b;" in found
    for broken in (
        {"a": 'import x from "./b.js";\n', "b": ""},
        {"a": 'import { x } from "./a.js";\n'},
        {"a": 'import { x } from "./c.js";\n'},
        {"a": "export default 1;\n"},
    ):
        with pytest.raises(ValueError, match=r"style|need each other|no module"):
            bundle(broken, "a")


async def test_the_chart_library_comes_out_of_the_python_package(app: IngestApp) -> None:
    async with app.client() as client:
        answer = await client.get("/page/any/plotly.js")
        assert "immutable" in answer.headers["cache-control"]
        assert b"plotly.js v" in answer.content[:200]
        plain = await client.get("/page/any/plotly.js", headers={"Accept-Encoding": "identity"})
        assert "content-encoding" not in plain.headers
        assert plain.content == answer.content
    assert charts_path() is not None


def test_the_page_is_light() -> None:
    weight = assets().size_bytes()
    assert weight < 60_000
    plain = sum(path.stat().st_size for path in STATIC.iterdir())
    assert plain < 220_000
    html = assets().named("index.html")
    assert gzip.decompress(html.compressed) == html.plain


def test_nothing_inline_and_nothing_from_elsewhere() -> None:
    for path in STATIC.glob("*.html"):
        text = path.read_text()
        assert re.findall(r"<script(?![^>]*\bsrc=)", text) == []
        assert re.findall(r"\son\w+=", text) == []
        assert re.findall(r"https?://", text) == []
    for path in STATIC.glob("*.js"):
        text = path.read_text()
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
