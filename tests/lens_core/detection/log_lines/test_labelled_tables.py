"""Labelled tables that a detector declares: the rows of one table are one step, whatever the order of its rows."""

from __future__ import annotations

from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lens_core import Detector, Field, LogFormat, StepMetrics, Table
from lens_core.testing import check_detector, read_line
from tests.lens_core.detection.log_lines.stand import Stand, of


class Acme(Detector):
    """Prints a table for each step, and a line with two headlines."""

    name = "acme"
    framework = "acme"
    layer = "wrapper"
    tables = (
        Table(
            name="table",
            words=("acme", "rollout"),
            header=r"^\| acme rollout/ +\|",
            row=r"(?P<cells>\|[^|]{1,80}\|[^|]{1,80}(?:\|[^|]{1,80}\|[^|]{1,80}){0,3}\|)\s*$",
            separator="|",
            labelled=True,
            fields={"timesteps": Field("iteration"), "took": Field("elapsed_time_per_iteration_ms", "time", 1000.0)},
            headlines={"reward": ("ep_rew_mean", "rew")},
        ),
    )
    formats = (
        LogFormat(
            name="line",
            words=("acme", "update"),
            head=r"acme update (?P<iteration>\d+) ",
            layout="spaced",
            headlines={"reward": ("ep_rew_mean", "rew"), "entropy": ("ent",)},
            example="acme update 5 loss=0.5 rew=1.5 ep_rew_mean=2.5 ent=0.1",
        ),
    )


def table(step: int, *rows: tuple[str, str], counter_at: int = 0) -> list[str]:
    cells = [f"|    {name}    | {value} |" for name, value in rows]
    cells.insert(counter_at, f"|    timesteps    | {step} |")
    return ["-" * 40, "| acme rollout/        |          |", *cells, "-" * 40]


@given(
    values=st.lists(st.floats(0.001, 1e4).map(lambda number: float(f"{number:.4g}")), min_size=2, max_size=2),
    counter_at=st.integers(0, 2),
    step=st.integers(1, 10**6),
)
@settings(deadline=None)
def test_all_rows_of_a_table_are_one_step(values: list[float], counter_at: int, step: int) -> None:
    stand = Stand([cast(Detector, Acme)])
    rows = [("loss", str(values[0])), ("ep_rew_mean", str(values[1]))]
    done = stand.feed(*table(step, *rows, counter_at=counter_at), *table(step + 5, *rows, counter_at=counter_at))
    found: dict[int, dict[str, float]] = {}
    for row in of(StepMetrics, done):
        found.setdefault(row.row_step, {}).update(row.values)
    wanted = {"lm_loss": values[0], "reward": values[1]}
    assert {at: {key: one[key] for key in wanted} for at, one in found.items()} == {step: wanted, step + 5: wanted}


def test_several_pairs_in_a_row_and_units() -> None:
    stand = Stand([cast(Detector, Acme)])
    done = stand.feed("| acme rollout/ | |", "| timesteps | 7 | took | 0.25 | loss | 1.5 |")
    (row,) = of(StepMetrics, done)
    assert (row.row_step, row.values["elapsed_time_per_iteration_ms"], row.values["lm_loss"]) == (7, 250.0, 1.5)


@pytest.mark.parametrize("line", ["| note | hello |", "| | |", "|||", "| loss | |"])
def test_rows_without_numbers_are_none(line: str) -> None:
    stand = Stand([cast(Detector, Acme)])
    assert of(StepMetrics, stand.feed("| acme rollout/ | |", line)) == []


def test_the_best_key_of_each_headline_is_stored_under_its_name() -> None:
    (reading,) = read_line(Acme, Acme.formats[0].example)
    assert reading.values == {"lm_loss": 0.5, "rew": 1.5, "reward": 2.5, "entropy": 0.1}
    (other,) = read_line(Acme, "acme update 6 loss=0.5 rew=1.5")
    assert other.values == {"lm_loss": 0.5, "reward": 1.5}


def test_it_keeps_the_contract() -> None:
    check_detector(Acme)
