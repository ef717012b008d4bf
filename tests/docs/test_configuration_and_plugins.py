"""docs/configuration.md and docs/plugins.md say what is true."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lens_core import (
    API_VERSION,
    Collector,
    Context,
    Detector,
    IngestRequest,
    NoSettings,
    Poisoned,
    Rejected,
    Retry,
    Sink,
    Source,
)
from lens_core.config.loading import SECTIONS, FilterSettings, ServerSettings, SpoolSettings, parse_config
from lens_core.plugin_host.host import PluginHost
from lens_core.plugin_host.info import HOOKS, HOST_KEYS, KINDS
from lens_core.testing import __all__ as testing_names
from lens_core.testing import check_detector, check_source, host_of, make_context

DOCS = Path(__file__).parents[2] / "docs"
CONFIGURATION = (DOCS / "configuration.md").read_text()
PLUGINS = (DOCS / "plugins.md").read_text()


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


@pytest.mark.parametrize("settings", [ServerSettings, SpoolSettings, FilterSettings])
def test_every_option_is_documented(settings: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(settings):
        assert f"`{field.name}`" in CONFIGURATION, field.name


def test_every_section_and_host_key_is_documented() -> None:
    for name in SECTIONS:
        assert f"`{name}`" in CONFIGURATION, name
    for keys in HOST_KEYS.values():
        for key in keys:
            assert f"`{key}`" in CONFIGURATION or f"`{key}" in CONFIGURATION or f"{key}:" in CONFIGURATION, key
            assert f"`{key}`" in PLUGINS, key


def test_defaults_are_as_the_table_says() -> None:
    table = dict(re.findall(r"^\| `(\w+)` \| `?(.+?)`? \|", CONFIGURATION, flags=re.M))
    defaults = {**msgspec.to_builtins(ServerSettings()), **msgspec.to_builtins(SpoolSettings())}
    shown: dict[str, tuple[object, ...]] = {
        "–": ("", None),
        "[]": ([],),
        "a quarter of `max_bytes": (None,),
        "16 MiB": (16 * 2**20,),
        "64 MiB": (64 * 2**20,),
        "1 GiB": (2**30,),
        "5": (5.0,),
        "900": (900.0,),
    }
    for name, default in defaults.items():
        text = table[name].strip()
        assert default in shown.get(text, (text, text == "true")), name


def test_the_example_file_is_valid() -> None:
    (text,) = blocks(CONFIGURATION, "yaml")
    config = parse_config(text, "docs", PluginHost.load(), {"DB_PASSWORD": "x", "HOME": "/"}, folder=Path())
    assert [*config.pipelines] == ["training", "copies"]
    assert config.notices == []


def test_every_hook_kind_and_state_is_in_the_plugin_page() -> None:
    for hook in HOOKS:
        assert f"`{hook}`" in PLUGINS
    for base in KINDS.values():
        assert f"`{base.__name__}`" in PLUGINS
    for state in ("loaded", "disabled", "unavailable", "failed", "conflicting"):
        assert f"| `{state}` |" in PLUGINS
    for answer in (Retry, Rejected, Poisoned):
        assert f"`{answer.__name__}(" in PLUGINS
    for field in msgspec.structs.fields(Context):
        assert f"`{field.name}`" in PLUGINS
    for name in testing_names:
        assert name in PLUGINS or name in ("Trouble", "until", "RecordingGate"), name
    assert f"The API is at {API_VERSION}." in PLUGINS


def classes_of(block: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {"__name__": "docs"}
    exec(compile(block, "plugins.md", "exec"), namespace)
    return namespace


async def test_every_plugin_of_the_page_can_be_used(tmp_path: Path) -> None:
    seen = set()
    for block in blocks(PLUGINS, "python"):
        for found in classes_of(block).values():
            bases = (Detector, Source, Sink, Collector)
            if not isinstance(found, type) or not issubclass(found, bases) or found in bases:
                continue
            host_of(found)
            seen.add(found.__name__)
            component = found(NoSettings(), make_context(found.name, tmp_path))
            if isinstance(component, Detector):
                check_detector(component)
            if isinstance(component, Source):
                body = b'{"step": 1, "loss": 0.5}'
                good = IngestRequest(body=body, path="/rows", method="POST", headers={}, query={})
                await check_source(component, [good])
    assert seen == {"Acme", "Print", "Rows", "Queue"}
