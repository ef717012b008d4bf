"""XPU timer's metrics as records of the pipeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta

from lens_core import Collector, hookimpl
from lens_core.plugin_api.diagnosis import pods_of

from .diagnosis.base import AgentOptions, DataCollector
from .diagnosis.plugin import DiagnosisCollector, DiagnosisSettings
from .diagnosis.processes import Owner, find_ranks
from .diagnosis.readers import TIMEOUT_SECONDS, MetricCollector


class XpuTimerSettings(DiagnosisSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of the xpu_timer collector."""

    port: Annotated[
        Annotated[int, Meta(ge=1, le=65535)] | None,
        Meta(description="XPU timer's Prometheus port; XPU_TIMER_PORT if not given"),
    ] = None
    scrape_timeout_seconds: Annotated[float, Meta(gt=0, description="how long a scrape may take")] = TIMEOUT_SECONDS


class XpuTimer(DiagnosisCollector):
    """Fetches XPU timer's samples (kernel latencies, hang flags) from this machine."""

    name = "xpu_timer"
    interval_seconds = MetricCollector.interval_seconds
    Settings = XpuTimerSettings

    @classmethod
    def data_collector(cls, options: AgentOptions) -> DataCollector:
        """The agent's own."""
        return MetricCollector()

    def make_collector(self) -> DataCollector:
        """The collector behind it."""
        return MetricCollector(self.settings.port, self.settings.scrape_timeout_seconds)

    def owner_of(self, content: str) -> Owner | None:
        """The pod that the samples name; else the job whose ranks run here, if there is one alone."""
        pods = pods_of(content)
        if len(pods) == 1:
            return Owner(pod_name=pods.pop())
        owners = {rank.owner for rank in find_ranks()}
        return owners.pop() if len(owners) == 1 else None


@hookimpl
def lens_collectors() -> Sequence[type[Collector]]:
    """Announce the collector."""
    return [XpuTimer]
