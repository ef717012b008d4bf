"""Slow ranks by XPU timer's kernels, by what a log says of its ranks, and by stacks of all ranks at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.stragglers import Stragglers
from lens_plugins.analyzers.stragglers.analyzer import StragglersSettings
from lens_plugins.analyzers.stragglers.reports import judge_reports
from lens_plugins.analyzers.stragglers.signals import Signals, judge_signals, read_signals
from lens_plugins.analyzers.stragglers.stack_samples import judge_stacks
from lens_plugins.analyzers.stragglers.verdict import Layout, judge
from lens_plugins.analyzers.stragglers.xpu_timer import windows_of_reports

from lens_core import Diagnosis, Event, EventRow, LogLine, Origin
from lens_core.logs import read_log
from lens_core.plugin_api.diagnosis import RankStack, StackReport, ThreadStack, encode_report
from lens_core.testing import MemoryStore, make_context
from tests.generated import examples

MEGATRON = (
    " 0: INFO:megatron.core.utils:[2024-03-14 23:07:56] | MnRtt/Rnk: {low}ms/8 | MxRtt/Rnk: {high}ms/{slow}"
    " | MnPwr/Rnk: 601796W/8 | MxPwr/Rnk: 683801W/18 | MnTmp/Rnk: 52C/0 | MxTmp/Rnk: 65C/21 | MnUtl/Rnk: 97%/8"
    " | MxUtl/Rnk: 100%/6 | MnClk/Rnk: 1350MHz/{clock} | MxClk/Rnk: 1980MHz/0 | MnDRtt/Rnk: 14.27ms/23"
    " | MxDRtt/Rnk: {data}ms/{slow} | MnEtpt/Rnk: 296.02TF/0 | MxEtpt/Rnk: 297.32TF/8"
)


def events_of_lines(*lines: str) -> list[EventRow]:
    """The events that the daemon makes of lines, as a store answers them."""
    given = [LogLine(text=text, event_time=1e9 + 100.0 * index) for index, text in enumerate(lines)]
    return [
        EventRow(
            type=one.type,
            timestamp=round((one.event_time or 0) * 1000),
            iteration=one.iteration,
            run_id="",
            attempt=one.attempt,
            data_source="log",
            details=one.details,
        )
        for one in read_log(given)
        if isinstance(one, Event)
    ]


def megatron(slow: int, high: float, low: float = 3453.08, clock: int = 28, data: float = 34.65) -> str:
    return MEGATRON.format(slow=slow, high=high, low=low, clock=clock, data=data)


def test_megatrons_report_names_the_same_slow_rank_each_time() -> None:
    layout = Layout(node={9: "gpu-2"})
    found = judge_reports(events_of_lines(*(megatron(9, 4500 + index) for index in range(5))), layout)
    assert found is not None
    assert (found.kind, found.ranks, found.node, found.windows) == ("straggler", [9], "gpu-2", 5)
    assert found.ratio == pytest.approx(4504 / 3453.08)
    slowed = judge_reports(events_of_lines(*(megatron(9, 4500 + index, clock=9) for index in range(5))), layout)
    assert slowed is not None
    assert slowed.cause == "its clock is the lowest"
    waits = judge_reports(events_of_lines(*(megatron(9, 4500 + index, data=990) for index in range(5))), layout)
    assert waits is not None
    assert waits.kind == "input"


def test_megatrons_report_of_equal_or_changing_ranks_names_nobody() -> None:
    even = judge_reports(events_of_lines(*(megatron(9, 3460 + index) for index in range(5))), Layout())
    assert even is not None
    assert even.kind == "none"
    changing = judge_reports(events_of_lines(*(megatron(rank, 4500) for rank in range(5))), Layout())
    assert changing is not None
    assert (changing.kind, changing.ranks) == ("uneven_data", [])
    assert judge_reports(events_of_lines(megatron(9, 4500), megatron(9, 4501)), Layout()) is None


@pytest.mark.parametrize(
    ("line", "ranks"),
    [
        ("Some GPUs have worse relative performance. Affected ranks: [{}, 13]", [76]),
        ("Some GPUs performance dropped. Affected ranks: [{}, 13]", [76]),
        ("Some GPUs have worse relative performance. Affected ranks: {{StragglerId(Rank={} Node=h100-1)}}", [76]),
    ],
)
def test_warnings_of_nvrx_name_the_ranks_that_last(line: str, ranks: list[int]) -> None:
    warnings = [f"STRAGGLER DETECTION WARNING: {line.format(76).replace('13', str(100 + i))}" for i in range(4)]
    found = judge_reports(events_of_lines(*warnings), Layout(node=dict.fromkeys(range(200), "")))
    assert found is not None
    assert (found.kind, found.ranks) == ("straggler", ranks)
    assert judge_reports(events_of_lines(*warnings[:2]), Layout()) is None


def kernels(slow: int, factor: float, ranks: int = 16) -> str:
    """One scrape: matrix products of two sizes, and collectives in which the slow rank waits least."""
    lines = []
    for rank in range(ranks):
        own = factor if rank == slow else 1.0 + 0.002 * (rank % 3)
        labels = f'ip="10.0.0.1",job_name="j",pod_name="p",local_rank="{rank % 8}",rank="{rank}",dtype="bf16"'
        for level, usual in (("1", 400.0), ("5", 9000.0)):
            name = "XPU_TIMER_MM_KERNEL_AVG_LATENCY"
            lines.append(f'{name}{{{labels},level="{level}",operation="mm"}} {usual * own}')
        waits = 80.0 if rank == slow else 500.0
        name = "XPU_TIMER_COLL_KERNEL_AVG_LATENCY"
        lines.append(f'{name}{{{labels},level="2",operation="allreduce",transport="ring"}} {waits}')
    lines += ["XPU_TIMER_MM_KERNEL_AVG_LATENCY{broken", "XPU_TIMER_COMMON_GC_COUNT 5"]
    return "\n".join(lines)


def timed(content: str, at: float) -> Diagnosis:
    return Diagnosis(
        origin=Origin(workload_uid="job"), data_type="XPU_TIMER_METRIC", data_content=content, timestamp=at
    )


def test_a_slow_gpu_by_its_matrix_products() -> None:
    windows = windows_of_reports([timed(kernels(11, 1.31), 1e9 + 60 * minute) for minute in range(25)])
    assert len(windows) == 5
    found = judge(windows, Layout(node={rank: f"n{rank // 8}" for rank in range(16)}))
    assert (found.kind, found.ranks, found.node) == ("straggler", [11], "n1")
    assert found.ratio == pytest.approx(1.31, abs=0.01)
    assert judge(windows_of_reports([timed(kernels(11, 1.0), 1e9 + 60 * i) for i in range(25)])).kind == "none"
    assert windows_of_reports([]) == []


@given(st.lists(st.text(alphabet='XPU_TIMER_MM_KERNEL_AVG_LATENCY{}rank="=0123456789,. e+-\n', max_size=120)))
@settings(max_examples=examples(50), deadline=None)
def test_any_text_of_xpu_timer_is_read_without_a_fault(texts: list[str]) -> None:
    windows_of_reports([timed(text, 1e9 + index) for index, text in enumerate(texts)])


WAITS = ("wait (torch/distributed/distributed_c10d.py:400)", "all_reduce (torch/distributed/distributed_c10d.py:1)")
LOADS = ("__getitem__ (/app/data.py:88)", "fetch (torch/utils/data/_utils/fetch.py:52)", "train (/app/train.py:31)")


def stacks(*outside: int, ranks: int = 8) -> Diagnosis:
    found = [
        RankStack(rank=rank, threads=(ThreadStack("main", LOADS if rank in outside else (*WAITS, LOADS[-1])),))
        for rank in range(ranks)
    ]
    content = encode_report(StackReport(ranks=tuple(found)))
    return Diagnosis(origin=Origin(workload_uid="job"), data_type="STACK_TRACE", data_content=content, timestamp=1e9)


def test_the_rank_that_the_others_wait_for_by_its_stacks() -> None:
    reports = [stacks(3), stacks(3), stacks(), stacks(3), stacks(3), stacks(3), stacks(5), stacks(*range(8))]
    found = judge_stacks(reports, Layout(node={3: "gpu-17"}))
    assert found is not None
    assert (found.kind, found.ranks, found.node) == ("straggler", [3], "gpu-17")
    assert "data.py" in found.cause
    several = judge_stacks([stacks(rank) for rank in range(8)], Layout())
    assert several is not None
    assert several.kind == "none"
    assert judge_stacks([stacks(3)] * 3, Layout()) is None
    assert judge_stacks([Diagnosis(data_type="STACK_TRACE", data_content="no report")], Layout()) is None


async def test_the_analyzer_reports_a_slow_gpu_and_why_it_is_slow(tmp_path: Path) -> None:
    """A job that logs no times of its ranks: XPU timer names the rank, the GPU itself says why."""
    origin = Origin(workload_uid="job", rank=11, node="gpu-17")
    throttled = Event(
        origin=origin, type="gpu_throttled", event_time=1e9, details={"gpu": 3, "reason": "hardware thermal"}
    )
    store = MemoryStore(tmp_path, [throttled, *(timed(kernels(11, 1.31), 1e9 + 60 * minute) for minute in range(25))])
    analyzer = Stragglers(StragglersSettings(longest_rest_seconds=0), make_context("stragglers", tmp_path))
    analyzer.store = store
    [event] = [one for one in await analyzer.analyze(["job"]) if isinstance(one, Event)]
    assert (event.type, event.origin.rank, event.origin.node) == ("straggler", 11, "gpu-17")
    assert event.details["cause"] == "GPU 3 is throttled: hardware thermal"
    assert event.details["source"] == "xpu_timer"


async def test_an_error_of_the_slow_ranks_node_is_why_it_is_slow(tmp_path: Path) -> None:
    def error(node: str) -> Event:
        details = {"error": "PCIe replays", "kind": "pcie", "node": node}
        return Event(origin=Origin(workload_uid="job", node=node), type="device_error", event_time=1e9, details=details)

    origin = Origin(workload_uid="job", rank=11, node="gpu-17")
    seen = Event(origin=origin, type="evaluation", event_time=1e9)  # says where the rank runs
    reports = [timed(kernels(11, 1.31), 1e9 + 60 * minute) for minute in range(25)]
    for name, node, cause in (("own", "gpu-17", "PCIe replays on gpu-17"), ("other", "gpu-18", "")):
        found = judge_signals(await read_signals(MemoryStore(tmp_path / name, [seen, error(node), *reports]), "job"))
        assert (found.verdict.ranks, found.verdict.cause) == ([11], cause)


def test_without_any_signal_nobody_can_tell() -> None:
    found = judge_signals(Signals(times=None)).verdict
    assert found.kind == "unknown"
    assert "switch on" in found.advice.lower()
