"""Documentation is tested: every hook, route, metric, command and option appears in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from lens_plugins.sources.wandb_api import WandbApi
from starlette.routing import Mount, Route

from lens_core.config.settings import ServerSettings, SpoolSettings
from lens_core.http.app import build_app
from lens_core.plugin_api.hook_specs import HookSpecs
from lens_core.plugin_host.host import PluginHost
from scripts.reference_pages import commands_reference
from tests.exposition import exposition_with_plugins, metric_names
from tests.plugins.sources.ingest_app import IngestApp

ROOT = Path(__file__).parent.parent
DOCS = {path.name: path.read_text() for path in (ROOT / "docs").glob("*.md")}
ALL_DOCS = "\n".join(DOCS.values())


def test_the_command_reference_is_what_the_commands_say() -> None:
    assert DOCS["commands.md"] == commands_reference(), "run: python scripts/reference_pages.py"


def test_every_metric_is_documented_and_every_documented_one_exists() -> None:
    documented = set(re.findall(r"^\| `(\w+)`", ALL_DOCS, re.MULTILINE))
    names = {name for name in metric_names() if not name.endswith("_created")}
    assert names - documented == set()
    claimed = set(re.findall(r"^\| `(\w+)`", DOCS["metrics.md"], re.MULTILINE))
    assert claimed - names == set()


def test_the_seeds_counters_have_exactly_their_names() -> None:
    text = exposition_with_plugins()
    for name in ("wandb_metrics_store_count", "training_performance_save_count", "log_analysis_consume_count"):
        assert f"# TYPE {name} counter" in text
        assert f"{name}_total" not in text


def test_every_route_is_documented(tmp_path: Path) -> None:
    app = build_app(IngestApp(WandbApi, tmp_path).state)
    paths: set[str] = set()
    for route in app.routes:
        if isinstance(route, Mount):
            paths |= {below.path for below in route.routes if isinstance(below, Route)}
        elif isinstance(route, Route):
            paths.add(route.path)
    paths = {path.replace(":path}", "}") for path in paths}
    assert {path for path in paths if path not in ALL_DOCS} == set()


@pytest.mark.parametrize("hook", [name for name in vars(HookSpecs) if name.startswith("lens_")])
def test_every_hook_specification_is_documented(hook: str) -> None:
    assert hook in DOCS["plugins.md"]


def test_every_option_of_the_daemon_and_of_every_plugin_is_documented() -> None:
    missing = [
        f"{section}.{name}"
        for section, settings in (("server", ServerSettings), ("spool", SpoolSettings))
        for name in settings.__struct_fields__
        if name not in DOCS["configuration.md"]
    ]
    for plugin in PluginHost.load().plugins():
        if plugin.distribution == "lens-agent":
            for component in plugin.components:
                missing += [
                    f"{component.name}.{setting.name}"
                    for setting in component.settings
                    if not setting.documentation and setting.name not in ALL_DOCS
                ]
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_links_between_the_pages_lead_somewhere() -> None:
    pages = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *(ROOT / "docs").glob("*.md"), ROOT / "benchmarks/README.md"]
    broken = []
    for page in pages:
        for target, anchor in re.findall(r"\]\(([^)#:]*)(?:#([^)]*))?\)", page.read_text()):
            file = page.parent / target if target else page
            if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors_of(file)):
                broken.append(f"{page.name}: {target}#{anchor}")
    assert broken == []


def test_every_benchmark_is_listed() -> None:
    """Those that take `--quick`; the other scripts are run by them."""
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()}
    figures = {script for script in scripts if not script.endswith(("_job", "_load"))}
    listed = re.findall(r"python -m benchmarks\.(\w+)", (ROOT / "benchmarks/README.md").read_text())
    assert set(listed) == figures


def test_nothing_of_a_machine_or_a_registry_is_in_the_project() -> None:
    words = re.compile(r"pypi\.org|pythonhosted|registry\.npmjs|deb\.debian\.org|/root/\.cache|/opt/(?!rocm)\w+/")
    suffixes = {".py", ".md", ".toml", ".yaml", ".sh", ".txt", ".sql"}
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for folder in ("lens_core", "plugins", "docs", "examples", "benchmarks", "scripts")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in suffixes and (match := words.search(path.read_text(errors="replace")))
    ]
    assert found == []


def test_what_contributors_are_sent_to_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    named = set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", text)) - {".venv/bin/"}
    assert len(named) > 20
    assert [path for path in sorted(named) if not path.startswith("~") and not (ROOT / path).exists()] == []
