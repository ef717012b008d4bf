"""XGBoost: `[12]	train-rmse:0.364576	eval-rmse:0.381200`, a round of boosting a line.

The sets have the names of the watch list; a round counts where one of them is called train. Rounds count from 0.
Where versions before 1.3 stop early they print their best round once more.
"""

from __future__ import annotations

from lens_core import Detector, LogFormat, hookimpl

# Measures that fall while a model learns, and some that rise.
_LOSSES = ("rmse", "rmsle", "mae", "mape", "mphe", "logloss", "mlogloss", "error", "merror")
_OTHERS = ("auc", "aucpr", "ndcg", "map")


class XgBoost(Detector):
    """XGBoost."""

    name = "xgboost"
    layer = "base"
    modules = ("xgboost",)
    distributions = ("xgboost",)
    project_keywords = ("xgboost",)
    formats = (
        *(
            LogFormat(
                name=measure,
                words=("train", measure),
                head=rf"(?<!\S)\[(?P<iteration>\d+)\]\s+(?=\S)(?=(?:.{{0,120}}?\s)?train-{measure}:)",
                layout="spaced",
                loss=tuple(f"train-{loss}" for loss in _LOSSES),
                standalone=False,
                example=f"[12]\ttrain-{measure}:0.364576\teval-{measure}:0.381200",
            )
            for measure in (*_LOSSES, *_OTHERS)
        ),
        LogFormat(
            name="best",
            words=("stopping", "best", "iteration"),
            head=r"^Stopping\. Best iteration:\s*$",
            joins="repeats",
            example="Stopping. Best iteration:",
        ),
    )


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [XgBoost]
