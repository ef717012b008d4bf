"""The REST API of an MLflow tracking server, as much of it as is read."""

from __future__ import annotations

import asyncio
import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeVar

import httpx
import msgspec

from lens_core import Backoff, LensError
from lens_core.plugin_api.tls import client_context

from .settings import MlflowSettings, login_headers

_API = "/api/2.0/mlflow"
_ATTEMPTS = 3
_RETRIED = (408, 429, 500, 502, 503, 504)
_EXPERIMENTS_PER_PAGE = 1_000
# MLflow stores the infinities as the largest double.
_LARGEST = 1.7976931348623157e308
_Answer = TypeVar("_Answer")


class Point(msgspec.Struct, frozen=True):
    """One value of a metric; `timestamp` in milliseconds."""

    key: str
    value: float
    timestamp: int = 0
    step: int = 0

    @property
    def number(self) -> float:
        """The value as it was logged."""
        return math.copysign(math.inf, self.value) if abs(self.value) >= _LARGEST else self.value

    @property
    def mark(self) -> str:
        """A text that two points have in common if and only if they are equal, NaN included."""
        return f"{self.timestamp} {self.step} {self.value!r}"


class Pair(msgspec.Struct, frozen=True):
    """A parameter or a tag."""

    key: str
    value: str = ""


class RunInfo(msgspec.Struct, frozen=True):
    """The state of a run; times in milliseconds."""

    run_id: str
    experiment_id: str = ""
    run_name: str = ""
    user_id: str = ""
    status: str = ""
    start_time: int | None = None
    end_time: int | None = None
    lifecycle_stage: str = "active"


class RunData(msgspec.Struct, frozen=True):
    """The content of a run; of each metric the latest value."""

    metrics: list[Point] = []
    params: list[Pair] = []
    tags: list[Pair] = []


class Run(msgspec.Struct, frozen=True):
    """A run."""

    info: RunInfo
    data: RunData = msgspec.field(default_factory=RunData)


class RunPage(msgspec.Struct, frozen=True):
    """A page of a listing of runs."""

    runs: list[Run] = []
    next_page_token: str = ""


class PointPage(msgspec.Struct, frozen=True):
    """A page of the history of a metric, by time."""

    metrics: list[Point] = []
    next_page_token: str = ""


class _Experiment(msgspec.Struct, frozen=True):
    experiment_id: str
    name: str = ""


class _ExperimentPage(msgspec.Struct, frozen=True):
    experiments: list[_Experiment] = []
    next_page_token: str = ""


class _OneRun(msgspec.Struct, frozen=True):
    run: Run


class Refused(LensError):
    """The server refuses a single request; others may succeed."""


class Server(Protocol):
    """The questions that are asked of a tracking server. Every method raises LensError."""

    async def experiments(self) -> dict[str, str]:
        """The names of all experiments by id."""
        ...

    async def search_runs(self, experiment_ids: Sequence[str], condition: str, token: str) -> RunPage:
        """A page of the runs that fulfil a condition; `token` says where it begins."""
        ...

    async def find_run(self, run_id: str) -> Run | None:
        """A run, also a deleted one; None when the server has none of this id."""
        ...

    async def history(self, run_id: str, key: str, token: str) -> PointPage:
        """A page of the values of a metric of a run, in the order of their times."""
        ...


