"""Whole families of lines: any order, width, prefix and colour; what is there is read, nothing is made up."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lens_core.detection.log_lines import Context, LineEngine, Reading
from lens_core.detection.log_lines.numbers import parse_number
from lens_core.detection.log_lines.text import printed_time, split_container_prefix, strip_colours
from tests.generated import examples

fixed = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=examples(150))

PREFIXES = (
    "",
    " ",
    "[default3]:",
    "[default0]:[rank6]: ",
    "12: ",
    "node01: ",
    "stderr: ",
    "(main_task pid=17) ",
    "(RayTrainWorker pid=1, ip=10.0.0.1) ",
    "2026-05-18T16:04:46.339001234Z stderr F ",
    "[1757] ",
    "[2026-01-01 00:00:00.123456] ",
    "[20260410 08:00:00][rank-7/8][INFO ] [-----trainer.py:2154] : ",
    "[user/team][module][ip-10.0.0.1] ",
    "2026-01-01 00:00:00,123 - root - INFO - ",
    "job-0/12 [default0]:",
)
prefixes = st.lists(st.sampled_from(PREFIXES), max_size=3).map("".join)
finite = st.floats(1e-9, 1e9)
values = st.one_of(finite, st.just(math.nan), st.just(math.inf))


def printed(value: float) -> st.SearchStrategy[str]:
    forms = [f"{value:.6E}", repr(value), f"{value:12.6E}"]
    if math.isnan(value):
        forms.append("NAN")
    return st.sampled_from(forms)


def same(one: float | None, other: float) -> bool:
    if one is None:
        return False
    return (math.isnan(one) and math.isnan(other)) or one == pytest.approx(other, rel=1e-5)


def only_step(engine: LineEngine, line: str) -> Reading:
    steps = [reading for reading in engine.read_line(line) if reading.kind == "metric"]
    assert len(steps) == 1, line
    return steps[0]


MEGATRON = {
    "consumed samples": ("consumed_samples", 1.0),
    "elapsed time per iteration (ms)": ("elapsed_time_per_iteration_ms", 1.0),
    "throughput per GPU (TFLOP/s/GPU)": ("tflops", 1.0),
    "tokens per GPU (tokens/s/GPU)": ("tokens_per_gpu", 1.0),
    "mem usages": ("mem_usage_ratio", 100.0),
    "learning rate": ("learning_rate", 1.0),
    "global batch size": ("global_batch_size", 1.0),
    "lm loss": ("lm_loss", 1.0),
    "loss scale": ("loss_scale", 1.0),
    "grad norm": ("grad_norm", 1.0),
    "num zeros": ("num_zeros", 1.0),
    "number of skipped iterations": ("skipped_iterations_number", 1.0),
    "number of nan iterations": ("nan_iterations_number", 1.0),
    "load_balancing_loss": ("load_balancing_loss", 1.0),
    "a new key": ("a new key", 1.0),
}


@given(st.data())
@fixed
def test_megatron_in_any_order_with_anything_missing(engine: LineEngine, data: st.DataObject) -> None:
    keys = data.draw(st.lists(st.sampled_from(sorted(MEGATRON)), unique=True, min_size=1))
    step, total = data.draw(st.tuples(st.integers(0, 10**9), st.integers(1, 10**9)))
    drawn = {key: data.draw(values) for key in keys}
    segments = []
    for key in keys:
        colon, space = data.draw(st.sampled_from([(":", " "), (":", "     "), (" :", "")]))
        segments.append(f"{key}{colon}{space}{data.draw(printed(drawn[key]))}")
    bar = data.draw(st.sampled_from([" | ", "|", " |", "  | "]))
    slash = data.draw(st.sampled_from(["/", "/ ", " / ", "/       "]))
    end = data.draw(st.sampled_from(["", " |", " | ", "\r"]))
    blanks = " " * data.draw(st.integers(1, 9))
    line = f"{data.draw(prefixes)}iteration{blanks}{step}{slash}{total}{bar}{bar.join(segments)}{end}"
    reading = only_step(engine, line)
    assert reading.iteration == step
    assert reading.values.pop("target_iteration") == total
    for key, value in drawn.items():
        name, factor = MEGATRON[key]
        assert same(reading.values.pop(name), value * factor), (key, line)
    assert not reading.values, "nothing is made up"


@given(finite, finite, st.sampled_from(["{}/{}", "{} (avg {})", "{}(avg {})", "{} / {}"]))
@fixed
def test_a_pair_is_the_value_and_its_running_average(engine: LineEngine, now: float, mean: float, form: str) -> None:
    text = form.format(repr(now), repr(mean))
    reading = only_step(engine, f"iteration 4/10 | compute per GPU (TFLOP/s/GPU): {text} | lm loss: 1.0 |")
    assert same(reading.values["tflops"], now)
    assert same(reading.values["tflops_avg"], mean)


@given(st.data())
@fixed
def test_primus_memory_with_and_without_fractions(engine: LineEngine, data: st.DataObject) -> None:
    used, free, total = (data.draw(st.integers(0, 10**5)) / data.draw(st.sampled_from([1, 100])) for _ in range(3))
    share = data.draw(st.integers(0, 10**4)) / 100
    kind = data.draw(st.sampled_from(["hip mem", "rocm mem"]))
    unit = data.draw(st.sampled_from(["GB", "GiB"]))
    memory = f"{kind} usage/free/total/usage_ratio: {used:g}{unit}/{free:g}{unit}/{total:g}{unit}/{share:g}%"
    where = data.draw(st.sampled_from(["{m} | lm loss: 1.0 |", "lm loss: 1.0 | {m}"]))
    reading = only_step(engine, f"iteration 4/10 | {where.format(m=memory)}")
    found = [reading.values[name] for name in ("mem_usage", "mem_free", "mem_total", "mem_usage_ratio")]
    assert found == pytest.approx([float(f"{x:g}") for x in (used, free, total, share)])
    assert reading.framework == "primus"


TITAN = {
    "grad_norm": ("grad_norm", "{:8.4f}"),
    "memory": ("mem_usage", "{:5.2f}GiB(50.00%)"),
    "tps": ("tokens_per_gpu", "{:,.0f}"),
    "tflops": ("tflops", "{:.2f}"),
    "mfu": ("mfu", "{:.2f}%"),
}


@given(st.data())
@fixed
def test_torchtitan_coloured_or_not(engine: LineEngine, data: st.DataObject) -> None:
    keys = ["memory", *data.draw(st.lists(st.sampled_from(sorted(set(TITAN) - {"memory"})), unique=True))]
    drawn = {key: data.draw(st.floats(0.01, 99999)) for key in keys}
    parts = [f"step: {data.draw(st.integers(0, 10**6)):2}", f"loss: {data.draw(st.floats(0, 99)):8.5f}"]
    parts += [f"{key}: {TITAN[key][1].format(value)}" for key, value in drawn.items()]
    colour = data.draw(st.sampled_from(["", "\x1b[32m", "\x1b[38;2;180;60;0m"]))
    line = data.draw(prefixes) + "  ".join(f"{colour}{part}" for part in parts) + ("\x1b[39m" if colour else "")
    reading = only_step(engine, line)
    assert reading.framework == "torchtitan"
    for key, value in drawn.items():
        name, form = TITAN[key]
        expected = float(re.match(r"[\d.]+", form.format(value).strip().replace(",", ""))[0])  # type: ignore[index]
        assert reading.values[name] == pytest.approx(expected), line
    assert ("tokens_per_gpu" in reading.values) == ("tps" in drawn)


@given(st.data())
@fixed
def test_dictionaries_quoted_or_not(engine: LineEngine, data: st.DataObject) -> None:
    names = {
        "loss": "lm_loss",
        "grad_norm": "grad_norm",
        "learning_rate": "learning_rate",
        "kl": "kl",
        "a/b (c)": "a/b (c)",
    }
    keys = ["loss", *data.draw(st.permutations(sorted(set(names) - {"loss"})))]
    drawn = {key: data.draw(values) for key in keys}
    quote = data.draw(st.sampled_from(["", "'"]))
    body = ", ".join(f"'{key}': {quote}{value!r}{quote}" for key, value in drawn.items())
    bar = data.draw(st.sampled_from(["", " 56%|█████▌    | 10/18 [04:14<03:22, 25.27s/it]"]))
    line = f"{data.draw(prefixes)}{bar}{{{body}, 'epoch': 1.5}}" + " " * data.draw(st.integers(0, 80))
    reading = only_step(engine, line)
    for key, value in drawn.items():
        assert same(reading.values[names[key]], value)
    assert (reading.iteration, reading.values.get("target_iteration")) == ((10, 18.0) if bar else (None, None))


@given(st.integers(1, 119))
@fixed
def test_a_dictionary_that_is_cut_gives_no_cut_number(engine: LineEngine, length: int) -> None:
    whole = "{'loss': 1.25071, 'grad_norm': 12.345678, 'learning_rate': 1.7509e-05, 'epoch': 1.2345}"
    full = only_step(engine, whole).values
    for reading in engine.read_line(whole[:length]):
        for name, value in reading.values.items():
            assert full[name] == value


@pytest.mark.parametrize(
    "word", ["validation", "Validation:", "valid", "eval", "Evaluation", "test", "Testing", "Sanity Checking:"]
)
@given(prefix=prefixes)
@fixed
def test_what_is_said_of_a_validation_is_no_step(engine: LineEngine, word: str, prefix: str) -> None:
    for line in (
        "iteration 5/ 10 | lm loss: 1.0 |",
        "step: 5  loss:  1.0  memory: 1.00GiB(1.00%)  tps: 10",
        "completed step: 5, seconds: 1.0, TFLOP/s/device: 1.0, loss: 1.0",
        "{'loss': 1.0, 'learning_rate': 0.1, 'epoch': 1.0}",
    ):
        assert [reading for reading in engine.read_line(f"{prefix}{word} {line}") if reading.kind == "metric"] == []


WORDS = (
    "iteration step loss epoch { } ' : = | / [ ] % it s training saving checkpoint validation"
    " \r nan 1.5 7 1e-5 \x1b[32m [0m"
)


@given(st.one_of(st.text(), st.lists(st.sampled_from(WORDS.split(" ")), max_size=40).map(" ".join)))
@settings(deadline=None, max_examples=examples(500), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_nothing_that_is_printed_is_an_error(engine: LineEngine, line: str) -> None:
    context = Context()
    for _ in range(2):
        for reading in engine.read_line(line, context):
            assert all(isinstance(value, float) for value in reading.values.values())


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_in_any_notation(value: float) -> None:
    for text in (repr(value), f"{value:.17E}", f"'{value!r}'", f"tensor({value!r})", f"np.float64({value!r})"):
        assert parse_number(text) == value


@given(st.integers(0, 10**12))
def test_thousands_separators(value: int) -> None:
    assert parse_number(f"{value:,}") == value
    assert parse_number(f"{value:,} more") is None


@pytest.mark.parametrize("text", ["", "-", "n/a", "N/A", "None", "null", "1.2.3", "3m 8s", "0:11:24", "1,23", "12/94"])
def test_what_is_no_number(text: str) -> None:
    assert parse_number(text) is None


@pytest.mark.parametrize(
    "text", ["[megatron] x", "[7B] y", "[9074/5000000]", "[rank0]: z", "[1][10/25]", "[5m 3s]", "[3e-4, 2]"]
)
def test_real_brackets_stay(text: str) -> None:
    assert strip_colours(text) == text
    assert strip_colours(f"\x1b[32m{text}\x1b[0m") == text
    assert strip_colours(f"[32m{text}[0m") == text


@given(st.text(alphabet=st.characters(exclude_characters="\x1b[", exclude_categories=["Cs"])))
def test_text_without_brackets_is_never_changed(text: str) -> None:
    assert strip_colours(text) == text


def test_times_on_lines() -> None:
    assert printed_time("[2026-05-18 16:04:46.5] x") == 1779120286.5
    assert printed_time("[20260518 16:04:46][rank-0/8]") == 1779120286.0
    assert printed_time("2026-05-18T18:04:46,250+02:00 x") == 1779120286.25
    assert printed_time("2026-13-45 99:99:99") is None
    assert split_container_prefix("2026-05-18T16:04:46.5Z stdout P half") == ("half", 1779120286.5, True)
    assert split_container_prefix("2026-05-18 plain") == ("2026-05-18 plain", None, False)
