"""The worked examples S1 to S8, and that neither units nor numbering of ranks matter."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.stragglers.verdict import Layout, Window, is_gone, judge

from tests.generated import examples


def windows_of(*compute: dict[int, float]) -> list[Window]:
    return [Window(compute=one) for one in compute]


def test_s1_one_rank_of_sixteen() -> None:
    times = [98, 99, 99, 99, 99, 100, 100, 100, 100, 101, 101, 101, 101, 102, 100]
    slow = dict(enumerate([*map(float, times), 131.0]))
    even = {rank: 100.0 + (rank % 3 - 1) for rank in range(16)}
    found = judge(windows_of(even, slow, even, slow, slow))
    assert (found.kind, found.ranks) == ("straggler", [15])
    assert found.z == pytest.approx(20.9, abs=0.02)
    assert found.ratio == pytest.approx(1.31)
    assert found.cost_share == pytest.approx(0.29)
    assert judge(windows_of(even, slow, even, even, slow)).kind == "none"


def test_s2_the_rank_that_waits_least() -> None:
    backward = dict(enumerate([80.0, 82.0, 79.0, 81.0, 80.0, 78.0, 83.0, 3.0]))
    step = dict.fromkeys(range(8), 300.0)
    found = judge([Window(waiting=backward, step=step)] * 5)
    assert (found.kind, found.ranks, found.is_critical) == ("straggler", [7], True)
    assert round(found.score or 0, 2) == 0.26


def test_s3_step_times_alone_tell_nothing() -> None:
    found = judge([Window(step={rank: 300.1 + 0.3 * rank / 8 for rank in range(8)})] * 5)
    assert found.kind == "unknown"
    assert found.advice.startswith("step times cannot tell in synchronous training")
    assert judge([]).kind == "unknown"


def test_s4_a_node_not_eight_ranks() -> None:
    compute = {rank: 1.15 if 8 <= rank < 16 else 1.0 for rank in range(64)}
    layout = Layout(node={rank: f"node-{rank // 8}" for rank in range(64)})
    found = judge(windows_of(*[compute] * 5), layout)
    assert (found.kind, found.node, found.ranks) == ("straggler", "node-1", [*range(8, 16)])


def test_s5_a_heavy_stage_is_imbalance() -> None:
    compute = {0: 1.0, 1: 1.001, 2: 0.999, 3: 1.0, 4: 1.002, 5: 1.0, 6: 1.62, 7: 1.63}
    layout = Layout(stage={rank: rank // 2 for rank in range(8)}, node={rank: f"n{rank % 2}" for rank in range(8)})
    found = judge(windows_of(*[compute] * 5), layout)
    assert (found.kind, found.stage) == ("imbalance", 3)


def test_s6_one_burdened_worker_in_every_window() -> None:
    generator = np.random.default_rng(0)
    series = []
    for _ in range(5):
        compute = {rank: float(1.0 + generator.uniform(-0.02, 0.05)) for rank in range(16)}
        series.append({**compute, 0: 2.35})
    found = judge(windows_of(*series))
    assert (found.kind, found.ranks) == ("straggler", [0])
    assert found.ratio == pytest.approx(2.35, rel=0.05)


def test_s7_uneven_data_names_nobody() -> None:
    generator = np.random.default_rng(1)
    series = []
    for window in range(5):
        compute = {rank: float(1.0 + generator.normal(0, 0.004)) for rank in range(64)}
        series.append({**compute, 7 * window: 1.16})
    found = judge(windows_of(*series))
    assert (found.kind, found.ranks) == ("uneven_data", [])


def test_s8_ten_thousand_ranks_of_noise() -> None:
    generator = np.random.default_rng(2)
    series = [dict(enumerate(np.median(generator.normal(1.0, 0.03, (10_000, 50)), axis=1).tolist())) for _ in range(5)]
    assert judge(windows_of(*series)).kind == "none"


def test_a_rank_that_became_slow_is_measured_by_what_it_was() -> None:
    """Ranks that always differed (stages) are no finding; one of them that changed is."""
    before = {rank: 1.0 + 0.01 * rank for rank in range(10)}
    after = {**before, 3: before[3] * 1.19}
    found = judge(windows_of(before, before, after, after, after))
    assert (found.kind, found.ranks, found.rule) == ("straggler", [3], "against its own best")
    assert judge(windows_of(*[before] * 5)).kind == "none"


def test_slow_input_is_told_from_a_slow_gpu() -> None:
    compute = {rank: 1.0 + 0.001 * (rank % 4) for rank in range(16)}
    compute[5] = 1.4
    data = dict.fromkeys(range(16), 0.05)
    slow = judge([Window(compute=compute, data=data)] * 5)
    assert (slow.kind, slow.ranks) == ("straggler", [5])
    waits = judge([Window(compute=compute, data={**data, 5: 0.43})] * 5)
    assert (waits.kind, waits.ranks) == ("input", [5])


def test_half_of_the_ranks_slow_is_imbalance() -> None:
    compute = {rank: 0.9 if rank < 5 else 1.9 for rank in range(10)}
    assert judge(windows_of(*[compute] * 5)).kind == "imbalance"


def test_a_straggler_is_gone_after_five_windows_like_the_others() -> None:
    even = dict.fromkeys(range(8), 1.0)
    slow = {**even, 2: 1.5}
    assert not is_gone(windows_of(slow, even, even, even, even), 2)
    assert is_gone(windows_of(slow, even, even, even, even, even), 2)


@settings(max_examples=examples(50), deadline=None)
@given(
    st.lists(st.lists(st.floats(0.5, 3.0), min_size=4, max_size=24), min_size=1, max_size=5),
    st.floats(0.001, 1e6),
    st.randoms(use_true_random=False),
)
def test_neither_the_unit_nor_the_order_of_ranks_matters(
    values: list[list[float]], unit: float, shuffled: random.Random
) -> None:
    count = min(map(len, values))
    series = [dict(enumerate(times[:count])) for times in values]
    found = judge(windows_of(*series))
    order = [*range(count)]
    shuffled.shuffle(order)
    other = judge(windows_of(*({rank: one[rank] * unit for rank in order} for one in series)))
    assert (other.kind, other.ranks, other.windows) == (found.kind, found.ranks, found.windows)


def test_no_false_finding_in_two_hundred_clean_runs() -> None:
    generator = np.random.default_rng(3)
    for run in range(200):
        ranks = (8, 16, 64, 256)[run % 4]
        noise = generator.normal if run % 2 else lambda mean, scale, size: mean + scale * generator.standard_t(3, size)
        series = []
        for _ in range(5):
            steps = noise(1.0, 0.03, (ranks, 50))
            series.append(dict(enumerate(np.median(steps, axis=1).tolist())))
        assert judge(windows_of(*series)).kind == "none", (run, ranks)
