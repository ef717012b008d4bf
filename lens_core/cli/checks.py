"""Checks of `lens doctor`, from the hook to the database, in the order in which data flows."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import socket
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from ..base.bearer import bearer_header
from ..base.durations import duration
from ..base.errors import LensError
from ..model.queries import PROBE_WORKLOAD
from .client import daemon_address

State = Literal["ok", "warning", "failed", "skipped"]

FULL_SHARE = 0.8
LATE_SECONDS = 60.0
RECENT_LOSS_SECONDS = 900.0
PROBE_SECONDS = 15.0
_CLOCKS_DIFFER_SECONDS = 10.0
LOOK_BELOW = "the cluster, the queues and the sinks below say what is wrong"


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at; `remedy` is a command or a setting that fixes it."""

    step: str
    state: State
    text: str
    remedy: str = ""


def hook(environ: Mapping[str, str]) -> Iterator[Finding]:
    """The hook in this Python environment."""
    from lens_hook import switch

    found = switch.status()
    if environ.get("PRIMUS_LENS_WANDB_HOOK", "").strip().lower() in ("false", "0", "no", "off"):
        yield Finding("hook", "failed", "PRIMUS_LENS_WANDB_HOOK switches it off", "unset PRIMUS_LENS_WANDB_HOOK")
    elif found["enabled"] and found["variables"]:
        yield Finding("hook", "ok", f"armed in every Python process of {found['folder']}")
    elif found["enabled"]:
        remedy = "export WORKLOAD_UID=my-run, or lens run --workload my-run -- COMMAND"
        yield Finding("hook", "warning", "installed, but no variable arms it in this shell", remedy)
    else:
        remedy = "lens hook enable, or lens run -- COMMAND for one command"
        yield Finding("hook", "warning", "does not start with this environment's Python", remedy)
    if importlib.util.find_spec("wandb") is None:
        yield Finding("wandb", "warning", "is not installed here; the hook listens to it", "pip install wandb")
    else:
        yield Finding("wandb", "ok", f"version {importlib.metadata.version('wandb')}")


def target_url(environ: Mapping[str, str], daemon: str) -> str:
    """Return the URL of the daemon that the hook of this shell would send to."""
    return hook_address(environ, daemon).removesuffix("/api/v1").removesuffix("/v1")


def hook_address(environ: Mapping[str, str], daemon: str) -> str:
    """Return the address under which the hook of this shell looks for the routes of the API."""
    return environ.get("PRIMUS_LENS_API_BASE_URL", "").strip().rstrip("/") or f"{daemon}/api/v1"


def network(url: str) -> Iterator[Finding]:
    """Whether the address can be reached at all."""
    remedy = "correct PRIMUS_LENS_API_BASE_URL or --url"
    try:
        parts = urlsplit(daemon_address(url))
    except LensError as error:
        yield Finding("network", "failed", str(error), remedy)
        return
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    try:
        socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        yield Finding("network", "failed", f"the name {host!r} has no address: {error}", remedy)
        return
    try:
        with socket.create_connection((host, port), timeout=3):
            yield Finding("network", "ok", f"{host}:{port} takes connections")
    except OSError as error:
        local = host in ("localhost", "::1") or host.startswith("127.")
        remedy = "lens up" if local else f"start the daemon there, or open port {port} in the firewall or NetworkPolicy"
        yield Finding("network", "failed", f"{host}:{port} takes no connection: {error}", remedy)


def daemon(url: str, headers: Mapping[str, str]) -> tuple[list[Finding], dict[str, Any] | None]:
    """Whether a daemon answers, takes data, and lets us ask; its status if it does."""
    import httpx

    found: list[Finding] = []
    try:
        ready = httpx.get(f"{url}/readyz", timeout=10)
        status = httpx.get(f"{url}/api/v1/status", headers=dict(headers), timeout=10)
    except httpx.HTTPError as error:
        return [Finding("daemon", "failed", f"{url} does not answer: {error}", "lens up")], None
    if ready.status_code not in (200, 503):
        text = f"what answers at {url} is no Lens (status {ready.status_code})"
        return [Finding("daemon", "failed", text, "correct PRIMUS_LENS_API_BASE_URL or --url")], None
    if ready.status_code == 200:
        found.append(Finding("daemon", "ok", f"{url} is ready"))
    else:
        found.append(Finding("daemon", "failed", f"{url} takes nothing now: {ready.text.strip()}", LOOK_BELOW))
    found += clocks(ready.headers.get("date", ""), time.time())
    if status.status_code in (401, 403):
        remedy = "on its machine: lens token create --role read NAME; here: export LENS_TOKEN=…"
        found.append(Finding("token", "failed", f"it lets nobody ask without a token ({status.status_code})", remedy))
        return found, None
    if not status.is_success:
        found.append(Finding("daemon", "failed", f"its status is {status.status_code}: {status.text[:200]}", "its log"))
        return found, None
    return found, status.json()


