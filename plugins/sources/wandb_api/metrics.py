"""Metrics of the requests that bring wandb's data, under the names that Primus Lens' dashboards know."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

from lens_core import MetricGroup, SelfMetrics

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class WandbMetrics(MetricGroup):
    """Requests to the wandb routes, and those of the hook."""

    def __init__(self, metrics: SelfMetrics) -> None:
        def define_counter(name: str, documentation: str, *labels: str) -> Counter:
            return Counter(name, documentation, labels, registry=metrics.registry)

        self.requests = define_counter("wandb_requests_total", "Requests.", "type")
        self.request_errors = define_counter("wandb_request_errors_total", "Requests refused.", "type", "error_type")
        self.request_duration = Histogram(
            "wandb_request_duration_seconds", "Time to answer.", ["type"], buckets=_BUCKETS, registry=metrics.registry
        )
        self.metrics_points = define_counter("wandb_metrics_data_points_total", "Points received as metrics.")
        self.logs_points = define_counter("wandb_logs_data_points_total", "Points received as logs.")
