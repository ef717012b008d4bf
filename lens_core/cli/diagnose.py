"""`lens diagnose`: is it hung, and what is it doing; of processes on this machine, or of a workload."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import msgspec

from ..base.errors import LensError
from ..plugin_api.commands import data_dir_option, json_option
from .client import config_option, daemon_url, find_workload, request_json, url_option
from .wording import plain, print_text

_COLOURS = {"yes": "red", "no": "green", "unknown": "yellow"}
_SAMPLES = 3
_SHOWN_FRAMES = 12


@click.command("diagnose")
@click.option("--pid", "pids", type=int, multiple=True, help="A process on this machine, or the launcher of several.")
@click.option("--workload", help="A workload, by uid or name; queries the daemon.")
@click.option(
    "--seconds", type=click.FloatRange(0.5, 600), default=4.0, show_default=True, help="How long to watch processes."
)
@json_option
@url_option
@data_dir_option
@config_option
def command(
    pids: tuple[int, ...], workload: str | None, seconds: float, as_json: bool, url: str | None, data_dir: Path | None
) -> None:
    """Say whether a training hangs, which rank the others wait for, and where each rank stands.

    \b
    Examples:
      lens diagnose                        all ranks that run on this machine
      lens diagnose --pid 4711             one process, or all ranks of a launcher
      lens diagnose --workload my-job      from what all nodes have reported

    Local processes are looked at several times; ranks that did not move within --seconds stand still, and hang only
    if no step takes that long. Needs py-spy: pip install "lens-agent[stacks]".
    """
    if workload and pids:
        raise click.UsageError("give --pid or --workload, not both")
    if workload:
        address = daemon_url(url, data_dir)
        path = f"/api/v1/workloads/{quote(find_workload(address, workload))}"
        answer = request_json("GET", address, f"{path}/diagnosis")
        answer["verdict"] = request_json("GET", address, f"{path}/verdict")
    else:
        answer = asyncio.run(_local(pids, seconds))
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
    else:
        _print_answer(answer, local=not workload)


async def _local(pids: Sequence[int], seconds: float) -> dict[str, Any]:
    """Look at processes through the installed stacks collector, with the rules of the daemon on a shorter time."""
    from ..diagnosis import Facts, Limits, decode_report, judge_hang, merge_stacks
    from ..http.diagnosis import newest_stacks

    diagnoses = []
    for number in range(_SAMPLES):
        if number:
            await asyncio.sleep(seconds / (_SAMPLES - 1))
        diagnoses += await _sample(pids)
    found = [rank for diagnosis in diagnoses[-1:] for rank in decode_report(diagnosis.data_content).ranks]
    errors = [f"rank {rank.name}: {rank.error}" for rank in found if rank.error]
    if not [rank for rank in found if rank.frames]:
        raise LensError("; ".join(errors) or "no rank runs on this machine; name processes with --pid")
    limits = Limits(stack_samples=_SAMPLES, stack_confirm_seconds=min(40.0, 0.9 * seconds))
    verdict = judge_hang(Facts(now=time.time(), diagnoses=diagnoses), limits)
    return {
        "watched_seconds": round(diagnoses[-1].timestamp - diagnoses[0].timestamp, 1),
        "hang": msgspec.to_builtins(verdict),
        "stacks": [group.as_json() for group in merge_stacks(newest_stacks(diagnoses))],
        "errors": errors,
    }


async def _sample(pids: Sequence[int]) -> list[Any]:
    from ..base.self_metrics import SelfMetrics
    from ..plugin_api.components import Context, Partial
    from ..plugin_host.host import PluginHost

    kind = PluginHost.load().collector("stacks")
    settings = msgspec.convert({"pids": list(pids)}, kind.Settings)
    with tempfile.TemporaryDirectory() as folder:
        logger = logging.getLogger("lens.diagnose")
        collector = kind(settings, Context(name="stacks", logger=logger, data_dir=Path(folder), metrics=SelfMetrics()))
        await collector.check()
        found = await collector.collect()
        return list(found.records if isinstance(found, Partial) else found)


def _print_answer(answer: dict[str, Any], *, local: bool) -> None:
    hang = answer["hang"]
    verdict = answer.get("verdict")
    if verdict and verdict["cause"]:
        print_text(click.style(plain(verdict["summary"], 400), bold=True))
    title = {"yes": "stands still" if local else "hung", "no": "not hung", "unknown": "unknown whether hung"}
    print_text(click.style(title[hang["verdict"]], fg=_COLOURS[hang["verdict"]], bold=True) + f": {hang['reason']}")
    if local:
        print_text(f"watched for {answer['watched_seconds']:g} s")
    elif hang["since"]:
        print_text(f"since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(hang['since'] / 1000))}")
    if hang["ranks"]:
        print_text(click.style(f"the others wait for: rank {', '.join(hang['ranks'])}", bold=True))
    for finding in hang.get("evidence", ()):
        print_text(f"  {finding['rule']:<10} {finding['verdict']:<8} {finding['reason']}")
    for group in answer["stacks"]:
        _show_group(group)
    for node in answer.get("nodes", ()):
        reports = ", ".join(sorted(node["reports"]))
        print_text(f"node {node['node_rank']} ({node['node_type']}): {node['seconds_ago']:.0f} s ago: {reports}")
    if advice := answer.get("advice"):
        print_text(click.style(f"after the failure: {advice['action']}", bold=True) + f": {advice['reason']}")
    for error in answer.get("errors", ()):
        click.echo(f"not read: {error}", err=True)


def _show_group(group: dict[str, Any]) -> None:
    note = "  <- not where the others are" if group["suspect"] else ""
    print_text(
        click.style(f"\nrank {', '.join(group['ranks'])}{note}", fg="red" if group["suspect"] else None, bold=True)
    )
    for frame in group["frames"][:_SHOWN_FRAMES]:
        print_text(f"    {frame}")
    if len(group["frames"]) > _SHOWN_FRAMES:
        print_text(f"    … {len(group['frames']) - _SHOWN_FRAMES} more")
