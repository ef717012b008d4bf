"""Levanter and Marin, on JAX: `Progress on:train 36.0it/10.0kit rate:1.3s/it remaining:... postfix:loss=8.63`.

The count is rounded to three digits (`20.2kit` is some step from 20,150 on), so several steps may fall into one row.
"""

from __future__ import annotations

from lens_core import Detector, Field, LogFormat, Mark, hookimpl

_COUNT = r"[\d.]+[kMG]?"


class Levanter(Detector):
    """Levanter, on JAX; Marin trains on it."""

    name = "levanter"
    layer = "wrapper"
    bases = ("jax",)
    modules = ("levanter",)
    distributions = ("levanter", "marin-levanter")
    project_keywords = ("levanter", "marin")
    formats = (
        LogFormat(
            name="progress",
            words=("progress", "on", "train", "rate"),
            head=rf"\bProgress on:train (?P<iteration>{_COUNT})it/(?P<target_iteration>{_COUNT})it rate:"
            rf"(?:(?P<time>[\d.]+)s/it)?",
            layout="loose",
            fields={"time": Field("elapsed_time_per_iteration_ms", "time", 1000.0)},
            confidence=0.75,
            example="Progress on:train 36.0it/10.0kit rate:1.3s/it remaining:3:34:05 elapsed:01:20 postfix:loss=8.63",
        ),
    )
    marks = (Mark(words=("levanter",), pattern=r"\blevanter\.\w+", confidence=0.7),)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Levanter]
