"""The shipped dashboard and monitors: metrics of the catalogue only, accepted by the official client's models."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from typing import Any

from lens_plugins.collectors.catalogue import metrics
from lens_plugins.sinks.datadog.series import metric_name

_METRIC = re.compile(r"(?:avg|max|min|sum):([A-Za-z][\w.]*)\{")


def asset(name: str) -> Any:
    return json.loads(files("lens_plugins.sinks.datadog").joinpath("assets", name).read_text())


def queries(content: Any) -> Iterator[str]:
    if isinstance(content, dict):
        for key, value in content.items():
            if key == "query" and isinstance(value, str):
                yield value
            else:
                yield from queries(value)
    elif isinstance(content, list):
        for item in content:
            yield from queries(item)


def named(content: Any) -> set[str]:
    found = [set(_METRIC.findall(query)) for query in queries(content)]
    assert all(found), "a query without a metric"
    return set().union(*found)


def test_only_metrics_of_the_catalogue() -> None:
    known = {metric.name for metric in metrics()}
    assert named(asset("dashboard.json")) <= known
    assert named(asset("monitors.json")) <= known


def test_the_dashboard_shows_all_twenty() -> None:
    assert named(asset("dashboard.json")) == {metric.name for metric in metrics() if metric.collector == "wandb_cloud"}


def test_widgets_do_not_overlap() -> None:
    cells = set()
    for widget in asset("dashboard.json")["widgets"]:
        place = widget["layout"]
        for x in range(place["x"], place["x"] + place["width"]):
            for y in range(place["y"], place["y"] + place["height"]):
                assert (x, y) not in cells
                assert x < 12
                cells.add((x, y))


def test_the_official_models_accept_them() -> None:
    from datadog_api_client.configuration import Configuration
    from datadog_api_client.model_utils import validate_and_convert_types
    from datadog_api_client.v1.model.dashboard import Dashboard
    from datadog_api_client.v1.model.monitor import Monitor

    configuration = Configuration()  # type: ignore[no-untyped-call]
    for content, model in [(asset("dashboard.json"), Dashboard), *((one, Monitor) for one in asset("monitors.json"))]:
        made: Any = validate_and_convert_types(  # type: ignore[no-untyped-call]
            content, (model,), ["asset"], True, True, configuration
        )
        assert not made._unparsed, made


def test_names_of_the_catalogue_are_names_of_datadog() -> None:
    for metric in metrics():
        assert metric_name(metric.name) == metric.name
        assert metric.type in ("gauge", "count", "rate")
        assert metric.meaning.endswith(".")
    assert len({metric.name for metric in metrics()}) == len(metrics())


def test_monitors_have_thresholds_in_their_queries() -> None:
    for monitor in asset("monitors.json"):
        limit = float(monitor["query"].rsplit(" ", 1)[1])
        assert monitor["options"]["thresholds"]["critical"] == limit
