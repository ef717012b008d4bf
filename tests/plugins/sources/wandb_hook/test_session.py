"""The step counter against wandb's own rule, axes, and the merging of rows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from lens_hook import wire
from lens_hook.session import Session

CALLS = st.lists(st.tuples(st.none() | st.integers(0, 30), st.sampled_from([None, True, False])), max_size=30)


@given(CALLS)
def test_the_counter_follows_wandbs_rule(calls: list[tuple[int | None, bool | None]]) -> None:
    session, counter = Session("wandb", "r"), 0
    for step, commit in calls:
        row_step, dropped = session.enter(None, step, commit)
        session.leave()
        assert row_step == (counter if step is None else step)
        assert dropped == (step is not None and step < counter)
        counter = max(counter, row_step)
        counter += 1 if commit or (step is None and commit is None) else 0


@given(st.integers(1, 20))
def test_calls_in_flight_never_share_an_implicit_step(count: int) -> None:
    session = Session("wandb", "r")
    steps = [session.enter(5, None, None)[0] for _ in range(count)]
    assert steps == list(range(5, 5 + count))
    for _ in range(count):
        session.leave()
    assert session.enter(7, None, None)[0] == 7


def test_a_failed_call_does_not_move_the_step() -> None:
    session = Session("wandb", "r")
    session.enter(3, None, None)
    session.leave()
    assert session.enter(3, None, None) == (3, False)


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
    rows = [(sessions[who], dict(data), step, float(at), False) for at, (who, step, data) in enumerate(calls)]

    def points(parts: list[tuple[Session, int, dict[str, object]]]) -> list[tuple[str, int, str, object]]:
        found = [
            (session.run_id, step, name, value)
            for session, step, values in parts
            for name, value in values.items()
            if not isinstance(value, str)
        ]
        return sorted(found, key=repr)

    before = points([(row[0], row[2], row[1]) for row in rows])
    merged = wire.merge(rows)
    after = points([(session, step, dict(values)) for session, values, step, _, _ in merged])
    assert before == after
    assert all(values for _, values, _, _, _ in merged)


def test_sequences_rise_even_when_the_clock_does_not() -> None:
    encoder = wire.Encoder()
    assert [encoder.sequence(at) for at in (1.0, 1.0, 0.5, 2.0)] == [1_000_000, 1_000_001, 1_000_002, 2_000_000]
