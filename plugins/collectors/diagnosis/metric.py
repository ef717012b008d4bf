"""XPU timer's metrics: its Prometheus text, fetched from this machine."""

from __future__ import annotations

import http.client
import logging
import os
from typing import ClassVar

from lens_core.plugin_api.diagnosis import samples_only

from .base import DataCollector
from .data import DiagnosisDataType

logger = logging.getLogger("lens.diagnosis")

PORT_VARIABLE = "XPU_TIMER_PORT"
TIMEOUT_SECONDS = 3.0
MAX_ANSWER_BYTES = 4 * 1024 * 1024


class MetricCollector(DataCollector):
    """Reports XPU timer's samples from `http://127.0.0.1:XPU_TIMER_PORT/metrics`, without comments."""

    data_type = DiagnosisDataType.XPU_TIMER_METRIC
    what = "XPU metric"
    interval_seconds: ClassVar[float] = 30.0

    def __init__(self, port: int | None = None, timeout_seconds: float = TIMEOUT_SECONDS) -> None:
        super().__init__()
        self._port = port
        self._timeout_seconds = timeout_seconds
        self._is_failing = False

    @property
    def port(self) -> int | None:
        """The port that was given, or XPU_TIMER_PORT; None without a usable one."""
        if self._port is not None:
            return self._port
        value = os.environ.get(PORT_VARIABLE, "").strip()
        return int(value) if value.isdigit() and 0 < int(value) < 65536 else None

    def is_enabled(self) -> bool:
        """Whether XPU timer's port is known."""
        return self.port is not None

    def collect_data(self) -> str:
        """The samples of one scrape; '' when XPU timer does not answer, with a warning the first time."""
        port = self.port
        if port is None:
            return ""
        try:
            text = self.scrape(port)
        except (OSError, http.client.HTTPException) as error:
            level = logging.DEBUG if self._is_failing else logging.WARNING
            logger.log(level, "XPU timer does not answer. port=%d error=%s", port, error or type(error).__name__)
            self._is_failing = True
            return ""
        self._is_failing = False
        return samples_only(text)

    def scrape(self, port: int) -> str:
        """The exporter's text. Raises OSError or HTTPException."""
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=self._timeout_seconds)
        try:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            body = response.read(MAX_ANSWER_BYTES)
        finally:
            connection.close()
        if response.status != 200:
            raise http.client.HTTPException(f"status {response.status}")
        return body.decode("utf-8", "replace")
