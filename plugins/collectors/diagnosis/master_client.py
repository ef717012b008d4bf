"""Clients: a DLRover master (or a Lens that answers like one), and a Lens daemon's own route for records."""

from __future__ import annotations

import http.client
import logging
import os
from typing import Any
from urllib.parse import urlsplit

from lens_core import Diagnosis, LensError, Origin, Secret
from lens_core.plugin_api.encoding import encode_envelope
from lens_core.plugin_api.http_answers import is_lens_success

from ...dlrover import MasterConnection, MasterError, Report, Wire, report_to_wire
from ...dlrover.client import DEADLINE_SECONDS, GRPC
from .base import cut_text, get_node_id, get_node_type

logger = logging.getLogger("lens.diagnosis")

_MAX_ERROR_BYTES = 8 * 1024
# A daemon with a database of its own takes some seconds to come up; only the reports wait for it.
_START_SECONDS = 20.0


class MasterClient:
    """Reports to a DLRover master over gRPC or HTTP, without the dlrover package.

    `service` is `grpc` or `http` (else DLROVER_MASTER_SERVICE_TYPE, else grpc). A call takes `timeout_seconds` at most,
    retries included; what sending again cannot fix is not sent again; a report that the master refuses raises.
    """

    def __init__(
        self,
        master_addr: str | None = None,
        node_id: int | None = None,
        node_type: str | None = None,
        *,
        service: str | None = None,
        timeout_seconds: float = DEADLINE_SECONDS,
        job_uid: str | None = None,
    ) -> None:
        address = master_addr or os.environ.get("DLROVER_MASTER_ADDR", "")
        if not address:
            raise LensError("no master: give master_addr, or set DLROVER_MASTER_ADDR to HOST:PORT")
        self._connection = MasterConnection(
            address,
            service=service or os.environ.get("DLROVER_MASTER_SERVICE_TYPE") or GRPC,
            node_id=get_node_id() if node_id is None else node_id,
            node_type=node_type or get_node_type(),
            job_uid=os.environ.get("JOB_UID", "") if job_uid is None else job_uid,
            deadline_seconds=timeout_seconds,
        )

    def report_diagnosis_agent_metrics(self, data: Any) -> None:
        """Send a report: anything with WorkerTrainingMetric's fields. Raises MasterError when it is not taken."""
        self._connection.report(report_to_wire(to_report(data)))

    def report_failures(self, error_data: str, restart_count: int = -1, level: str = "process_error") -> None:
        """Tell the master of a failure. Raises MasterError."""
        text = cut_text(error_data, _MAX_ERROR_BYTES)
        message = Wire("NodeFailure", {"error_data": text, "restart_count": restart_count, "level": level})
        self._connection.report(message)

    def report_heart_beat(self, timestamp: int) -> Wire | None:
        """Say that the node lives; the answer is the action that the master wants. Raises MasterError."""
        return self._connection.get(Wire("HeartBeat", {"timestamp": timestamp}))

    def close(self) -> None:
        """End the connection."""
        self._connection.close()


class LensClient:
    """Reports to a Lens daemon as records; `url` as PRIMUS_LENS_API_BASE_URL has it (`http://host:8080/api/v1`)."""

    def __init__(self, url: str, *, token: Secret | None = None, timeout_seconds: float = DEADLINE_SECONDS) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise LensError(f"{url!r} is not an address of a daemon; write http://HOST:PORT/api/v1")
        self._parts = parts
        self._token = token
        self._timeout_seconds = timeout_seconds

    def report_diagnosis_agent_metrics(self, data: Any) -> None:
        """Send a report. Raises MasterError when the daemon does not take it."""
        report = to_report(data)
        record = Diagnosis(origin=own_origin(), **_record_fields(report))
        headers = {"Content-Type": "application/msgpack"}
        if self._token is not None:
            headers["Authorization"] = f"Bearer {self._token.reveal()}"
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(self._parts.hostname or "", self._parts.port, timeout=self._timeout_seconds)
        try:
            connection.request("POST", f"{self._parts.path.rstrip('/')}/records", encode_envelope([record]), headers)
            response = connection.getresponse()
            body = response.read(2000)
        except (OSError, http.client.HTTPException) as error:
            raise MasterError(getattr(error, "strerror", None) or str(error) or type(error).__name__) from None
        finally:
            connection.close()
        if not is_lens_success(response.status, body):
            raise MasterError(f"the daemon answered {response.status}: {body[:200].decode('utf-8', 'replace')}")


class EmbeddedClient:
    """Reports to a private daemon with a configuration of your own: the one that the hook's embedded mode starts.

    It is started at once, as a child of this process, unless the hook has started it; it ends with this process.
    """

    def __init__(self, config: str) -> None:
        from lens_hook.embedded import EmbeddedDaemon

        self._daemon = EmbeddedDaemon(config)

    def report_diagnosis_agent_metrics(self, data: Any) -> None:
        """Send a report. Raises MasterError when the daemon does not run, or does not take it."""
        url = self._daemon.poll(_START_SECONDS)
        if url is None:
            raise MasterError("the embedded daemon does not run")
        LensClient(url).report_diagnosis_agent_metrics(data)

    def close(self) -> None:
        """Let the daemon deliver and end."""
        self._daemon.stop()


def client_from_environment() -> MasterClient | LensClient | EmbeddedClient | None:
    """The client that the environment names: a master, the embedded daemon, or the one that the hook reports to."""
    if os.environ.get("DLROVER_MASTER_ADDR"):
        return MasterClient()
    config = os.environ.get("LENS_CONFIG")
    if config:
        return EmbeddedClient(config)
    url = os.environ.get("PRIMUS_LENS_API_BASE_URL")
    if not url:
        return None
    token = os.environ.get("PRIMUS_LENS_API_TOKEN")
    return LensClient(url, token=Secret(token) if token else None)


def own_origin() -> Origin:
    """Return the origin of this process, by its environment."""
    get = os.environ.get
    return Origin(
        workload_uid=get("WORKLOAD_UID", ""),
        pod_uid=get("POD_UID", ""),
        pod_name=get("POD_NAME") or get("HOSTNAME", "") or os.uname().nodename,
        namespace=get("POD_NAMESPACE", ""),
    )


def to_report(data: Any) -> Report:
    """The report of anything with WorkerTrainingMetric's fields, its content cut to what masters take."""
    return Report(
        timestamp=int(data.timestamp),
        data_type=str(data.data_type),
        data_content=cut_text(str(data.data_content)),
        node_id=int(data.node_id),
        node_type=str(data.node_type),
        node_rank=int(data.node_rank),
        is_final_result=bool(getattr(data, "is_final_result", False)),
        need_report=bool(getattr(data, "need_report", False)),
    )


def _record_fields(report: Report) -> dict[str, Any]:
    return {
        "data_type": report.data_type,
        "data_content": report.data_content,
        "node_id": report.node_id,
        "node_type": report.node_type,
        "node_rank": report.node_rank,
        "timestamp": float(report.timestamp),
    }
