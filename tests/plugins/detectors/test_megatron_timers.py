"""Megatron's timers below its steps, in each of the three forms, and lines that only look like them."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.stragglers.signals import judge_signals, read_signals
from lens_plugins.detectors.megatron import Megatron

from lens_core import LogLine, Origin, StepMetrics
from lens_core.base.self_metrics import SelfMetrics
from lens_core.cli import cli
from lens_core.detection.log_lines.processor import DetectorProcessor
from lens_core.plugin_api.components import NoSettings
from lens_core.testing import MemoryStore, make_context
from tests.generated import examples

UID = "job"
TIMERS = {
    "forward-compute": "forward_compute_ms",
    "batch-generator": "data_loading_time_ms",
    "optimizer": "optimizer_ms",
}
TIMES = st.floats(0.01, 1e7).map(lambda value: round(value, 2))


def step(number: int) -> str:
    return f" iteration {number:8d}/     300 | elapsed time per iteration (ms): 1000.0 | lm loss: 2.000000E+00 |"


def pair(name: str, low: float, high: float) -> str:
    return f"    {name + ' ':.<49}: ({low:.2f}, {high:.2f})"


def of_ranks(name: str, times: list[float]) -> list[str]:
    return [f"  {name}:", *(f"     rank {rank:2d}: {time:.2f}" for rank, time in enumerate(times))]


def rows_of(lines: list[str], every: float = 1.0) -> list[StepMetrics]:
    origin = Origin(workload_uid=UID)
    processor = DetectorProcessor([Megatron(NoSettings(), make_context("megatron", Path()))], SelfMetrics())
    made = processor.process(
        [LogLine(origin=origin, text=line, event_time=1e9 + every * index) for index, line in enumerate(lines)]
    )
    return [record for record in made.records if isinstance(record, StepMetrics)]


def values_of(lines: list[str]) -> dict[int, dict[str, float]]:
    found: dict[int, dict[str, float]] = {}
    for row in rows_of(lines):
        found.setdefault(row.row_step, {}).update(row.values)
    return found


@given(st.dictionaries(st.sampled_from(sorted(TIMERS)), st.tuples(TIMES, TIMES), min_size=1))
@settings(max_examples=examples(50), deadline=None)
def test_the_smallest_and_the_largest_of_all_ranks(times: dict[str, tuple[float, float]]) -> None:
    lines = [step(7), "(min, max) time across ranks (ms):", *(pair(name, *each) for name, each in times.items())]
    [(number, values)] = values_of(lines).items()
    assert number == 7
    for name, (low, high) in times.items():
        assert (values[f"{TIMERS[name]}_min"], values[TIMERS[name]]) == (low, high)


@given(st.dictionaries(st.sampled_from(sorted(TIMERS)), st.lists(TIMES, min_size=1, max_size=12), min_size=1))
@settings(max_examples=examples(50), deadline=None)
def test_the_times_of_all_ranks(times: dict[str, list[float]]) -> None:
    below = [line for name, each in times.items() for line in of_ranks(name, each)]
    [(number, values)] = values_of([step(7), "times across ranks (ms):", *below]).items()
    assert number == 7
    for name, each in times.items():
        assert [values[f"{TIMERS[name]}/rank_{rank}"] for rank in range(len(each))] == each


def test_the_largest_alone_and_steps_that_follow() -> None:
    block = ["max time across ranks (ms):", f"    {'optimizer ':.<49}: 12.50"]
    found = values_of([step(1), *block, step(2), *block])
    assert {number: values["optimizer_ms"] for number, values in found.items()} == {1: 12.5, 2: 12.5}
    assert all("optimizer_ms_min" not in values for values in found.values())


def test_timers_without_a_step_above_and_other_timers_are_no_steps() -> None:
    start = ["(min, max) time across ranks (ms):", pair("forward-compute", 1, 2), pair("load-checkpoint", 1, 2)]
    assert rows_of([*start, *of_ranks("forward-compute", [1.0, 2.0])]) == []
    assert list(values_of([*start, step(5)])) == [5]
    assert "load_checkpoint" not in str(values_of([step(5), *start]))


def test_ranks_beyond_the_limit_are_left_out() -> None:
    [values] = values_of([step(1), *of_ranks("forward-compute", [1.0] * 600)]).values()
    assert sum(name.startswith("forward_compute_ms/rank_") for name in values) == 512


async def test_the_slow_rank_of_a_log_with_the_timers_of_all_ranks_is_named(tmp_path: Path) -> None:
    lines = []
    for number in range(1, 301):
        times = [100.0 + (number * rank) % 3 + (60 if rank == 5 else 0) for rank in range(16)]
        lines += [step(number), "times across ranks (ms):", *of_ranks("forward-compute", times)]
    store = MemoryStore(tmp_path, rows_of(lines))
    found = judge_signals(await read_signals(store, UID))
    assert (found.verdict.kind, found.verdict.ranks, found.source) == ("straggler", [5], "rows")
    assert found.verdict.ratio == pytest.approx(1.6, abs=0.05)


async def test_a_spread_without_ranks_is_unknown_with_advice(tmp_path: Path) -> None:
    lines = [line for number in range(1, 101) for line in (step(number), pair("forward-compute", 100, 160))]
    found = judge_signals(await read_signals(MemoryStore(tmp_path, rows_of(lines)), UID))
    assert found.verdict.kind == "unknown"
    assert "the slowest rank takes 1.60 times the fastest" in found.verdict.advice
    assert "--timing-log-option all" in found.verdict.advice
    equal = [line for number in range(1, 101) for line in (step(number), pair("forward-compute", 100, 102))]
    quiet = judge_signals(await read_signals(MemoryStore(tmp_path, rows_of(equal)), UID))
    assert "times the fastest" not in quiet.verdict.advice


@pytest.mark.parametrize("form", ["minmax", "all"])
def test_waiting_for_data_is_known_to_the_ledger(tmp_path: Path, form: str) -> None:
    lines, at = [], 1_767_600_000
    for number in range(1, 151):
        waited = 100_000.0 if number in (51, 101) else 20.0
        at += 10 + round(waited / 1000)
        lines.append(f"{at} {step(number)}")
        if form == "minmax":
            lines += ["(min, max) time across ranks (ms):", pair("batch-generator", 5, waited)]
        else:
            lines += ["times across ranks (ms):", *of_ranks("batch-generator", [5.0, waited, 6.0])]
    times, log = tmp_path / "times.txt", tmp_path / "train.log"
    times.write_text("".join(f"{line.split()[0] if line[0].isdigit() else ''}\n" for line in lines))
    log.write_text("".join(f"{line.split(' ', 1)[1] if line[0].isdigit() else line}\n" for line in lines))
    result = CliRunner().invoke(cli, ["goodput", "--file", str(log), "--times", str(times)])
    assert result.exit_code == 0, result.output
    assert "most of the rest was data: 3 min 20 s" in result.output
