"""Settings of the hook: switches and tuning from the environment or from `attach()`, and its identity."""

from __future__ import annotations

import dataclasses
import os
import socket
from collections.abc import Mapping
from typing import Any

from .say import debug

DEFAULT_BASE_URL = "http://primus-lens-telemetry-processor:8080/api/v1"
_TRUE = frozenset({"true", "1", "yes", "on"})
_FALSE = frozenset({"false", "0", "no", "off"})


def _setting(variable: str, default: Any, *, secret: bool = False) -> Any:
    return dataclasses.field(default=default, repr=not secret, metadata={"variable": variable})


@dataclasses.dataclass(frozen=True)
class Settings:
    """Every switch of the hook; each field's metadata names the variable that sets it."""

    enabled: bool = _setting("PRIMUS_LENS_WANDB_HOOK", True)
    trackers: str = _setting("PRIMUS_LENS_TRACKERS", "")
    reporting: bool = _setting("PRIMUS_LENS_WANDB_API_REPORTING", True)
    base_url: str = _setting("PRIMUS_LENS_API_BASE_URL", DEFAULT_BASE_URL)
    token: str = _setting("PRIMUS_LENS_API_TOKEN", "", secret=True)
    proxy: str = _setting("PRIMUS_LENS_PROXY", "", secret=True)
    flush_interval_seconds: float = _setting("PRIMUS_LENS_FLUSH_INTERVAL_SECONDS", 1.0)
    batch_size: int = _setting("PRIMUS_LENS_BATCH_SIZE", 1000)
    queue_bytes: int = _setting("PRIMUS_LENS_QUEUE_BYTES", 16 * 1024 * 1024)
    exit_deadline_seconds: float = _setting("PRIMUS_LENS_EXIT_DEADLINE_SECONDS", 5.0)
    spool_path: str = _setting("PRIMUS_LENS_SPOOL_PATH", "")
    spool_sync_seconds: float = _setting("PRIMUS_LENS_SPOOL_SYNC_SECONDS", 0.0)
    save_local: bool = _setting("PRIMUS_LENS_WANDB_SAVE_LOCAL", True)
    output_path: str = _setting("PRIMUS_LENS_WANDB_OUTPUT_PATH", "")
    enhance_metrics: bool = _setting("PRIMUS_LENS_WANDB_ENHANCE_METRICS", False)
    debug: bool = _setting("PRIMUS_LENS_WANDB_DEBUG", False)
    config: str = _setting("LENS_CONFIG", "")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], options: Mapping[str, Any] | None = None) -> Settings:
        """Settings from the environment; `options` win. A malformed variable leaves its default, with a debug line."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(cls):
            text = environment.get(field.metadata["variable"], "").strip()
            if text:
                values[field.name] = _parsed(field.metadata["variable"], text, field.default)
        values.update(options or {})
        return cls(**values).bounded()

    def follows(self, tracker: str) -> bool:
        """Whether the hook is to listen to this tracker: to all of them, if none is named."""
        named = self.named_trackers()
        return self.enabled and (not named or tracker in named)

    def named_trackers(self) -> frozenset[str]:
        """Return the names in `trackers`, which commas part; empty for all trackers."""
        names = {name.strip().lower() for name in self.trackers.split(",")} - {""}
        return frozenset() if names == {"all"} else frozenset(names)

    def bounded(self) -> Settings:
        """The same settings with every number in a range in which the hook works."""
        return dataclasses.replace(
            self,
            base_url=self.base_url.rstrip("/"),
            flush_interval_seconds=min(max(self.flush_interval_seconds, 0.01), 3600.0),
            batch_size=min(max(self.batch_size, 1), 100_000),
            queue_bytes=max(self.queue_bytes, 64 * 1024),
            spool_sync_seconds=min(max(self.spool_sync_seconds, 0.0), 3600.0),
            exit_deadline_seconds=min(max(self.exit_deadline_seconds, 0.0), 600.0),
        )


def _parsed(variable: str, text: str, default: Any) -> Any:
    if isinstance(default, bool):
        if text.lower() in _TRUE | _FALSE:
            return text.lower() in _TRUE
    elif isinstance(default, (int, float)):
        number = _parse_number(text)
        if number is not None:
            return type(default)(number)
    else:
        return text
    debug(f"{variable} is malformed and ignored; the default is {default}")
    return default


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < 1e15 else None  # also refuses nan and the infinities


def integer(environment: Mapping[str, str], *variables: str) -> int | None:
    """The first of `variables` that is set, as a number; a malformed one is skipped with a debug line."""
    for variable in variables:
        text = environment.get(variable, "").strip()
        if not text:
            continue
        try:
            number = int(text)
        except ValueError:
            debug(f"{variable} is malformed and ignored")
            continue
        if number >= 0:  # -1 is what some launchers say for "no rank"
            return number
    return None


def node_rank(environment: Mapping[str, str]) -> int | None:
    """The node's rank, from whichever launcher says it."""
    return integer(environment, "NODE_RANK", "SLURM_NODEID", "PET_NODE_RANK")


def local_rank(environment: Mapping[str, str]) -> int | None:
    """The rank within the node."""
    return integer(environment, "LOCAL_RANK", "SLURM_LOCALID")


def read_origin(environment: Mapping[str, str]) -> dict[str, Any]:
    """Return the origin of this process (the wire's `origin`): only what is known."""
    origin: dict[str, Any] = {}
    for key, variable in (
        ("workload_uid", "WORKLOAD_UID"),
        ("pod_uid", "POD_UID"),
        ("pod_name", "POD_NAME"),
        ("namespace", "POD_NAMESPACE"),
    ):
        text = _variable_text(environment, variable)
        if text:
            origin[key] = text
    if not any(key in origin for key in ("workload_uid", "pod_uid", "pod_name")):
        origin.update(_slurm_job(environment) or {"pod_name": socket.gethostname() or "localhost"})
    numbers = {
        "rank": integer(environment, "RANK", "SLURM_PROCID"),
        "local_rank": local_rank(environment),
        "node_rank": node_rank(environment),
        "world_size": integer(environment, "WORLD_SIZE", "SLURM_NTASKS"),
    }
    origin.update({key: number for key, number in numbers.items() if number is not None})
    return origin


def _slurm_job(environment: Mapping[str, str]) -> dict[str, Any]:
    """A job of Slurm is a workload, called as squeue and the names of its output files call it: 17, or 17_4."""
    array, task = _variable_text(environment, "SLURM_ARRAY_JOB_ID"), _variable_text(environment, "SLURM_ARRAY_TASK_ID")
    job = f"{array}_{task}" if array and task else _variable_text(environment, "SLURM_JOB_ID")
    if not job:
        return {}
    origin: dict[str, Any] = {
        "workload_uid": f"slurm-{job}",
        "node": _variable_text(environment, "SLURMD_NODENAME") or socket.gethostname(),
    }
    name = _variable_text(environment, "SLURM_JOB_NAME")
    if name:
        origin["labels"] = {"training.kubeflow.org/job-name": name}
    return origin


def _variable_text(environment: Mapping[str, str], variable: str) -> str:
    return environment.get(variable, "").strip()[:500]


def current(options: Mapping[str, Any] | None = None) -> Settings:
    """The settings of this process now."""
    return Settings.from_environment(os.environ, options)