class MlflowApi(Server):
    """Asks a server; repeats what may succeed the next time. Every method raises LensError that says what to do."""

    def __init__(self, settings: MlflowSettings, logger: logging.Logger) -> None:
        headers, auth = login_headers(settings, os.environ)
        self._settings = settings
        self._logger = logger
        self._client = httpx.AsyncClient(
            base_url=settings.base_url,
            headers={"Accept": "application/json", **headers},
            auth=auth,
            timeout=settings.request_timeout_seconds,
            verify=client_context(settings.ca_file) if settings.ca_file else True,
        )

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    async def experiments(self) -> dict[str, str]:
        """As Server."""
        found: dict[str, str] = {}
        token = ""
        while True:
            asked: dict[str, Any] = {"max_results": _EXPERIMENTS_PER_PAGE, **({"page_token": token} if token else {})}
            page = await self._ask_server("POST", "/experiments/search", _ExperimentPage, json=asked)
            found.update({one.experiment_id: one.name for one in page.experiments})
            if not page.next_page_token or page.next_page_token == token:
                return found
            token = page.next_page_token

    async def search_runs(self, experiment_ids: Sequence[str], condition: str, token: str) -> RunPage:
        """As Server."""
        asked: dict[str, Any] = {
            "experiment_ids": list(experiment_ids),
            "filter": condition,
            "run_view_type": "ACTIVE_ONLY",
            "max_results": self._settings.runs_per_page,
            "order_by": ["attributes.start_time ASC"],
        }
        if token:
            asked["page_token"] = token
        return await self._ask_server("POST", "/runs/search", RunPage, json=asked)

    async def find_run(self, run_id: str) -> Run | None:
        """As Server."""
        try:
            return (await self._ask_server("GET", "/runs/get", _OneRun, params={"run_id": run_id})).run
        except Refused as error:
            self._logger.debug("A run is not there. run_id=%s answer=%s", run_id, error)
            return None

    async def history(self, run_id: str, key: str, token: str) -> PointPage:
        """As Server."""
        asked = {"run_id": run_id, "metric_key": key, "max_results": str(self._settings.points_per_page)}
        if token:
            asked["page_token"] = token
        return await self._ask_server("GET", "/metrics/get-history", PointPage, params=asked)

    async def _ask_server(
        self, method: str, path: str, kind: type[_Answer], *, json: Any = None, params: Mapping[str, str] | None = None
    ) -> _Answer:
        reason = ""
        backoff = Backoff(0.5, 4.0)
        for attempt in range(_ATTEMPTS):
            if attempt:
                await asyncio.sleep(backoff.next_delay())
            try:
                status, body = await self._read_answer(method, path, json, params)
            except httpx.HTTPError as error:
                reason = f"{type(error).__name__}: {error}"
                continue
            if status == 200:
                return self._decode_answer(path, body, kind)
            reason = f"HTTP {status}: {_message_of(body)}"
            if status not in _RETRIED:
                raise self._refusal(status, path, reason)
        raise LensError(
            f"{self._settings.base_url} does not answer {_API}{path}: {reason}; check `url` and the network"
        )

    async def _read_answer(
        self, method: str, path: str, json: Any, params: Mapping[str, str] | None
    ) -> tuple[int, bytes]:
        """The status and the body of one answer, read no further than the limit. Raises httpx.HTTPError, LensError."""
        limit = self._settings.max_body_bytes
        body = bytearray()
        async with self._client.stream(method, _API + path, json=json, params=params) as response:
            async for piece in response.aiter_bytes():
                body += piece
                if len(body) > limit:
                    raise LensError(
                        f"{self._settings.base_url} answers {_API}{path} with more than max_body_bytes ({limit}); "
                        "make runs_per_page or points_per_page smaller"
                    )
            return response.status_code, bytes(body)

    def _decode_answer(self, path: str, body: bytes, kind: type[_Answer]) -> _Answer:
        try:
            return msgspec.json.decode(body, type=kind, strict=False)  # NaN comes as a text
        except msgspec.DecodeError as error:
            raise LensError(
                f"{self._settings.base_url} answers {_API}{path} with what no MLflow server answers ({error}): "
                "check `url`, and whether a login page is in between"
            ) from None

    def _refusal(self, status: int, path: str, reason: str) -> LensError:
        where = f"{self._settings.base_url} refuses {_API}{path} ({reason})"
        if status in (401, 403):
            return LensError(f"{where}: set `username` and `password`, or `token`; they need to read the experiments")
        if 300 <= status < 400:
            return LensError(f"{where}: it redirects; write the address that it redirects to as `url`")
        if status in (400, 404):
            return Refused(where)
        return LensError(where)


def _message_of(body: bytes) -> str:
    """The message of an error of MLflow, in a line."""
    try:
        said = msgspec.json.decode(body, type=dict[str, Any])
        text = str(said.get("message") or said.get("error_code") or "")
    except msgspec.DecodeError:
        text = body[:200].decode("utf-8", "replace")
    return " ".join(text.split())[:200]
