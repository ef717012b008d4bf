"""`lens tap`: the records as they pass."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.errors import LensError
from ..model.records import RECORD_KINDS
from ..plugin_api.commands import data_dir_option, json_option
from .client import config_option, daemon_url, find_workload, request_headers, request_json, url_option
from .wording import amount, in_locale, plain

# A heartbeat comes every 15 s; a daemon that says nothing for so long is gone.
SILENCE_SECONDS = 40.0
LONGEST_LINE = 500
_SHOWN_VALUES = 8


@click.command("tap")
@click.option("--pipeline", default="*", help="Only this pipeline; * and ? match.")
@click.option("--workload", default="*", help="Only this workload or pod; * and ? match.")
@click.option(
    "--kind", "kinds", multiple=True, type=click.Choice(list(RECORD_KINDS)), help="Only records of this kind."
)
@click.option("--count", type=click.IntRange(1), help="End after so many records.")
@json_option
@url_option
@data_dir_option
@config_option
def command(
    pipeline: str,
    workload: str,
    kinds: tuple[str, ...],
    count: int | None,
    as_json: bool,
    url: str | None,
    data_dir: Path | None,
) -> None:
    """Print records in the pipelines, after detectors and filters; Ctrl-C ends it.

    It waits for a daemon that restarts. Records that a slow terminal misses are counted on standard error.

    \b
    Examples:
      lens tap
      lens tap --pipeline training --kind event
      lens tap --workload 'llama-*' --kind step_metrics --json | jq '.values.loss'
    """
    address = daemon_url(url, data_dir)
    parameters = [
        ("pipeline", pipeline),
        ("workload", _known_as(address, workload)),
        *(("kind", kind) for kind in kinds),
    ]
    _refuse_unknown_pipeline(address, pipeline)
    left = count
    with contextlib.suppress(KeyboardInterrupt):
        for event, data in _endless(address, parameters):
            if event == "dropped":
                click.echo(f"lens: {data['records']} records went by too quickly to be shown", err=True)
            elif event == "silent" and data["daemons"]:
                missing = ", ".join(data["daemons"])
                click.echo(f"lens: records are missing of daemons that do not answer: {missing}", err=True)
            elif event == "record":
                click.echo(msgspec.json.encode(data) if as_json else line(data))
                left = None if left is None else left - 1
                if left == 0:
                    return


def _known_as(address: str, workload: str) -> str:
    """The uid of a workload that is named; a pattern, and what is not known yet, as it was given."""
    if any(letter in workload for letter in "*?["):
        return workload
    try:
        return find_workload(address, workload)
    except LensError:
        return workload


def _refuse_unknown_pipeline(address: str, pipeline: str) -> None:
    names = [one["name"] for one in request_json("GET", address, "/api/v1/status")["pipelines"]]
    if not any(letter in pipeline for letter in "*?[") and pipeline not in names:
        raise LensError(f"there is no pipeline {pipeline!r}; there are: {', '.join(names)}")


def _endless(address: str, parameters: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    """The events; after a break the next ones. Raises LensError when the daemon refuses."""
    import httpx

    while True:
        try:
            yield from _events(address, parameters)
        except httpx.HTTPError as error:
            click.echo(in_locale(f"lens: {address} does not answer ({error}); retrying …"), err=True)
        time.sleep(1.0)


def _events(address: str, parameters: list[tuple[str, str]]) -> Iterator[tuple[str, Any]]:
    import httpx

    timeout = httpx.Timeout(10.0, read=SILENCE_SECONDS)
    with httpx.stream(
        "GET",
        f"{address}/api/v1/tap",
        params=httpx.QueryParams(tuple(parameters)),
        headers=request_headers(os.environ),
        timeout=timeout,
    ) as response:
        if not response.is_success:
            response.read()
            raise LensError(f"{address} answered {response.status_code}: {response.text[:300]}")
        event = ""
        for text in response.iter_lines():
            name, _, value = text.partition(": ")
            if name == "event":
                event = value
            elif name == "data":
                yield event, msgspec.json.decode(value)


def line(record: dict[str, Any]) -> str:
    """A record in one line."""
    origin = record.get("origin", {})
    whose = origin.get("workload_uid") or origin.get("pod_uid") or origin.get("pod_name") or "–"
    at = record.get("event_time") or record.get("timestamp") or time.time()
    clock = time.strftime("%H:%M:%S", time.localtime(at))
    rank = f"/{origin['rank']}" if origin.get("rank") is not None else ""
    text = f"{clock} {record['pipeline']} {record['record']:12} {whose}{rank}  {_describe_record(record)}"
    return plain(text, LONGEST_LINE)


def _describe_record(record: dict[str, Any]) -> str:
    kind = record["record"]
    if kind == "step_metrics":
        values = list(record["values"].items())
        shown = " ".join(f"{name}={_format_value(value)}" for name, value in values[:_SHOWN_VALUES])
        more = f" and {len(values) - _SHOWN_VALUES} more" if len(values) > _SHOWN_VALUES else ""
        step = record.get("iteration") if record.get("iteration") is not None else record["row_step"]
        return f"#{step} {shown}{more}"
    if kind == "log_line":
        return str(record["text"])
    if kind == "event":
        return f"{record['type']} {'' if record.get('iteration') is None else '#' + str(record['iteration'])}"
    rest = {name: value for name, value in record.items() if name not in ("pipeline", "record", "origin")}
    return msgspec.json.encode(rest).decode()[:300]


def _format_value(value: float | str) -> str:
    return value if isinstance(value, str) else amount(value)
