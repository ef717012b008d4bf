from __future__ import annotations

import contextlib
import math
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.sinks.prometheus import plugin
from lens_plugins.sinks.prometheus.latest import LatestValues, PrometheusMetrics, exposition
from lens_plugins.sinks.prometheus.selectors import MOST_CHOICES, any_of, compiled
from lens_plugins.sinks.prometheus.training import TrainingSeries
from lens_plugins.sources.wandb_api import WandbApi

from lens_core import BadRequest, Origin, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.directory.directory import Directory
from tests.durations import is_within
from tests.generated import examples
from tests.plugins.sinks.prometheus.conftest import Bench, until
from tests.plugins.sources.ingest_app import IngestApp

LABELS = {"__name__": "lens_training_loss", "workload_uid": "w-1", "rank": "0", "path": 'a\\b"\n'}


def row(uid: str, **values: float) -> StepMetrics:
    return StepMetrics(
        origin=Origin(workload_uid=uid), data_source="log", row_step=1, event_time=5.0, run_id="r", values=values
    )


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("lens_training_loss", True),
        ("lens_training", False),
        ('lens_training_loss{rank="0",workload_uid!="x",}', True),
        ('  lens_training_loss { rank !~ "[1-9]" , missing = "" } ', True),
        ('{__name__=~"lens_training_.*"}', True),
        ('{__name__=~"LENS.*"}', False),
        ('{__name__=~"(?i)LENS.*"}', True),
        ("{rank='0'}", True),
        ("{rank=`0`}", True),
        (r'{path="a\\b\"\n"}', True),
        (r'{path="a\x5cb\u0022\n"}', True),
        ('{path=~"a.b..", rank="0"}', True),
        (r"{workload_uid=~`w-\d`}", True),
        ('{missing!=""}', False),
        ('{rank="0",rank!="0"}', False),
        ('{__name__="lens_training_loss",__name__!~"x"}', True),
    ],
)
def test_selectors(text: str, *, holds: bool) -> None:
    assert any_of([text])(LABELS) is holds
    assert any_of(["nothing", text])(LABELS) is holds


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "selects everything"),
        ('{a=""}', "selects everything"),
        ('{a=~".*"}', "selects everything"),
        ("a{", "the name of a label at the end"),
        ("a{b}", "one of = != =~ !~, found '}'"),
        ("a{b=c}", "a text in quotes"),
        ('a{b="c" d="e"}', "a comma or }"),
        ("a b", "expected the end"),
        ('a{__name__="b"}', "twice"),
        ('{1a="b"}', "the name of a label"),
        (r'{a="\q"}', "escape"),
        (r'{a="\x3"}', "escape"),
        ("x" * 3000, "letters"),
        ('{a=~"("}', "not a regular expression"),
        ('{a=~"(a+)+"}', "repeat of a repeat"),
        ('{a=~"(a|aa)*b"}', "repeat of a repeat"),
        ('{a=~"((a|b))*"}', "repeat of a repeat"),
        ('{a=~".*.*.*.*x"}', "more than 3"),
        ('{a=~"(a|b)(a|b)(a|b)(a|b)"}', "more than 3"),
        (r"{a=~`(a)\1`}", "refer"),
        ('{a=~"(?=a)"}', "not supported"),
        ('{a=~"(?P<n>a)"}', "not supported"),
    ],
)
def test_what_is_no_selector_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(why)):
        any_of([text])


@pytest.mark.parametrize("pattern", ["a|b|c|d|e|f", "[(+*]+x", r"\(+\)*", ".*foo.*", "(?:a|b)-.+", "a{2,3}?", ""])
def test_usual_patterns_pass(pattern: str) -> None:
    assert compiled(pattern).pattern == pattern


@settings(max_examples=examples(200), deadline=None)
@given(st.text(alphabet="ab(|)*+?.[]{2}\\^", max_size=14), st.integers(1, 2))
def test_patterns_that_pass_take_bounded_time(pattern: str, repeat: int) -> None:
    try:
        found = compiled(pattern)
    except ValueError:
        return  # refused, which takes no time
    began = time.thread_time()
    for text in ("a" * 60, "ab" * 30, "b" * 59 + "c"):
        found.fullmatch(text * repeat)
    assert is_within(time.thread_time() - began, 2.0), MOST_CHOICES


@given(st.text(max_size=30))
def test_any_text_is_a_selector_or_refused(text: str) -> None:
    with contextlib.suppress(BadRequest):  # what it says is tested above
        assert any_of([text])({"__name__": "x"}) in (True, False)


async def test_match_selects_what_federate_shows(tmp_path: Path) -> None:
    bench = Bench(None)
    await bench.send(row("w1", loss=1.0, lr=0.5), row("w2", loss=2.0))
    app = IngestApp(WandbApi, tmp_path, sinks=[bench.sink])
    async with app.client() as client:
        both: list[tuple[str, Any]] = [
            ("match[]", 'lens_training_loss{workload_uid="w2"}'),
            ("match[]", '{__name__=~".*_rate"}'),
        ]
        answer = await client.get("/federate", params=both)
        lines = [line for line in answer.text.splitlines() if not line.startswith("#")]
        assert [line.partition("{")[0] for line in lines] == ["lens_training_learning_rate", "lens_training_loss"]
        stamp = await client.get("/federate", params={"match[]": "lens_training_last_update_timestamp_seconds"})
        assert stamp.text.endswith("\nlens_training_last_update_timestamp_seconds 5.0\n")
        wrong = await client.get("/federate", params={"match[]": "a{"})
    assert wrong.status_code == 400
    assert "match[]='a{': expected the name of a label at the end" in wrong.json()["message"]


async def test_latest_values_are_there_again_after_a_restart() -> None:
    bench = Bench(None)
    await bench.send(row("w1", loss=math.nan, lr=0.5))
    before = exposition(bench.sink._latest.held_points())
    await bench.sink.stop()
    after = Bench(None)
    await after.sink.start()
    assert exposition(after.sink._latest.held_points()) == before
    await after.send(row("w1", loss=3.0))
    assert b"lens_training_loss{" in exposition(after.sink._latest.held_points())
    assert b"NaN" not in exposition(after.sink._latest.held_points())
    Path("kept/latest_values.json").write_text("{")
    last = Bench(None)
    await last.sink.start()
    assert last.sink._latest.held_points() == []


async def test_latest_values_are_there_again_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plugin, "KEEP_SECONDS", 0.01)
    bench = Bench(None)
    await bench.sink.start()
    await bench.send(row("w1", loss=1.5))
    await until(Path("kept/latest_values.json").exists)
    after = Bench(None)
    await after.sink.start()
    assert exposition(after.sink._latest.held_points()) == exposition(bench.sink._latest.held_points())
    await after.sink.stop()
    await bench.sink.stop()


def test_values_that_were_kept_grow_old_meanwhile() -> None:
    series = TrainingSeries(Directory())

    def latest(now: float) -> LatestValues:
        return LatestValues(100, 60.0, PrometheusMetrics(SelfMetrics()), clock=lambda: now)

    first = latest(1000.0)
    first.update_points(series.make_points([row("w", loss=1.0)]))
    snapshot = first.snapshot(5000.0)
    for seconds, there in ((0.0, True), (59.0, True), (61.0, False), (-5.0, True)):
        second = latest(3.0)
        second.restore_snapshot(snapshot, 5000.0 + seconds)
        assert bool(second.held_points()) is there
