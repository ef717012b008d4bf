"""LightGBM: `[10]	training's binary_logloss: 0.25	valid_1's binary_logloss: 0.29`, an evaluated round a line.

The sets have the names that they were given; `training` is LightGBM's own for the data that it learns from, whose loss
is the headline's. Rounds count from 1. Where it stops early it prints its best round once more.
"""

from __future__ import annotations

from lens_core import Detector, EventPattern, LogFormat, hookimpl

# Measures as they are printed, by the word that each has on its line: those that fall while a model learns, and others.
_LOSSES = {
    "l": ("l1", "l2"),
    "rmse": ("rmse",),
    "mape": ("mape",),
    "quantile": ("quantile",),
    "huber": ("huber",),
    "fair": ("fair",),
    "poisson": ("poisson",),
    "gamma": ("gamma",),
    "tweedie": ("tweedie",),
    "binary_logloss": ("binary_logloss",),
    "binary_error": ("binary_error",),
    "multi_logloss": ("multi_logloss",),
    "multi_error": ("multi_error",),
    "cross_entropy": ("cross_entropy",),
}
_OTHERS = ("auc", "average_precision", "ndcg", "map")


class LightGbm(Detector):
    """LightGBM."""

    name = "lightgbm"
    layer = "base"
    modules = ("lightgbm",)
    distributions = ("lightgbm",)
    project_keywords = ("lightgbm",)
    formats = (
        *(
            LogFormat(
                name=word,
                words=("s", word),
                head=rf"(?<!\S)\[(?P<iteration>\d+)\]\s+(?=\S)(?=.{{0,120}}?\S's {word}[\d@]*:)",
                layout="tabs",
                loss=tuple(f"training's {loss}" for losses in _LOSSES.values() for loss in losses),
                example=f"[10]\ttraining's {measure}: 0.25\tvalid_1's {measure}: 0.29",
            )
            for word, measure in [
                *((word, losses[0]) for word, losses in _LOSSES.items()),
                *((other, other) for other in _OTHERS),
            ]
        ),
        LogFormat(
            name="best",
            words=("early", "best", "iteration", "is"),
            head=r"(?:Early stopping, best|Did not meet early stopping\. Best) iteration is:\s{0,80}$",
            joins="repeats",
            example="Early stopping, best iteration is:",
        ),
    )
    events = (
        EventPattern(
            type="training_started",
            words=("lightgbm", "info", "started", "training"),
            pattern=r"\[LightGBM\] \[Info\] Started training",
        ),
        EventPattern(
            type="training_ended",
            words=("lightgbm", "info", "finished", "training"),
            pattern=r"\[LightGBM\] \[Info\] Finished training",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [LightGbm]
