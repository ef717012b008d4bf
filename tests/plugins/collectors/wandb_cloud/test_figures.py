from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lens_plugins.collectors.catalogue import metrics
from lens_plugins.collectors.wandb_cloud.figures import (
    Figures,
    WandbCloudSettings,
    read_number,
    read_object,
    read_run,
    read_time,
)

from tests.plugins.collectors.wandb_cloud.wandb_server import node, table

NOW = 1_790_000_000.0
HOUR = 3600.0

# Worked out by hand from tests/data/wandb_runs.csv, group by group (the first letter of the id).
#
# In the window: a10 b1 c1 d8 e4 f3 g2 h1 i1 j4 k3 l2 m1 n5 unnamed4 q1 s1 = 52; not p (no heartbeat), r (50 h old).
# running: a10 b1 c1 g2 l2 q1 = 17. finished: d8 h1 j4 n5 = 18. failed or crashed: e4 f3 k3 unnamed4 = 14.
# hours: a 55, b 72, c 70, d 8, e 2, f 3, g 4, h 1, i 1, j 8, k 3, l 8, m 18, n 20, unnamed 4, s 1 = 278; 51 have both.
# GPU-hours: a 55, b 24×8=192, c 24, d 8×4=32, e 2, f 3, g 4, h 1, i 1, j 8, k 3, l 8, m 12 (of 18), n 5×2=10,
#   unnamed 4, q 3, s 1 = 363.
# push_to_main: d e f g h i = 19, finished 9, failed 7, hours 8+2+3+4+1+1 = 19.
# sweep: j k l m = 10; h has a sweep but is push_to_main by its name.
EXPECTED: dict[str, float | None] = {
    "wandb.runs.active": 17,
    "wandb.runs.completed_24h": 18,
    "wandb.runs.failed_24h": 14,
    "wandb.runs.total_recent": 52,
    "wandb.training.avg_duration_hours": 278 / 51,
    "wandb.training.total_gpu_hours_24h": 363,
    "wandb.push_to_main.runs_completed_24h": 9,
    "wandb.push_to_main.runs_failed_24h": 7,
    "wandb.push_to_main.success_rate_pct": 100 * 9 / 16,
    "wandb.push_to_main.avg_duration_hours": 1,
    "wandb.push_to_main.overview.steps_per_second": 777,  # e1, crashed, newer than every d
    "wandb.push_to_main.overview.epoch_steps_per_second": 55.5,  # e4
    "wandb.push_to_main.overview.sps": 1010,  # d1; e4 has the text "NaN"
    "wandb.push_to_main.timing_cumulative.sps": 42,  # h1 alone
    "wandb.push_to_main.timing_per_epoch.sps": None,  # only failed runs, old ones, and a boolean have it
    "wandb.sweep.runs_total_24h": 10,
    "wandb.sweep.runs_completed_24h": 4,
    "wandb.sweep.runs_failed_24h": 3,
    "wandb.sweep.runs_active": 2,
    "wandb.sweep.success_rate_pct": 100 * 4 / 7,
}


def figures(runs: list[dict[str, Any]], **settings: Any) -> dict[str, float | None]:
    chosen = WandbCloudSettings(**settings)
    found = Figures(chosen, NOW)
    for run in runs:
        found.count_run(read_run(run, chosen.gpus_config_key))
    values: dict[str, float | None] = found.values()
    return values


def test_sixty_runs_value_by_value() -> None:
    found = figures(table(NOW))
    assert list(found) == list(EXPECTED)
    for name, expected in EXPECTED.items():
        assert found[name] == (expected if expected is None else pytest.approx(expected)), name


def test_any_order_gives_the_same() -> None:
    assert figures(table(NOW)[::-1]) == pytest.approx(figures(table(NOW)))


def test_a_run_that_comes_twice_counts_once() -> None:
    assert figures(table(NOW) * 2) == figures(table(NOW))


