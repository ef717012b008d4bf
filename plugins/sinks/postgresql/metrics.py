"""Metrics of what is stored, under the names that Primus Lens' dashboards know."""

from __future__ import annotations

from lens_core import MetricGroup, SelfMetrics

from .sorting import KNOWN_SOURCES


class StoreMetrics(MetricGroup):
    """Rows and points that were stored or not."""

    def __init__(self, metrics: SelfMetrics) -> None:
        self.wandb_points = metrics.seed("wandb_metrics_store_count", "Points stored.")
        self.wandb_points_failed = metrics.seed("wandb_metrics_store_errors", "Points not stored.")
        self.rows = metrics.seed("training_performance_save_count", "Rows saved.", "data_source")
        self.rows_failed = metrics.seed(
            "training_performance_save_errors", "Rows not saved, and why.", "data_source", "reason"
        )
        for source in (*KNOWN_SOURCES, "other"):
            self.rows.inc(0, data_source=source)
            for reason in ("retry", "poisoned"):
                self.rows_failed.inc(0, data_source=source, reason=reason)
