"""docs/collectors.md says what is true."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
import yaml
from lens_plugins.collectors.catalogue import Metric, metrics
from lens_plugins.collectors.host import HostSettings
from lens_plugins.collectors.tensorboard import TensorBoardSettings
from lens_plugins.collectors.wandb_cloud import WandbCloudSettings
from lens_plugins.collectors.wandb_offline import WandbOfflineSettings
from lens_plugins.sinks.datadog import DatadogSettings

from lens_core.base.self_metrics import SelfMetrics
from lens_core.config.loading import parse_config
from lens_core.plugin_host.host import PluginHost
from tests.docs.pages import DOCS

PAGE = (DOCS / "collectors.md").read_text()


@pytest.mark.parametrize("metric", metrics(), ids=lambda metric: metric.name)
def test_every_metric_is_in_its_table(metric: Metric) -> None:
    unit = metric.unit.replace("_", " ") or "–"
    row = f"| `{metric.name}` | {unit} | {metric.meaning.rstrip('.')} | {metric.no_data} |"
    assert row in PAGE


# Unit of the catalogue → what names of such a quantity hold.
IN_NAMES = {
    "byte": "_bytes",
    "byte/second": "_bytes_per_second",
    "degree_celsius": "_celsius",
    "hour": "_hours",
    "percent": "_pct",
    "watt": "_watts",
}


@pytest.mark.parametrize("metric", metrics(), ids=lambda metric: metric.name)
def test_names_keep_the_conventions(metric: Metric) -> None:
    assert re.fullmatch(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+", metric.name)
    assert IN_NAMES.get(metric.unit, "") in metric.name


def test_the_conventions_name_the_endings_and_kinds_that_there_are() -> None:
    text = (DOCS / "metric_conventions.md").read_text()
    assert not [end for end in IN_NAMES.values() if f"`{end.removeprefix('_bytes') or end}`" not in text]
    assert not [metric.type for metric in metrics() if f"`{metric.type}`" not in text]


def test_no_table_has_other_metrics() -> None:
    listed = re.findall(r"^\| `([a-z_]+\.[a-z_.0-9]+)` \|", PAGE, flags=re.M)
    assert sorted(listed) == sorted(metric.name for metric in metrics())


@pytest.mark.parametrize(
    "settings", [WandbCloudSettings, TensorBoardSettings, WandbOfflineSettings, HostSettings, DatadogSettings]
)
def test_every_setting_is_named(settings: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(settings):
        named = re.search(rf"[`{{ ]{field.name}[`:]", PAGE) or f"`{field.name}" in PAGE
        assert named or field.name in ("entity", "project"), field.name


def test_examples_are_valid(tmp_path: Path) -> None:
    host = PluginHost.load()
    for text in re.findall(r"```yaml\n(.*?)```", PAGE, flags=re.S):
        content = yaml.safe_load(text)
        if "kind" not in content:
            parse_config(text, "example", host, {}, folder=tmp_path)


def test_the_metrics_of_collectors_exist() -> None:
    exposed = SelfMetrics().exposition().decode()
    for name in re.findall(r"`(lens_collector_\w+)`", PAGE):
        assert f"# TYPE {name} " in exposed, name
