"""Further checks of `lens doctor`: one for each symptom of docs/troubleshooting.md."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any

from .checks import Finding
from .wording import busy_text, memory_text

SLOW_QUERY_SECONDS = 2.0
_SHOWN = 5
_HELD_LATELY_SECONDS = 3600.0


def reporting(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether this shell's variables let the hook report at all, and whether anything else stands in its place."""
    if environ.get("PRIMUS_LENS_WANDB_API_REPORTING", "").strip().lower() in ("false", "0", "no", "off"):
        remedy = "unset PRIMUS_LENS_WANDB_API_REPORTING"
        yield Finding("reporting", "failed", "PRIMUS_LENS_WANDB_API_REPORTING switches it off", remedy)
    if environ.get("WANDB_MODE", "").strip().lower() == "disabled":
        text = "WANDB_MODE=disabled: wandb itself keeps nothing; Lens sees the rows all the same"
        yield Finding("reporting", "ok", text)


def master(environ: Mapping[str, str]) -> Iterator[Finding]:
    """Whether the DLRover master to which agents of this shell report can be reached, if one is named."""
    address = environ.get("DLROVER_MASTER_ADDR", "").strip()
    if not address:
        return
    host, _, port = address.removeprefix("http://").rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=3):
            yield Finding("master", "ok", f"{address} takes connections")
    except (OSError, ValueError) as error:
        remedy = "correct DLROVER_MASTER_ADDR (HOST:PORT), or unset it: without a master agents only say so once"
        yield Finding("master", "warning", f"{address} takes no connection, so reports are lost: {error}", remedy)


