"""Spikes of the loss, gradient norms that rise, losses that diverge: robust z of what was usual before."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from .finding import SCALE, Finding, Points, mad

WINDOW = 100
WARM_UP_STEPS = 200
WARM_UP_POINTS = 20
_REFRESH_POINTS = 10
_ALONE, _TWICE, _WITH_NORM = 10.0, 8.0, 6.0
_OVER, _OVER_POINTS, _UNRECOVERED_POINTS = 4.0, 20, 100
_RISES = 3
_LEAST_SPREAD, _LEAST_NORM_SPREAD = 0.002, 0.02
_BEST, _DIVERGED_POINTS, _DIVERGED_SHARE = 50, 200, 0.05


def find_spikes(loss: Points, grad_norm: Points | None = None) -> list[Finding]:
    """Find spikes of the loss and rises of the gradient norm in one attempt, each once."""
    norms = dict(zip(grad_norm.iterations.tolist(), grad_norm.values.tolist(), strict=True)) if grad_norm else {}
    clean = loss.finite()
    watch = _Watch(uses_logs=bool(len(clean) and clean.values.min() > 0.01))
    for iteration, time, value in zip(
        clean.iterations.tolist(), clean.times.tolist(), clean.values.tolist(), strict=True
    ):
        watch.see(iteration, time, value, norms.get(iteration))
    return list(watch.findings())


def find_divergence(loss: Points) -> list[Finding]:
    """Find where the loss has stayed above its best level for 200 points; the first such place."""
    clean = loss.finite()
    late = clean.iterations >= WARM_UP_STEPS
    values, iterations, times = clean.values[late], clean.iterations[late], clean.times[late]
    if len(values) < _BEST + _DIVERGED_POINTS:
        return []
    windows = np.lib.stride_tricks.sliding_window_view(values, _BEST)
    levels = np.partition(windows, _BEST // 2, axis=1)[:, _BEST // 2]
    best = np.minimum.accumulate(levels)
    place = np.maximum.accumulate(np.where(levels == best, np.arange(len(levels)), 0))
    needed = np.maximum(_DIVERGED_SHARE * np.abs(best), 6 * SCALE * _spreads(values, place))
    above = levels > best + needed
    count = 0
    for index, is_above in enumerate(above.tolist()):
        count = count + 1 if is_above else 0
        if count >= _DIVERGED_POINTS:
            at = index + _BEST - 1
            figures = {"level": float(levels[index]), "best": float(best[index])}
            since = int(iterations[index - _DIVERGED_POINTS + _BEST])
            return [
                Finding(
                    type="loss_diverged",
                    iteration=int(iterations[at]),
                    time=float(times[at]),
                    rule="median of 50 above the best median of 50 by 5 % and 6 spreads, for 200 points",
                    details={**figures, "since_iteration": since},
                )
            ]
    return []


def _spreads(values: np.ndarray, place: np.ndarray) -> np.ndarray:
    """Return the spread within the best window of each place; computed once for each window."""
    known: dict[int, float] = {}
    found = np.empty(len(place))
    for index, best in enumerate(place.tolist()):
        if best not in known:
            known[best] = mad(values[best : best + _BEST])
        found[index] = known[best]
    return found


class _Window:
    """The last usual values, and how unusual another is."""

    def __init__(self, uses_logs: bool, least: float = _LEAST_SPREAD) -> None:
        self._least = least
        self._values: deque[float] = deque(maxlen=WINDOW)
        self._uses_logs = uses_logs
        self._centre, self._spread, self._age = 0.0, 1.0, _REFRESH_POINTS

    def __len__(self) -> int:
        return len(self._values)

    def z(self, value: float) -> float:
        """The distance of a value from the median, in robust standard deviations; 0 before there are enough."""
        if len(self._values) < WARM_UP_POINTS:
            return 0.0
        if self._age >= _REFRESH_POINTS:  # a few points change the median of a hundred little, and cost as much to find
            self._centre = median(self._values)
            least = self._least if self._uses_logs else 1e-9 + self._least * abs(self._centre)
            self._spread = max(SCALE * median(abs(value - self._centre) for value in self._values), least)
            self._age = 0
        return (self._u(value) - self._centre) / self._spread

    def append_value(self, value: float) -> None:
        """Remember a usual value."""
        self._values.append(self._u(value))
        self._age += 1

    def _u(self, value: float) -> float:
        return math.log(max(value, 1e-12)) if self._uses_logs else value


class _Watch:
    """Sees points in their order; a spike is one finding from its first point to its end."""

    def __init__(self, *, uses_logs: bool) -> None:
        self._uses_logs = uses_logs
        self._loss, self._norm = _Window(uses_logs), _Window(uses_logs=True, least=_LEAST_NORM_SPREAD)
        self._suspicious: deque[bool] = deque(maxlen=3)
        self._rises: list[float] = []
        self._quiet = self._points = 0
        self._open: dict[str, float] | None = None
        self._found: list[Finding] = []

    def see(self, iteration: int, time: float, loss: float, norm: float | None) -> None:
        """See one point."""
        is_warm = iteration >= WARM_UP_STEPS
        z = self._loss.z(loss) if is_warm else 0.0
        has_norm = norm is not None and math.isfinite(norm) and norm > 0
        norm_z = self._norm.z(norm) if has_norm and norm is not None and is_warm else 0.0
        if has_norm and norm is not None:
            self._see_norm(iteration, time, norm, norm_z)
        self._suspicious.append(z >= _TWICE)
        fires = z >= _ALONE or sum(self._suspicious) >= 2 or (z >= _WITH_NORM and norm_z >= _WITH_NORM)
        if self._open is None and fires:
            self._open = {"iteration": iteration, "time": time, "z": z, "loss": loss, "norm_z": norm_z}
            self._open |= {"peak": loss, "peak_z": z, "peak_iteration": iteration, "recovered": iteration}
            self._quiet = self._points = 0
        elif self._open is not None:
            self._go_on(iteration, loss, z)
        if self._open is None or z < _OVER:
            self._loss.append_value(loss)

    def findings(self) -> Iterator[Finding]:
        """All findings, the open spike among them, by iteration."""
        if self._open is not None:
            self._close(state="open" if self._points < _UNRECOVERED_POINTS else "unrecovered")
        yield from sorted(self._found, key=lambda found: found.iteration)

    def _go_on(self, iteration: int, loss: float, z: float) -> None:
        assert self._open is not None
        self._points += 1
        if z > self._open["peak_z"]:
            self._open |= {"peak": loss, "peak_z": z, "peak_iteration": iteration}
        if z >= _OVER:
            self._quiet = 0
        else:
            self._open["recovered"] = iteration if self._quiet == 0 else self._open["recovered"]
            self._quiet += 1
        if self._quiet >= _OVER_POINTS:
            self._close(state="recovered")
        elif self._points == 3 * _UNRECOVERED_POINTS:  # it is the new level: what comes is measured against it
            self._close(state="unrecovered")
            self._loss = _Window(self._loss._uses_logs)
            self._suspicious.clear()

    def _close(self, state: str) -> None:
        assert self._open is not None
        spike, self._open = self._open, None
        details: dict[str, Any] = {name: spike[name] for name in ("loss", "z", "peak", "peak_z")}
        details |= {"peak_iteration": int(spike["peak_iteration"]), "state": state}
        if state == "recovered":
            details["steps_to_recover"] = int(spike["recovered"] - spike["iteration"])
        self._found.append(
            Finding(
                type="loss_spike",
                iteration=int(spike["iteration"]),
                time=spike["time"],
                rule="robust z of the loss over the last 100 points: 10, or 8 twice in three, or 6 with the norm's 6",
                details=details,
            )
        )

    def _see_norm(self, iteration: int, time: float, norm: float, z: float) -> None:
        if z >= _WITH_NORM and (not self._rises or norm > self._rises[-1]):
            self._rises.append(norm)
        else:
            self._rises = []
        if len(self._rises) == _RISES:
            rule = "the gradient norm rose three times in a row, each with a robust z of 6 or more"
            self._found.append(
                Finding(
                    type="grad_norm_rising",
                    iteration=iteration,
                    time=time,
                    rule=rule,
                    details={"grad_norms": [*self._rises], "z": z},
                )
            )
        if z < _WITH_NORM:
            self._norm.append_value(norm)