def clocks(told: str, now: float) -> Iterator[Finding]:
    """Whether the daemon's clock, as its answer tells it, and this machine's agree."""
    try:
        theirs = parsedate_to_datetime(told).timestamp()
    except (TypeError, ValueError):
        return
    ahead = now - theirs
    if abs(ahead) > _CLOCKS_DIFFER_SECONDS:
        which = "ahead of" if ahead > 0 else "behind"
        text = (
            f"this machine's is {duration(abs(ahead))} {which} the daemon's: times of rows and events are off by that"
        )
        yield Finding("clock", "warning", text, "set both by NTP (chronyd, systemd-timesyncd)")


def sending(address: str, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether what the hook sends to an address arrives, and its token may send; an empty list stores nothing."""
    import httpx

    try:
        headers = bearer_header(environ, "PRIMUS_LENS_API_TOKEN")
    except LensError as error:
        yield Finding("sending", "failed", str(error), "export PRIMUS_LENS_API_TOKEN=…")
        return
    body = {"workload_uid": PROBE_WORKLOAD, "metrics": []}
    try:
        answer = httpx.post(f"{address}/wandb/metrics", json=body, headers=headers, timeout=10)
    except httpx.HTTPError as error:
        yield Finding("sending", "failed", f"broke off: {error}", "try again; a proxy may be in between")
        return
    if answer.status_code in (401, 403):
        remedy = "on its machine: lens token create --role ingest NAME; here: export PRIMUS_LENS_API_TOKEN=…"
        yield Finding("sending", "failed", f"the daemon takes nothing from here ({answer.status_code})", remedy)
    elif answer.is_success:
        yield Finding("sending", "ok", "the daemon takes data from here")
    elif answer.status_code == 404:
        text = f"the hook sends to {address}/wandb/metrics, which is not there (404): it loses everything"
        remedy = f"export PRIMUS_LENS_API_BASE_URL={address.removesuffix('/v1').removesuffix('/api')}/api/v1"
        yield Finding("sending", "failed", text, remedy)
    else:
        yield Finding("sending", "failed", f"answered {answer.status_code}: {answer.text[:200]}", "the daemon's log")


def sources(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Check what the sources received."""
    for source in status["sources"]:
        if source["state"] == "failed":
            yield Finding(f"source {source['name']}", "failed", source["last_error"], f"lens plugins {source['type']}")
        yield from _refusals(source)
    total = sum(source["received"] for source in status["sources"])
    if total:
        yield Finding("sources", "ok", f"{total:,} records came since the start")
    else:
        yield Finding("sources", "warning", "nothing has come since the start", "lens run --workload my-run -- COMMAND")


def _refusals(source: Mapping[str, Any]) -> Iterator[Finding]:
    """Items that a source refused: those that it had no room for come again, wrong ones do not."""
    step = f"source {source['name']}"
    refused = {reason: amount for reason, amount in source["rejected"].items() if amount}
    overloaded = refused.pop("overloaded", 0)
    if overloaded:
        why = source.get("last_refusal") or "no room"
        text = (
            f"refused {overloaded:,} items (overloaded), the last ones with: {why}; senders that keep them come again"
        )
        yield Finding(step, "warning", text, LOOK_BELOW)
    if refused:
        told = ", ".join(f"{amount:,} {reason}" for reason, amount in refused.items())
        yield Finding(step, "warning", f"refused: {told}", "the answers to the senders say which and why")


def pipelines(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Check the backlog and the deliveries of each pipeline."""
    remedy_of_sinks = connect_command(status)
    for pipeline in status["pipelines"]:
        spool = pipeline["spool"]
        share = spool.get("bytes", 0) / spool["max_bytes"] if spool.get("max_bytes") else 0.0
        if share > FULL_SHARE:
            remedy = "fix the sink below, or raise spool.max_bytes"
            yield Finding(f"pipeline {pipeline['name']}", "warning", f"its queue is {share:.0%} full", remedy)
        if pipeline["processor_errors"]:
            told = f"detectors failed {pipeline['processor_errors']:,} times: {pipeline['last_processor_error']}"
            yield Finding(f"pipeline {pipeline['name']}", "warning", told, "lens plugins; disable the one that fails")
        yield from _losses(f"pipeline {pipeline['name']}", pipeline["ledger"])
        for sink in pipeline["sinks"]:
            yield from _sink(f"sink {pipeline['name']}/{sink['name']}", sink, remedy_of_sinks)


def connect_command(status: Mapping[str, Any]) -> str:
    """The command that tries the components of a daemon's configuration one by one."""
    file = status["configuration"]
    return "see the log of `lens up`" if file == "built-in" else f"lens validate --connect {file}"


def _sink(step: str, sink: Mapping[str, Any], remedy: str) -> Iterator[Finding]:
    waits = f"{sink['pending_records']:,} records wait"
    if sink["state"] in ("failing", "retrying"):
        yield Finding(step, "failed", f"{sink['last_error']} ({waits})", remedy)
    elif sink["lag_seconds"] > LATE_SECONDS:
        yield Finding(
            step, "warning", f"{sink['lag_seconds']:.0f} s behind; {waits}", "lens top shows whether it catches up"
        )
    else:
        yield Finding(step, "ok", f"{sink['ledger']['delivered']:,} records delivered, {waits}")
    yield from _losses(step, sink["ledger"])
    if sink["dead_letters"]:
        told = f"{sink['dead_letters']:,} records were refused for good"
        if reason := sink.get("dead_letter_reason"):
            told += f", the newest because: {reason}"
        yield Finding(step, "warning", told, f"lens replay --sink {sink['name']}, once the reason is fixed")


def _losses(step: str, ledger: Mapping[str, Any]) -> Iterator[Finding]:
    """Records that nobody can bring back; a loss within the last minutes is a failure, an older one a warning."""
    dropped = {reason: amount for reason, amount in ledger["dropped"].items() if amount}
    if ledger.get("discarded"):
        dropped["discarded dead letters"] = ledger["discarded"]
    if not dropped:
        return
    age = time.time() - (ledger.get("last_loss_at") or 0.0)
    told = ", ".join(f"{amount:,} {reason}" for reason, amount in dropped.items())
    text = f"records were lost since the start: {told}; the last {duration(max(0.0, age))} ago"
    remedy = "let this sink catch up, raise spool.max_bytes, or set `required: true`, which refuses instead of losing"
    if set(dropped) == {"discarded dead letters"}:
        remedy = f"raise spool.max_dead_letter_bytes; lens replay --sink {step.rpartition('/')[2]}"
    yield Finding(step, "failed" if age < RECENT_LOSS_SECONDS else "warning", text, remedy)


def plugins(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Plugins that cannot be used, and why."""
    for plugin in status["plugins"]:
        if plugin["state"] not in ("loaded", "disabled"):
            yield Finding(f"plugin {plugin['name']}", "warning", plugin["state"], plugin["reason"])
        for text in plugin["deprecations"]:
            remedy = f"a newer version of {plugin['distribution']}, before Lens' next major version"
            yield Finding(f"plugin {plugin['name']}", "warning", f"uses {text}", remedy)


def store(url: str, headers: Mapping[str, str], status: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the database answers."""
    import httpx

    if status["store"] is None:
        yield Finding("store", "warning", "no sink answers queries", "sinks: {store: {type: postgresql}}")
        return
    began = time.perf_counter()
    try:
        answer = httpx.get(f"{url}/api/v1/overview", params={"limit": 1}, headers=dict(headers), timeout=30)
    except httpx.HTTPError as error:
        yield Finding("store", "failed", f"the query broke off: {error}", "the daemon's log")
        return
    if not answer.is_success:
        text = answer.json().get("message", "") if "json" in answer.headers.get("content-type", "") else answer.text
        yield Finding(
            "store", "failed", f"{answer.status_code}: {text[:200]}", f"start the database; {connect_command(status)}"
        )
        return
    took = (time.perf_counter() - began) * 1000
    yield Finding("store", "ok", f"answers in {took:.0f} ms and knows {answer.json()['total_count']} workloads")


def probe(url: str, headers: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """One row, sent as the hook does and asked for until it is there."""
    import httpx

    sent_with = bearer_header(environ, "PRIMUS_LENS_API_TOKEN") or dict(headers)
    step = time.time_ns() // 1_000_000
    entry = {"step": step, "timestamp": step / 1000, "data": {"probe": 1.0}}
    run_id = f"{socket.gethostname()}-{os.getpid()}"
    body = {"workload_uid": PROBE_WORKLOAD, "run_id": run_id, "logs": [entry]}
    began = time.monotonic()
    try:
        httpx.post(f"{url}/api/v1/wandb/logs", json=body, headers=sent_with, timeout=10).raise_for_status()
        while time.monotonic() - began < PROBE_SECONDS:
            asked = {"metrics": "probe", "run_id": run_id}
            path = f"{url}/api/v1/workloads/{PROBE_WORKLOAD}/metrics/data"
            answer = httpx.get(path, params=asked, headers=dict(headers), timeout=10).raise_for_status()
            if any(point["iteration"] == step for point in answer.json()["data"]):
                took = (time.monotonic() - began) * 1000
                yield Finding("probe", "ok", f"a row went from here to the database and back in {took:.0f} ms")
                return
            time.sleep(0.05)
    except httpx.HTTPError as error:
        yield Finding("probe", "failed", f"a row could not be sent or asked for: {error}", "the findings above")
        return
    yield Finding("probe", "failed", f"a row did not come out within {PROBE_SECONDS:.0f} s", "the sinks above")