def identity(url: str, headers: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    """Check which identity this shell's rows would have, and whether the daemon knows the workload of that pod."""
    import httpx
    from lens_hook.settings import read_origin

    origin = read_origin(environ)
    if "workload_uid" in origin:
        yield Finding("identity", "ok", f"rows of this shell belong to the workload {origin['workload_uid']}")
        return
    pod = origin.get("pod_name", "this pod")
    named = bool(environ.get("POD_NAME") or environ.get("POD_UID"))
    try:
        answer = httpx.get(f"{url}/pods/workload/cache", headers=dict(headers), timeout=10)
        known: Any = answer.json() if answer.is_success else {}
    except (httpx.HTTPError, ValueError) as error:
        yield Finding("identity", "warning", f"the directory cannot be asked: {error}", "lens status")
        return
    workloads = known.get(pod) or []
    if workloads:
        yield Finding("identity", "ok", f"the pod {pod} belongs to {', '.join(name for name, _ in workloads[:_SHOWN])}")
    elif named:
        text = f"the directory does not know the pod {pod}; rows are stored under its name and found once it does"
        yield Finding("identity", "warning", text, "collectors: {pods: {type: kubernetes}}; or export WORKLOAD_UID")
    else:
        text = f"rows of this shell would be stored under the host's name, {pod}; WORKLOAD_UID=my-run names them"
        yield Finding("identity", "warning" if _in_cluster(environ) else "ok", text, "export WORKLOAD_UID=my-run")


def _in_cluster(environ: Mapping[str, str]) -> bool:
    """Whether this shell is in a pod: there a host's name says nothing."""
    return bool(environ.get("KUBERNETES_SERVICE_HOST"))


def silent(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Sources that nothing has come to, collectors that found nothing, and what no sink takes."""
    collectors, analyzers = (
        {
            component["name"]
            for plugin in status["plugins"]
            for component in plugin["components"]
            if component["kind"] == kind
        }
        for kind in ("collector", "analyzer")
    )
    for source in status["sources"]:
        step = f"source {source['name']}"
        if source["type"] in collectors:
            if not source["received"] and source["state"] != "failed":
                remedy = f"lens collect {source['name']} --config FILE --verbose names what has no data"
                yield Finding(f"collector {source['name']}", "warning", "has found nothing so far", remedy)
        elif source["type"] in analyzers:  # most of the time there is nothing to find
            continue
        elif not source["received"]:
            remedy = _senders(source["type"])
            yield Finding(step, "ok", f"nothing has come here since the start ({remedy})")
        if source["received"] and source["notice"]:
            remedy = "lens graph FILE; a sink that takes them, such as prometheus for series"
            yield Finding(step, "warning", f"{source['received']:,} records came, but {source['notice']}", remedy)
        elif source["filtered"]:
            text = f"{source['filtered']:,} records were filtered before they reached a pipeline"
            yield Finding(step, "warning", text, "the source's settings")


def other_daemons(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether all daemons of the cluster answer and own all partitions, if this one is of a cluster."""
    shared = status.get("shared")
    if shared is None:
        return
    if outages := {one["outage"] for one in shared["streams"] if one.get("outage")}:  # who is silent is not known then
        text = "; ".join(sorted(outages))
        yield Finding("cluster", "failed", text, "the NATS servers, and the way to them from here")
        return
    if shared.get("silent"):
        text = f"daemons that do not answer: {', '.join(shared['silent'])}"
        yield Finding("cluster", "failed", text, "their logs; lens cluster status")
    owned = sum(name.startswith("partition.") for name in shared["holders"])
    if owned < shared["partitions"]:
        text = f"{shared['partitions'] - owned} of {shared['partitions']} partitions are owned by nobody"
        yield Finding("cluster", "warning", text, "wait for a lease to end; then lens cluster status")
    elif not shared.get("silent"):
        yield Finding("cluster", "ok", f"{len(shared['members'])} daemons answer and own all partitions")


def _senders(kind: str) -> str:
    ways = {
        "logs": "send a line with lens run, or see docs/logs.md for Fluent Bit and Vector",
        "remote_write": "the sender's remote_write.url ends in /prometheus or /api/v1/write",
        "wandb_api": "the hook or the exporter sends to /api/v1",
    }
    return ways.get(kind, "no sender was seen")


def directory(url: str, headers: Mapping[str, str], status: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the directory knows pods and devices, for those who send what must be attached to them."""
    import httpx

    wanting = {source["type"] for source in status["sources"] if source["received"]} & {"remote_write", "logs"}
    if not wanting:
        return
    try:
        workloads = httpx.get(f"{url}/pods/workload/cache", headers=dict(headers), timeout=10).raise_for_status().json()
        devices = httpx.get(f"{url}/pods/cache", headers=dict(headers), timeout=10).raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        yield Finding("directory", "warning", f"cannot be asked: {error}", "lens status")
        return
    if not workloads and "remote_write" not in wanting:
        yield Finding("directory", "ok", "knows no pod; lines that name their workload need none")
    elif not workloads:
        remedy = "collectors: {pods: {type: kubernetes}}, or PUT /api/v1/directory"
        yield Finding("directory", "warning", f"knows no pod, so {', '.join(sorted(wanting))} get no workload", remedy)
    elif "remote_write" in wanting and not devices:
        text = f"knows {len(workloads)} pods but no device, so series of devices get no pod"
        yield Finding("directory", "warning", text, "on each node: collectors: {devices: {type: pod_resources}}")
    else:
        yield Finding("directory", "ok", f"knows {len(workloads)} pods, and the devices of {len(devices)} nodes")


def drops(url: str, headers: Mapping[str, str], status: Mapping[str, Any]) -> Iterator[Finding]:
    """The samples that remote write dropped, negative values above all, and the form in which it runs."""
    import httpx

    if not any(source["type"] == "remote_write" for source in status["sources"]):
        return
    try:
        answer = httpx.get(f"{url}/api/v1/remote-write/drops", headers=dict(headers), timeout=10)
        found = answer.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        yield Finding("remote write", "warning", f"its drops cannot be asked for: {error}", "lens status")
        return
    if found.get("form") == "interpreted":
        remedy = "which a wheel for this platform has, or an installation with a C compiler"
        yield Finding("remote write", "ok", f"runs interpreted; large loads want the compiled form, {remedy}")
    elif found.get("form") == "compiled":
        yield Finding("remote write", "ok", "runs compiled")
    if found["total"]:
        told = ", ".join(f"{count:,} {reason}" for reason, count in found["by_reason"].items())
        names = dict.fromkeys(entry["metric_name"] for entry in found["recent"])
        text = f"dropped samples: {told}; lately {', '.join([*names][:_SHOWN])}"
        yield Finding("remote write", "warning", text, f"curl {url}/api/v1/remote-write/drops; docs/remote_write.md")


def event_loop(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the daemon's event loop was held up lately, and by which code."""
    held = status.get("event_loop") or {"last": []}
    last = [hold for hold in held["last"] if time.time() - hold["began_at"] < _HELD_LATELY_SECONDS]
    if not last:
        return
    worst = max(last, key=lambda hold: float(hold["seconds"]))
    stack = " <- ".join(f"{frame['module']}.{frame['function']}:{frame['line']}" for frame in worst["stack"][:_SHOWN])
    text = (
        f"was held {len(last)} times in the last hour, up to {worst['seconds']:.1f} s: {stack or 'no stack was taken'}"
    )
    for one in status.get("blockers", []):
        text = f"plugin {one['distribution']}: {one['function']} blocked it for {one['longest_seconds']:.1f} s; " + text
    yield Finding(
        "event loop", "warning", text, "lens plugins names the distribution of a module; the log has all frames"
    )


def plugins_at_work(status: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether a component makes the daemon's memory grow, or its process had to be replaced."""
    for one in status.get("memory_growth", []):
        remedy = "restart the daemon; isolate: true gives it a process of its own; tell the plugin's author"
        yield Finding("memory", "warning", memory_text(one), remedy)
    for one in status.get("busy_threads", []):
        if time.time() - one["last_at"] < _HELD_LATELY_SECONDS:
            remedy = "isolate: true gives it a process of its own; tell the plugin's author"
            yield Finding("threads", "warning", busy_text(one), remedy)
    for one in status.get("processes", []):
        if one["restarts"]:
            text = f"the process of {one['component']} was replaced {one['restarts']} times"
            yield Finding("isolation", "warning", text, "the daemon's log says why each of them ended")


def latency(findings: list[Finding], seconds: float) -> Iterator[Finding]:
    """Whether the store's answer took long; `findings` are those that the store gave, within `seconds`."""
    if seconds > SLOW_QUERY_SECONDS and any(found.step == "store" and found.state == "ok" for found in findings):
        text = f"took {seconds:.1f} s to answer a small question"
        yield Finding("latency", "warning", text, "lens top for queues; lens db stats for sizes; lens db vacuum")
