"""The worked examples R1 to R7, and what is not found in clean runs."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lens_plugins.analyzers.regressions.finding import Points
from lens_plugins.analyzers.regressions.loss import find_divergence, find_spikes
from lens_plugins.analyzers.regressions.memory import (
    find_host_memory_creep,
    find_memory_creep,
    find_slower_checkpoints,
    theil_sen,
)
from lens_plugins.analyzers.regressions.pace import (
    find_slower,
    find_slower_after_restart,
    find_step_time_creep,
    seconds_per_step,
    split_by_batch,
)
from lens_plugins.analyzers.regressions.precursors import (
    find_clipping,
    find_falling_scale,
    find_odd_learning_rate,
    find_skipped_steps,
)
from lens_plugins.analyzers.regressions.replay import (
    compare_losses,
    find_other_learning_rate,
    find_other_samples,
    find_repeated_data,
    find_wrong_restore,
)
from lens_plugins.analyzers.regressions.siblings import Sibling, compare_siblings, stem_of

from tests.generated import examples, part

BLOOM = [2.20, 2.22, 2.595, 2.24, 2.35, 5.10, 3.49, 3.21, 2.80]
BLOOM_NORMS = [0.24, 0.95, 2.4, 15.9, 145.0, 960.0]


def points(values: Sequence[float] | np.ndarray, first: int = 1000, every: float = 106.0) -> Points:
    count = len(values)
    return Points(np.arange(first, first + count), every * np.arange(count), np.asarray(values, dtype=np.float64))


def progress(paces: Sequence[float] | np.ndarray, first: int = 1) -> Points:
    times = np.concatenate([[0.0], np.cumsum(np.asarray(paces, dtype=np.float64))])
    return Points(np.arange(first, first + len(times)), times, np.zeros(len(times)))


def healthy(count: int, seed: int = 0, level: float = 2.218, noise: float = 0.015) -> np.ndarray:
    return np.random.default_rng(seed).normal(level, noise, count)


def bloom(seed: int = 0) -> tuple[Points, Points]:
    after = np.concatenate([np.linspace(2.7, 2.3, 18), healthy(40, seed + 1, 2.22)])
    loss = np.concatenate([healthy(100, seed), BLOOM, after])
    norms = np.concatenate([np.full(100, 0.236), BLOOM_NORMS, np.full(len(loss) - 106, 0.3)])
    return points(loss), points(norms)


def test_r1_blooms_spike_is_one_finding_and_its_norm_rises_before_the_peak() -> None:
    found = find_spikes(*bloom())
    assert [one.type for one in found] == ["loss_spike", "grad_norm_rising"]
    spike, rising = found
    assert spike.iteration == 1102  # the third of the nine
    assert 20 < spike.details["z"] < 27
    assert rising.iteration == 1103  # the fourth: the third rise in a row
    assert rising.details["grad_norms"] == [0.95, 2.4, 15.9]
    assert (spike.details["peak"], spike.details["peak_iteration"]) == (5.10, 1105)
    assert spike.details["peak_z"] > 100
    assert spike.details["state"] == "recovered"
    assert spike.details["steps_to_recover"] <= 30


@pytest.mark.parametrize("seed", range(20))
def test_r1_does_not_depend_on_the_noise(seed: int) -> None:
    assert [one.iteration for one in find_spikes(*bloom(seed))] == [1102, 1103]


def test_r2_blooms_slow_gpu_within_seven_steps() -> None:
    paces = [105.165] * 200 + [110.17, 111.14] + [111.1] * 40
    [found] = find_slower(progress(paces))
    assert found.details["steps_to_find"] <= 7
    assert found.details["since_iteration"] == 202
    assert found.details["ratio"] == pytest.approx(1.057, abs=0.001)


def test_r3_memory_creep_with_an_outlier() -> None:
    hours = np.arange(11.0)
    values = 60 + 1.5 * hours
    values[4] = 79.0
    memory = Points(np.arange(11), hours * 3600, values)
    trend = theil_sen(memory.times, memory.values)
    assert trend is not None
    assert trend.slope * 3600 == pytest.approx(1.5)
    [found] = find_memory_creep(memory, 80.0)
    assert round(found.details["hours_left"], 2) == 3.33
    assert find_memory_creep(memory, None) == []
    assert find_memory_creep(memory, 400.0) == []


def test_r4_the_same_losses_are_an_exact_replay() -> None:
    losses = healthy(180)
    before, after = points(losses, 1), points(losses[100:], 101)
    assert compare_losses(before, after).outcome == "exact"
    assert find_wrong_restore(before, after) == []


def test_r5_shifted_losses_are_a_wrong_restore() -> None:
    values = 2.2 + 0.01 * np.where(np.arange(180) % 2, 1, -1) * 1.349 / 2
    before = points(values, 1)
    after = points(values[100:] + 0.05, 101)
    replay = compare_losses(before, after)
    assert msgspec.to_builtins(replay)["points"] == 80
    assert replay.shift == pytest.approx(0.05)
    noisy = points(np.cumsum(np.zeros(180)) + healthy(180, 4, 2.2, 0.02 / np.sqrt(2)), 1)
    [found] = find_wrong_restore(noisy, points(noisy.values[100:] + 0.05, 101))
    assert found.type == "restore_differs"
    assert found.details["noise"] == pytest.approx(0.02, rel=0.2)
    assert found.details["limit"] == pytest.approx(0.011, rel=0.02)


def test_losses_of_another_order_of_sums_are_consistent() -> None:
    before = points(healthy(180), 1)
    after = points(before.values[100:] + np.random.default_rng(9).normal(0, 0.004, 80), 101)
    assert compare_losses(before, after).outcome == "consistent"


def test_r6_another_learning_rate() -> None:
    before, after = points([3.0e-4] * 100, 1), points([3.1e-4] * 50, 51)
    [found] = find_other_learning_rate(before, after)
    assert found.type == "learning_rate_differs"
    assert (found.details["before"], found.details["after"]) == (3.0e-4, 3.1e-4)
    assert find_other_learning_rate(before, points([3.0e-4] * 50, 51)) == []


def test_r7_a_loss_that_is_no_number_has_no_z() -> None:
    losses = healthy(300)
    losses[150] = np.nan
    assert find_spikes(points(losses)) == []
    assert find_divergence(points(losses)) == []


def test_data_that_is_read_again_is_found_and_a_right_replay_is_not() -> None:
    losses = healthy(400)
    again = points(losses[150:350], 160)
    [found] = find_repeated_data(points(losses, 1), again)
    assert found.details["steps_apart"] == -9
    assert find_repeated_data(points(losses, 1), points(losses[150:350], 151)) == []


def test_a_loss_that_stays_up_has_diverged() -> None:
    losses = np.concatenate([healthy(400), healthy(400, 1, 2.6)])
    [found] = find_divergence(points(losses))
    assert found.details["best"] == pytest.approx(2.218, abs=0.01)
    assert found.details["level"] == pytest.approx(2.6, abs=0.01)
    assert 1400 <= found.details["since_iteration"] <= 1450
    assert find_divergence(points(np.concatenate([healthy(400), healthy(150, 1, 2.6), healthy(300, 2)]))) == []


def test_a_spike_that_does_not_end_is_unrecovered() -> None:
    losses = np.concatenate([healthy(200), healthy(400, 1, 4.0)])
    [found] = find_spikes(points(losses))
    assert found.details["state"] == "unrecovered"


def test_nothing_is_said_while_warming_up() -> None:
    losses = np.concatenate([np.linspace(11, 3, 150), [9.0], np.linspace(3, 2.9, 40)])
    assert find_spikes(points(losses, 1)) == []


def test_slower_after_a_restart() -> None:
    noise = np.random.default_rng(0)
    before = progress(noise.normal(10, 0.05, 100))
    [found] = find_slower_after_restart(before, progress(noise.normal(10.6, 0.05, 100), 100))
    assert found.details["ratio"] == pytest.approx(1.06, abs=0.01)
    assert find_slower_after_restart(before, progress(noise.normal(10.1, 0.05, 100), 100)) == []


@given(st.lists(st.tuples(st.integers(1, 200), st.integers(1, 60)), min_size=1, max_size=6))
def test_the_stretches_of_one_batch_size_hold_each_interval_once(ramp: list[tuple[int, int]]) -> None:
    """A batch that grows is no slowness: within each stretch all steps take as long."""
    sizes = np.concatenate([np.full(count, float(number)) for number, (count, _) in enumerate(ramp)])
    paces = np.concatenate([np.full(count, float(each)) for count, each in ramp])
    steps = np.arange(1, len(paces) + 1)
    times = np.cumsum(paces)
    whole = Points(steps, times, np.zeros(len(steps)))
    stretches = split_by_batch(whole, Points(steps, times, sizes))
    assert [size for size, _ in stretches] == [float(number) for number in range(len(ramp))]
    assert sum(len(part) - 1 for _, part in stretches) == len(steps) - 1
    for size, stretch in stretches:
        assert size is not None
        assert set(seconds_per_step(stretch)) <= {float(ramp[int(size)][1])}
        assert find_slower(stretch) == []
    assert split_by_batch(whole, Points(steps[:0], times[:0], sizes[:0])) == [(None, whole)]


def test_checkpoints_that_take_longer() -> None:
    saves = [(step, 10.0 * step, 20.0 if step < 6 else 34.0) for step in range(12)]
    [found] = find_slower_checkpoints(saves)
    assert (found.type, found.details["ratio"]) == ("checkpoint_slower", 1.7)
    assert find_slower_checkpoints(saves[:6]) == []


def test_nothing_is_found_in_clean_runs() -> None:
    """Falling losses with noise, steps with checkpoint pauses, memory that is full but does not grow."""
    for seed in part(range(200)):
        noise = np.random.default_rng(seed)
        count = 600
        paces = noise.normal(1.0, 0.005, 2000)
        paces[99::100] *= 1.4
        assert find_slower(progress(paces)) == [], seed
        loss = 2 + 3 * np.exp(-np.arange(count) / 150) + noise.normal(0, 0.02, count)
        norms = np.exp(noise.normal(-1.2, 0.2, count))
        assert find_step_time_creep(progress(paces)) == [], seed
        assert find_step_time_creep(progress(60 * paces)) == [], seed
        assert find_spikes(points(loss), points(norms)) == [], seed
        assert find_divergence(points(loss)) == [], seed
        memory = Points(np.arange(300), 60.0 * np.arange(300), noise.normal(70, 0.05, 300))
        assert find_memory_creep(memory, 80.0) == [], seed
        before, after = points(loss, 1), points(loss[400:] + noise.normal(0, 0.005, 200), 401)
        assert find_wrong_restore(before, after) == [], seed
        assert find_repeated_data(before, after) == [], seed


def test_steps_that_get_slower_all_the_time_and_no_jump() -> None:
    noise = np.random.default_rng(1)
    ramp = np.linspace(60, 75, 600) + noise.normal(0, 0.3, 600)
    [found] = find_step_time_creep(progress(ramp))
    assert found.details["percent_an_hour"] == pytest.approx(25 / (ramp.sum() / 3600), rel=0.1)
    assert found.details["cost_seconds"] == pytest.approx(float((ramp - 60).sum()), rel=0.1)
    jump = np.where(np.arange(600) < 290, 60.0, 75.0) + noise.normal(0, 0.3, 600)
    assert find_step_time_creep(progress(jump)) == []
    assert find_step_time_creep(progress(np.linspace(60, 62, 600))) == []


@given(
    begin=st.floats(1, 60),
    per_hour=st.floats(1, 10),
    hours=st.floats(3, 12),
    noise=st.floats(0, 0.3),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=examples(30), deadline=None)
def test_a_hosts_memory_that_grows(begin: float, per_hour: float, hours: float, noise: float, seed: int) -> None:
    random = np.random.default_rng(seed)
    at = np.linspace(0, hours, 200)
    steady = points(begin + random.normal(0, noise, 200), every=hours * 18)
    assert find_host_memory_creep(steady) == []
    growing = points(np.minimum(begin + per_hour * at + random.normal(0, noise, 200), 100), every=hours * 18)
    if begin + per_hour * hours < 95 and (100 - begin) / per_hour - hours < 20:
        [found] = find_host_memory_creep(growing)
        assert found.details["hours_left"] == pytest.approx((100 - begin) / per_hour - hours, abs=2)


def test_gradients_that_come_to_be_clipped_and_those_that_always_are() -> None:
    random = np.random.default_rng(0)
    healthy_norms, high = random.uniform(0.2, 0.9, 500), random.uniform(0.2, 0.9, 400)
    high[::10] = 1.5
    [found] = find_clipping(points(np.concatenate([healthy_norms, high])), 1.0)
    assert found.details["clip_value"] == 1.0
    assert 0.05 < found.details["share"] <= 0.06
    assert 1500 < found.iteration < 1700
    always = points(random.uniform(1.5, 3, 900))
    for norms, clip in ((always, 1.0), (points(healthy_norms), 1.0), (always, None), (always, 0.0)):
        assert find_clipping(norms, clip) == []


def test_a_loss_scale_that_falls() -> None:
    halvings = [65536.0] * 300 + [32768.0] * 30 + [16384.0] * 30 + [8192.0] * 100
    [found] = find_falling_scale(points(halvings, 1))
    assert (found.type, found.iteration, found.details["loss_scale"]) == ("nan_precursor", 361, 8192.0)
    assert find_falling_scale(points([2.0**32 / 2**step for step in range(20)] + [4096.0] * 400, 1)) == []
    slowly = [65536.0 / 2 ** (step // 200) for step in range(1000)]
    assert find_falling_scale(points(slowly, 1)) == []


def test_steps_that_are_skipped() -> None:
    skipped = np.zeros(600)
    skipped[400:460:5] = 1
    [found] = find_skipped_steps(points(skipped, 1))
    assert found.details["skipped"] == 11
    assert find_skipped_steps(points(np.arange(600) % 50 == 0, 1)) == []


@pytest.mark.parametrize(
    ("value", "rule"), [(float("nan"), "no finite"), (-1e-4, "below zero"), (7e-4, "doubled"), (float("inf"), "finite")]
)
def test_an_odd_learning_rate(value: float, rule: str) -> None:
    rates = np.concatenate([np.linspace(0, 3e-4, 150), np.linspace(3e-4, 2e-4, 300)])
    assert find_odd_learning_rate(points(rates, 1)) == []
    rates[300] = value
    [found] = find_odd_learning_rate(points(rates, 1))
    assert (found.iteration, rule in found.rule) == (301, True)


def test_samples_that_are_others_at_equal_steps() -> None:
    before = points(512.0 * np.arange(1, 101), 1)
    assert find_other_samples(before, points(512.0 * np.arange(51, 121), 51)) == []
    [found] = find_other_samples(before, points(512.0 * np.arange(1, 71), 51))
    assert (found.type, found.details["points"]) == ("samples_differ", 50)


def sibling(uid: str, level: float = 2.2, pace: float = 1.0, **known: int) -> Sibling:
    noise = np.random.default_rng(len(uid) + ord(uid[-1]))
    loss = points(level + 3 * np.exp(-np.arange(600) / 100) + noise.normal(0, 0.004, 600), 1)
    return Sibling(uid=uid, loss=loss, pace=points(noise.normal(pace, 0.005, 600), 1), **known)


def test_a_job_that_leaves_the_band_of_its_siblings() -> None:
    others = [sibling(name) for name in ("a", "b", "c", "d")]
    assert compare_siblings(sibling("e"), others) == []
    found = compare_siblings(sibling("e", level=2.4, pace=1.1), others)
    assert [one.type for one in found] == ["loss_off", "slower_than_siblings"]
    assert found[0].details["siblings"] == 4
    assert compare_siblings(sibling("e", level=2.4, pace=0.8), others)[0].type == "loss_off"
    assert [one.type for one in compare_siblings(sibling("e", pace=0.8), others)] == []


def test_fewer_than_three_comparable_siblings_say_nothing() -> None:
    others = [sibling("a"), sibling("b"), sibling("c", world_size=8), sibling("d", target=9)]
    assert compare_siblings(sibling("e", level=9.0, world_size=64, target=5), others) == []
    assert compare_siblings(sibling("a", level=9.0), others[:3]) == []
    assert compare_siblings(sibling("e", level=9.0), others[:3])[0].type == "loss_off"


@pytest.mark.parametrize(
    ("name", "stem"), [("llama-7b-run12", "llama-#b-run#"), ("run-1", "run-#"), ("12", ""), ("a1", ""), ("", "")]
)
def test_siblings_have_one_name_up_to_digits(name: str, stem: str) -> None:
    assert stem_of(name) == stem


VALUES = st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=150)


@settings(max_examples=examples(60), deadline=None)
@given(VALUES, VALUES)
def test_any_values_are_judged_without_a_fault(losses: list[float], norms: list[float]) -> None:
    assert all(np.isfinite(one.time) for one in find_spikes(points(losses), points(norms)))
    msgspec.json.encode(compare_losses(points(losses), points(norms)))
    find_repeated_data(points(losses), points(norms))
    find_other_learning_rate(points(losses), points(norms))
    find_memory_creep(points(losses), 80.0)
    find_falling_scale(points(losses))
    find_skipped_steps(points(norms))
    find_odd_learning_rate(points(losses))
    find_other_samples(points(losses), points(norms))
    own = Sibling(uid="a", loss=points(losses), pace=points(losses))
    other = Sibling(uid="b", loss=points(norms), pace=points(norms))
    compare_siblings(own, [msgspec.structs.replace(other, uid=str(number)) for number in range(4)])
