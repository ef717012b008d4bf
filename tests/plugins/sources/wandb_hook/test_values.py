"""Values that are metrics; later changes to the user's objects do not reach them."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from lens_hook import wire
from lens_hook.session import Session
from lens_hook.values import Special, as_number, numbers, snapshot

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(max_size=8)
    | st.binary(max_size=4)
    | st.complex_numbers(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


class Scalar:
    """A scalar with the interface of numpy's and torch's."""

    dtype = "float32"

    def __init__(self, value: Any, count: int = 1) -> None:
        self.value = value
        self.size = count

    def item(self) -> Any:
        """The element."""
        return self.value


class Broken(Scalar):
    """A tensor on a device that has gone."""

    def item(self) -> Any:
        raise RuntimeError("device lost")


def expected(data: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """The rule in its simplest form."""
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, dict) and "_type" not in value:
            found.update(expected(value, f"{prefix}{name}."))
        elif isinstance(value, (bool, int, float)):
            found[prefix + name] = value
    return found


def same(one: Any, other: Any) -> bool:
    """Equality under the wire's names for what JSON cannot hold."""
    if isinstance(one, str):
        return one == ("NaN" if other != other else "Infinity" if other > 0 else "-Infinity")
    return bool(one == other)


@given(st.dictionaries(st.text(max_size=6), ANYTHING, max_size=6))
def test_numbers_survive_and_nothing_else(data: dict[str, Any]) -> None:
    seen = numbers(snapshot(data))
    wanted = expected(data)
    assert set(seen) == set(wanted)
    assert all(same(seen[name], wanted[name]) for name in seen)


@given(st.dictionaries(st.text(max_size=6), ANYTHING, max_size=6), st.integers(0, 2**62), st.floats(0, 4e9))
def test_every_row_is_strict_json(data: dict[str, Any], step: int, now: float) -> None:
    session = Session("wandb", 'run "1" \\ ü')
    merged = wire.merge([(session, snapshot(data), step, False, None, None, now)])
    for line in map(wire.Encoder().row, merged):
        record = json.loads(line.text, parse_constant=lambda token: pytest_fail(token))
        assert record["run_id"] == 'run "1" \\ ü'
        assert record["row_step"] == step
        assert b"\n" not in line.text
        assert len(record["values"]) == line.points


def pytest_fail(token: str) -> None:
    """A bare NaN is no JSON."""
    raise AssertionError(token)


def test_text_that_looks_like_a_special_value_is_text() -> None:
    assert numbers(snapshot({"a": "NaN", "b": math.nan, "c": {"d": "Infinity", "e": -math.inf}})) == {
        "b": "NaN",
        "c.e": "-Infinity",
    }


def test_a_mutable_object_is_read_at_once() -> None:
    scalar, nested = Scalar(1.5), {"x": 1}
    taken = snapshot({"loss": scalar, "n": nested})
    scalar.value, nested["x"] = 9.0, 9
    assert numbers(taken) == {"loss": 1.5, "n.x": 1}


def test_objects_that_are_no_scalars() -> None:
    assert as_number(Scalar(2.0, count=3)) is None
    assert as_number(Broken(1)) is None
    assert as_number(object()) is None
    assert as_number(Scalar("text")) is None
    assert as_number(Scalar(True)) == 1
    assert as_number(10**400) == Special("Infinity")
    assert as_number(-(10**400)) == Special("-Infinity")


class Hostile:
    """A value whose every method fails; `broken` says which attribute can be read before."""

    def __init__(self, broken: str) -> None:
        self.broken = broken

    def __getattribute__(self, name: str) -> Any:
        if name == object.__getattribute__(self, "broken"):
            raise RuntimeError("not even to be read")
        return object.__getattribute__(self, name)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        if object.__getattribute__(self, "broken") == "class":
            raise RuntimeError("no class")
        return Hostile

    dtype = "float32"
    size = 1

    def item(self) -> Any:
        raise ZeroDivisionError

    def __float__(self) -> float:
        raise ZeroDivisionError


class HostileFloat(float):
    """A float that cannot be read as one."""

    def __float__(self) -> float:
        raise ZeroDivisionError


@given(st.sampled_from(["dtype", "numel", "size", "item", "class", "__class__", ""]), st.floats(allow_nan=False))
def test_an_odd_value_loses_no_other(broken: str, number: float) -> None:
    data = {"before": 1.0, "odd": Hostile(broken), "float": HostileFloat(2.0), "after": 2.0, "deep": {"x": number}}
    row = numbers(snapshot(data))
    assert {"before": 1.0, "after": 2.0}.items() <= row.items()
    assert "odd" not in row
    assert "deep.x" in row


def test_long_doubles_are_numbers() -> None:
    assert numbers(snapshot({"a": np.longdouble("0.1"), "b": np.array([np.longdouble(2)])})) == {"a": 0.1, "b": 2.0}
    assert as_number(np.longdouble("inf")) == "Infinity"
    assert as_number(np.complex128(1)) is None
    assert as_number(np.datetime64("2026-01-01")) is None


class HostileMapping(dict[str, float]):
    """A row that fails when the worker reads it."""

    def values(self) -> Any:
        raise RuntimeError("no values")


def test_a_row_that_fails_takes_no_other_with_it() -> None:
    session = Session("wandb", "r")
    rows = [{"a": 1.0}, HostileMapping(b=2.0), {"c": 3.0}]
    lost: list[int] = []
    merged = wire.merge(
        [(session, row, None, None, None, None, 0.0) for row in rows], lambda points, error: lost.append(points)
    )
    assert [row[1] for row in merged] == [{"a": 1.0}, {"c": 3.0}]
    assert lost == [1]
