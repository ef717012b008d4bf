"""The same records for a receiver that knows only upstream's routes (seed 000, appendix A; `/wandb/logs`)."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

from .wire import Line

_UPSTREAM_OK = 2000
_UPSTREAM_REFUSES = frozenset({400, 4001})
# It stores no other ones, and fails on them for ever.
_UPSTREAM_SOURCES = frozenset({"wandb", "log", "tensorflow"})
_TORCH_MODULES = ("deepspeed", "megatron", "transformers", "lightning")


def next_request(origin: bytes, lines: Sequence[Line]) -> tuple[str, bytes | None, list[Line]]:
    """Route, body and used lines of the next request for `lines` (not empty).

    One request takes one evidence record, or all rows of one run. Events have no route there: no body then.
    """
    first = json.loads(lines[0].text)
    who = first.get("origin") or json.loads(origin)
    if first.get("record") == "evidence":
        return "/wandb/detection", _dump(_detection(who, first)), [lines[0]]
    if first.get("record") != "step_metrics":
        return "", None, [lines[0]]
    used: list[Line] = []
    logs: list[dict[str, Any]] = []
    for line in lines:
        record = json.loads(line.text) if line.is_row else {}
        if record.get("run_id") == first["run_id"] and record.get("origin") == first.get("origin"):
            used.append(line)
            logs.append({"step": record["iteration"], "timestamp": record["event_time"], "data": record["values"]})
    source = first["data_source"] if first["data_source"] in _UPSTREAM_SOURCES else "wandb"
    body = {**_identity(who), "source": source, "run_id": first["run_id"], "logs": logs}
    return "/wandb/logs", _dump(body), used


def judge(status: int, body: Any) -> bool | None:
    """Whether upstream took a request (True) or refused it for good (False); None: not known, so it comes again.

    Upstream answers in an envelope whose `meta.code` counts, because many of its errors come with status 200. What is
    no envelope (a proxy's page, a catch-all route) is not upstream.
    """
    if not isinstance(body, dict):
        return None
    meta = body.get("meta")
    code = meta.get("code") if isinstance(meta, dict) else None
    if status == 200 and (code == _UPSTREAM_OK or (code is None and body.get("success") is True)):
        return True
    if code in _UPSTREAM_REFUSES or (status == 400 and set(body) == {"error"}):
        return False
    return None


def _identity(origin: dict[str, Any]) -> dict[str, Any]:
    return {key: origin.get(key, "") for key in ("workload_uid", "pod_uid", "pod_name")}


def _detection(origin: dict[str, Any], record: dict[str, Any]) -> dict[str, Any]:
    facts = dict(record["facts"])
    modules = facts.pop("modules", {})
    pytorch = dict(facts.get("pytorch") or {})
    pytorch["detected_modules"] = {name: name in modules for name in _TORCH_MODULES}
    return {
        "source": "wandb",
        "type": "framework_detection_raw",
        "version": "1.0",
        **_identity(origin),
        "namespace": origin.get("namespace", ""),
        "evidence": {**facts, "pytorch": pytorch, "wrapper_frameworks": {}, "base_frameworks": {}},
        "hints": {"wrapper_frameworks": [], "base_frameworks": [], "possible_frameworks": [], "confidence": "low"},
        "timestamp": record.get("event_time", time.time()),
    }


def _dump(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), allow_nan=False).encode("ascii")
