"""The history of chosen runs as training rows: a cursor by step per run, the last step once more each time.

The request is the `HistoryPage` of W&B's public clients (a page is a list of JSON texts, one a row). It is sent
without them: since 0.31 theirs goes through a native library that reads Parquet exports instead.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import httpx
import msgspec

from lens_core import Backoff, LensError, Origin, StepMetrics

from .figures import Access, RunFacts, WandbCloudSettings, read_object

MAX_ROWS = 100_000
_ATTEMPTS = 4
_RETRIED = (408, 429, 500, 502, 503, 504)
_NOT_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}

_QUERY = """query HistoryPage($entity: String!, $project: String!, $run: String!, $minStep: Int64!, $maxStep: Int64!,
$pageSize: Int!) { project(name: $project, entityName: $entity) { run(name: $run) {
history(minStep: $minStep, maxStep: $maxStep, samples: $pageSize) } } }"""


class History:
    """Chooses runs while they are listed, then fetches what is new of each.

    `cursors` is the file that says how far each run was stored; what was fetched now goes to a file beside it, which
    takes its place when the rows are stored (`remember`).
    """

    def __init__(self, settings: WandbCloudSettings, cursors: Path) -> None:
        self._settings = settings
        self._path = cursors
        self._chosen: dict[str, RunFacts] = {}

    def consider(self, run: RunFacts) -> None:
        """Choose a run if a pattern matches its name or id."""
        if any(fnmatchcase(text, pattern) for pattern in self._settings.history_runs for text in (run.name, run.id)):
            self._chosen[run.id] = run

    def fetch_rows(self, access: Access) -> list[StepMetrics]:
        """Fetch the new rows of the chosen runs, those that lag most first; raises LensError."""
        if not self._chosen:
            return []
        cursors = read_cursors(self._path)
        found: list[StepMetrics] = []
        # Those asked longest ago first, so that all get their turn.
        turns = sorted(self._chosen, key=lambda run_id: cursors.get(run_id, (0, 0.0))[1])
        with httpx.Client(timeout=self._settings.request_timeout_seconds) as client:
            for run_id in turns[: self._settings.history_runs_at_once]:
                step = cursors.get(run_id, (0, 0.0))[0]
                for row in self._new_rows(client, access, self._chosen[run_id], step):
                    found.append(row)
                    step = max(step, row.row_step)
                    if len(found) >= MAX_ROWS:
                        break
                cursors[run_id] = (step, time.time())
                if len(found) >= MAX_ROWS:
                    break
        self._path.parent.mkdir(parents=True, exist_ok=True)
        _pending(self._path).write_bytes(msgspec.json.encode(cursors))
        return found

    def _new_rows(self, client: httpx.Client, access: Access, run: RunFacts, first: int) -> Iterator[StepMetrics]:
        size = self._settings.history_page_size
        while True:
            page = fetch_page(client, access, run.id, first, size)
            for text in page:
                row = self._parse_row(access, run, read_object(text))
                if row is not None:
                    yield row
            steps = [step for text in page if isinstance(step := read_object(text).get("_step"), int)]
            # A page has as many rows as asked for, or it is the last; the steps of a run may have gaps.
            if len(page) < size or not steps or max(steps) < first:
                return
            first = max(steps) + 1

    def _parse_row(self, access: Access, run: RunFacts, content: Any) -> StepMetrics | None:
        step = content.get("_step")
        if not isinstance(step, int) or isinstance(step, bool):
            return None
        values = {
            name: number for name, value in content.items() if (number := self._parse_value(name, value)) is not None
        }
        if not values:
            return None
        stamp = content.get("_timestamp")
        at = float(stamp) if isinstance(stamp, (int, float)) else None
        return StepMetrics(
            origin=Origin(workload_uid=f"{access.path}/{run.id}"),
            data_source="wandb",
            echo_of="wandb",
            run_id=run.id,
            row_step=step,
            values=values,
            event_time=at,
            # The same row fetched again has the same number, and so changes nothing.
            sequence=int(at * 1e6) if at is not None else step,
        )

    def _parse_value(self, name: str, value: Any) -> float | None:
        keys = self._settings.history_keys
        if name.startswith("_") or (keys and name not in keys):
            return None
        if isinstance(value, str):
            return _NOT_FINITE.get(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return None
        return float(value)


def fetch_page(client: httpx.Client, access: Access, run_id: str, first: int, size: int) -> list[Any]:
    """Rows of a run from step `first` on; retried where that helps. Raises LensError."""
    variables = {
        "entity": access.entity,
        "project": access.project,
        "run": run_id,
        "minStep": first,
        "maxStep": 2**53,
        "pageSize": size,
    }
    body = {"query": _QUERY, "variables": variables}
    reason = ""
    backoff = Backoff(0.5, 8.0)
    for attempt in range(_ATTEMPTS):
        if attempt:
            time.sleep(backoff.next_delay())
        try:
            response = client.post(f"{access.base_url}/graphql", json=body, auth=("api", access.api_key.reveal()))
        except httpx.HTTPError as error:
            reason = f"{type(error).__name__}: {error}"
            continue
        if response.status_code == 200:
            return _page_of(response.content, access, run_id)
        reason = f"HTTP {response.status_code}"
        if response.status_code in (401, 403):
            raise LensError(f"{access.base_url} refused the API key ({reason})")
        if response.status_code not in _RETRIED:
            break
    raise LensError(f"{access.base_url}: the history of run {run_id} cannot be read: {reason}")


def _page_of(content: bytes, access: Access, run_id: str) -> list[Any]:
    data = read_object(read_object(content).get("data"))
    run = read_object(read_object(data.get("project")).get("run"))
    page = run.get("history")
    if not isinstance(page, list):
        raise LensError(f"{access.base_url}: run {run_id} has no history that this key may see")
    return page


def read_cursors(path: Path) -> dict[str, tuple[int, float]]:
    """Per run the step that was stored last and when it was asked for; empty when there is no file yet."""
    if not path.exists():
        return {}
    return msgspec.json.decode(path.read_bytes(), type=dict[str, tuple[int, float]])


def remember(path: Path) -> None:
    """Mark the last fetched rows as stored, and continue after them."""
    if _pending(path).exists():
        _pending(path).replace(path)


def _pending(path: Path) -> Path:
    return path.with_suffix(".fetched")
