"""Checks of a step's own numbers: a loss that is not finite, steps that were skipped."""

from __future__ import annotations

import math

from .readings import LogEvent, Reading

# A full Megatron line has these whatever happened to the loss; abridged ones (documentation, wrapped lines) have not.
_COUNTERS = ("skipped_iterations_number", "nan_iterations_number", "learning_rate")
_OVERFLOWED = "skipped_iterations_number"


def check_loss(reading: Reading) -> LogEvent | None:
    """Return the event that a step's own numbers show: `loss_not_finite`, `step_skipped` or None.

    Megatron prints no loss where it is not a number, and none where every step of the interval was skipped because
    its gradients overflowed; then an infinite gradient is no news.
    """
    values = reading.values
    skipped = _all_skipped(values)
    if skipped is not None:
        return LogEvent("step_skipped", reading.framework, reading.iteration, None, {"skipped": skipped})
    bad: dict[str, str] = {}
    if not math.isfinite(sum(values.values())):  # quicker than to look at each; a sum that overflows is looked into too
        bad = {name: spell(value) for name, value in values.items() if not math.isfinite(value) and _matters(name)}
    if values.get("nan_iterations_number", 0.0) > 0.0:
        bad["nan_iterations_number"] = spell(values["nan_iterations_number"])
    if not bad and _is_silent(values):
        bad["lm_loss"] = "not printed"
    return LogEvent("loss_not_finite", reading.framework, reading.iteration, None, bad) if bad else None


def spell(value: float) -> str:
    """A number as text, what is no number as JSON and the sinks spell it."""
    if math.isnan(value):
        return "NaN"
    return f"{value:g}" if math.isfinite(value) else ("Infinity" if value > 0 else "-Infinity")


def _matters(name: str) -> bool:
    lowered = name.lower()
    return ("loss" in lowered and not lowered.endswith("_avg")) or lowered == "grad_norm"


def _is_silent(values: dict[str, float]) -> bool:
    return (
        "lm_loss" not in values
        and all(name in values for name in _COUNTERS)
        and not any("loss" in name and name != "loss_scale" for name in values)
    )


def _all_skipped(values: dict[str, float]) -> float | None:
    """Return how many steps were skipped, where that is the reason for a missing loss."""
    skipped = values.get(_OVERFLOWED, 0.0)
    return skipped if skipped > 0.0 and _is_silent(values) else None