def test_no_runs_are_zeros_and_no_data() -> None:
    found = figures([])
    none = {name for name, value in found.items() if value is None}
    assert none == {metric.name for metric in metrics() if metric.no_data == "not sent" and metric.name in found}
    assert {value for value in found.values() if value is not None} == {0}


def test_the_catalogue_has_exactly_these_metrics() -> None:
    assert [metric.name for metric in metrics() if metric.collector == "wandb_cloud"] == list(EXPECTED)


def test_patterns_window_and_keys_are_settings() -> None:
    runs = [
        node("1", "ci/main/1", "finished", NOW - 3 * HOUR, NOW - HOUR, summaryMetrics='{"a/b": 3}'),
        node("2", "tune-9", "finished", NOW - 3 * HOUR, NOW - 2.5 * HOUR),
    ]
    found = figures(runs, main_prefixes=["ci/"], sweep_marks=["TUNE"], sps_keys=["a/b"], window_hours=2.0)
    assert found["wandb.push_to_main.a.b"] == 3
    assert found["wandb.runs.total_recent"] == 1
    assert figures(runs, sweep_marks=["TUNE"])["wandb.sweep.runs_total_24h"] == 1


@pytest.mark.parametrize(
    ("config", "settings", "gpus"),
    [
        ("{}", {}, 1),
        ("{}", {"gpus_per_run": 8.0}, 8),
        ('{"_wandb": {"value": {"e": {"w": {"gpu_count": 4}}}}}', {"gpus_per_run": 8.0}, 4),
        # One machine that was resumed, and two machines.
        ('{"_wandb": {"value": {"e": {"a": {"gpu_count": 4}, "b": {"gpu_count": 4}}}}}', {}, 4),
        (
            '{"_wandb": {"value": {"e": {"a": {"host": "x", "gpu_count": 4}, "b": {"host": "y", "gpu_count": 8}}}}}',
            {},
            12,
        ),
        ('{"trainer": {"value": {"gpus": 16}}}', {"gpus_config_key": "trainer.gpus"}, 16),
        ('{"world_size": {"value": 32}}', {"gpus_config_key": "world_size"}, 32),
        ('{"world_size": {"value": "many"}}', {"gpus_config_key": "world_size"}, 1),
        ("broken", {}, 1),
        (None, {}, 1),
    ],
)
def test_gpus(config: str | None, settings: dict[str, Any], gpus: float) -> None:
    run = node("1", "r", "finished", NOW - 2 * HOUR, NOW - HOUR, config=config)
    assert figures([run], **settings)["wandb.training.total_gpu_hours_24h"] == pytest.approx(gpus)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("2026-11-27T00:00:00Z", 1795737600.0),
        ("2026-11-27T00:00:00", 1795737600.0),
        ("2026-11-27T01:00:00.5+01:00", 1795737600.5),
        ("2026-11-27T00:00:00.123456789Z", 1795737600.123456),
        ("yesterday", None),
        ("", None),
        (None, None),
        (12.0, None),
    ],
)
def test_times(text: Any, seconds: float | None) -> None:
    assert read_time(text) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ({"a": 1}, {"a": 1}),
        ('{"a": 1}', {"a": 1}),
        (b'{"a": 1}', {"a": 1}),
        (json.dumps('{"a": 1}'), {"a": 1}),
        (None, {}),
        ("", {}),
        ("{broken", {}),
        ("[1]", {}),
        ("12", {}),
    ],
)
def test_summaries_in_every_form(value: Any, content: dict[str, Any]) -> None:
    assert read_object(value) == content


def test_what_is_no_number() -> None:
    odd: tuple[Any, ...] = (True, "NaN", "12", {}, None, float("nan"), float("inf"), 10**400)
    for value in odd:
        assert read_number(value) is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from(list(node("1", "n", "s", 0.0, 0.0))), json_values, max_size=6))
def test_no_oddity_of_a_run_is_fatal(odd: dict[str, Any]) -> None:
    run = node("1", "github.sky.x", "finished", NOW - HOUR, NOW)
    assert set(figures([{**run, **odd}])) == set(EXPECTED)
