"""The step counter against wandb's own rule, axes, and the merging of rows."""

from __future__ import annotations

from random import Random

from hypothesis import given
from hypothesis import strategies as st
from lens_hook import wire
from lens_hook.buffer import Row
from lens_hook.session import Session
from lens_hook.values import Number

CALLS = st.lists(st.tuples(st.none() | st.integers(0, 30), st.sampled_from([None, True, False])), max_size=30)


def counted(counter: int, step: int | None, commit: bool | None) -> int:
    """The counter after a call, by the rule of wandb's run object."""
    return max(counter, counter if step is None else step) + (1 if commit or (step is None and commit is None) else 0)


@given(CALLS)
def test_the_counter_follows_wandbs_rule(calls: list[tuple[int | None, bool | None]]) -> None:
    alone, beside, of_the_object, of_the_service = Session("wandb", "r"), Session("wandb", "r"), 0, 0
    for step, commit in calls:
        after = counted(of_the_object, step, commit)
        dropped = step is not None and step < of_the_service
        expected = of_the_service if step is None else step
        assert beside.place(step, commit, of_the_object, after) == (expected, dropped)
        of_the_object = after
        of_the_service = of_the_service if dropped else counted(of_the_service, step, commit)
    counter = 0
    for step, commit in calls:
        assert alone.place(step, commit, None, None) == (counter if step is None else step, False)
        counter = counted(counter, step, commit)


@given(st.integers(1, 20), st.randoms(use_true_random=False))
def test_calls_at_once_never_share_an_implicit_step(count: int, random: Random) -> None:
    session = Session("wandb", "r")
    afters = list(range(6, 6 + count))
    random.shuffle(afters)
    steps = [session.place(None, None, 5, after)[0] for after in afters]
    assert steps == list(range(5, 5 + count))
    assert session.place(None, None, 5 + count, 6 + count)[0] == 5 + count


def test_a_failed_call_does_not_move_the_step() -> None:
    session = Session("wandb", "r")
    session.place(None, None, 3, 4)
    # The call with the counter 4 has failed, and left neither a row nor a higher counter.
    assert session.place(None, None, 4, 5) == (4, False)


def test_wandbs_counter_is_right_where_it_went_ahead_of_the_rows() -> None:
    session = Session("wandb", "r")
    session.place(None, None, 3, 4)
    assert session.place(None, None, 9, 10) == (9, False)
    assert session.place(2, None, 10, 10) == (2, True)


def test_axes() -> None:
    session = Session("wandb", "r")
    session.define_axis("val/*", "epoch")
    session.define_axis("exact", "exact_step")
    assert session.iteration({"val/loss": 1.0, "epoch": 3}, 9) == 3
    assert session.iteration({"exact": 1.0, "exact_step": 4.0}, 9) == 4
    assert session.iteration({"other": 1.0, "epoch": 3}, 9) == 9
    assert session.iteration({"val/loss": 1.0, "epoch": "NaN"}, 9) == 9
    assert session.iteration({"val/loss": 1.0, "epoch": 2.5}, 9) == 9
    assert session.iteration({"x": 1, "train/global_step": 7}, 9) == 7


def test_a_row_is_divided_by_the_axes_of_its_metrics() -> None:
    session = Session("wandb", "r")
    session.define_axis("batch/*", "batch/batch_step", carried=True)
    session.define_axis("epoch/*", "epoch/epoch", carried=True)
    row: dict[str, Number] = {"batch/loss": 0.5, "batch/batch_step": 40, "epoch/acc": 0.25, "epoch/epoch": 2, "lr": 0.1}
    parts = session.by_axis(row)
    assert sorted((session.iteration(part, 7), *sorted(part)) for part in parts) == [
        (2, "epoch/acc", "epoch/epoch"),
        (7, "lr"),
        (40, "batch/batch_step", "batch/loss"),
    ]
    assert session.by_axis({"batch/loss": 0.5}) == [{"batch/loss": 0.5, "batch/batch_step": 40}]
    assert session.by_axis({"lr": 0.5}) == [{"lr": 0.5}]


NAMES = st.sampled_from(["a/x", "a/y", "b/x", "b", "a/step", "b/step", "other", "step"])


@given(
    st.lists(st.tuples(NAMES | st.sampled_from(["a/*", "b/*", "*"]), NAMES), max_size=5),
    st.lists(st.dictionaries(NAMES, st.integers(0, 99) | st.just("NaN"), min_size=1), max_size=8),
)
def test_no_value_is_lost_or_doubled_by_axes(axes: list[tuple[str, str]], rows: list[dict[str, Number]]) -> None:
    session = Session("wandb", "r")
    for name, axis in axes:
        session.define_axis(name, axis, carried=True)
    latest: dict[str, Number] = {}
    for row in rows:
        parts = session.by_axis(row)
        latest.update({name: value for name, value in row.items() if isinstance(value, int)})
        added = [(name, value) for part in parts for name, value in part.items() if name not in row]
        assert all(latest[name] == value for name, value in added)
        assert sorted(name for part in parts for name in part if name in row) == sorted(row)
        assert all(part[name] == row[name] for part in parts for name in part if name in row)


ROWS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.integers(0, 3),
        st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9) | st.just("text"), max_size=3),
    ),
    max_size=40,
)


@given(ROWS)
def test_merging_keeps_every_point_once(calls: list[tuple[int, int, dict[str, object]]]) -> None:
    sessions = [Session("wandb", f"r{number}") for number in range(3)]
    rows: list[Row] = [
        (sessions[who], dict(data), step, False, None, None, float(at)) for at, (who, step, data) in enumerate(calls)
    ]

    def points(parts: list[tuple[Session, int, dict[str, object]]]) -> list[tuple[str, int, str, object]]:
        found = [
            (session.run_id, step, name, value)
            for session, step, values in parts
            for name, value in values.items()
            if not isinstance(value, str)
        ]
        return sorted(found, key=repr)

    before = points([(sessions[who], step, data) for who, step, data in calls])
    merged = wire.merge(rows)
    after = points([(session, step, dict(values)) for session, values, step, _, _ in merged])
    assert before == after
    assert all(values for _, values, _, _, _ in merged)


def test_sequences_rise_even_when_the_clock_does_not() -> None:
    encoder = wire.Encoder()
    assert [encoder.sequence(at) for at in (1.0, 1.0, 0.5, 2.0)] == [1_000_000, 1_000_001, 1_000_002, 2_000_000]
