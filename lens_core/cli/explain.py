"""`lens explain`: what Lens makes of log lines, each by itself, and why it makes nothing of the others."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from ..config.loading import load_config
from ..detection.detectors import make_detectors
from ..detection.log_lines import Context, LineEngine, LogEvent, Reading
from ..detection.log_lines.loss_checks import check_loss, spell
from ..detection.log_lines.nearest import nearest
from ..logs import decode_lines
from ..plugin_host.host import PluginHost
from .client import plugins_dir_option
from .wording import plain

_COLOURS = {"metric": "green", "event": "yellow", "none": "bright_black"}
_SHOWN_FIRST = ("iteration", "target_iteration", "epoch", "lm_loss", "elapsed_time_per_iteration_ms", "learning_rate")
_SHOWN_VALUES = 8
_LONGEST = 500
OTHER = "other"
_GENERAL = "general."
_COUNTED = ("iteration", "step_in_epoch", "epoch", "Progress", "progress")
_COUNTERS = frozenset(
    (*_COUNTED, "current_iteration", "target_iteration", "total_epochs", "steps_per_epoch", "total_timesteps")
)


@click.command("explain")
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for each update of each line.")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Use the detectors of this configuration instead of all installed ones.",
)
@plugins_dir_option
def command(file: BinaryIO, as_json: bool, config: Path | None) -> None:
    """Explain log lines: steps, events, or neither, then with the closest format.

    \b
    Examples:
      lens explain train.log
      kubectl logs my-pod | lens explain
      lens explain train.log --json | jq 'select(.kind == "metric") | .values.lm_loss'

    Lines are read one by one: what a line means only together with its neighbours (a step's number that stands on
    the line before) is not shown here.
    """
    engine = LineEngine(make_detectors(load_config(config, PluginHost.load()).detectors))
    write = _json_writer() if as_json else _human_writer(engine)
    counts = {"metric": 0, "event": 0, "none": 0}
    for answer, text in explain(engine, file):
        counts[answer["kind"]] += 1
        write(answer, text)
    if not as_json:
        click.echo(f"{counts['metric']} steps, {counts['event']} events, {counts['none']} other lines", err=True)


def explain(engine: LineEngine, lines: BinaryIO) -> Iterator[tuple[dict[str, Any], str]]:
    """For each line its answers, and the line."""
    context = Context()
    for number, line in enumerate(decode_lines(lines), 1):
        text = line.rstrip("\r\n")
        readings = engine.read_line(text, context)
        telling = [reading for reading in readings if reading.kind != "none"] or list(readings)[-1:] or [Reading()]
        for reading in telling:
            yield _reading_json(number, reading), text


def _reading_json(number: int, reading: Reading) -> dict[str, Any]:
    log_event = reading.log_event or (check_loss(reading) if reading.format else None)
    return {
        "line": number,
        "kind": reading.kind,
        "framework": reading.framework or (OTHER if reading.kind != "none" else ""),
        "format": reading.format,
        "values": _step_values(reading) if reading.format else _event_values(log_event),
        "event": log_event.type if log_event is not None else "",
    }


def _step_values(reading: Reading) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if reading.iteration is not None:
        values = {"iteration": reading.iteration, "current_iteration": reading.iteration}
    values.update((name, _plain_json(value)) for name, value in reading.values.items())
    return values


def _event_values(log_event: LogEvent | None) -> dict[str, Any]:
    if log_event is None:
        return {}
    values: dict[str, Any] = {} if log_event.iteration is None else {"iteration": log_event.iteration}
    values.update((name, _plain_json(value)) for name, value in log_event.details.items())
    return values


def _plain_json(value: Any) -> Any:
    """A value that JSON can hold: whole numbers without a fraction, NaN and infinities as strings."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return spell(value)
    return int(value) if value.is_integer() and abs(value) < 2**53 else value


def _json_writer() -> Any:
    encode = msgspec.json.Encoder().encode

    def write(answer: dict[str, Any], text: str) -> None:
        sys.stdout.buffer.write(encode(answer) + b"\n")

    return write


def _human_writer(engine: LineEngine) -> Any:
    def write(answer: dict[str, Any], text: str) -> None:
        if text.strip():
            click.echo("  ".join(_human(engine, answer, text)))

    return write


def _human(engine: LineEngine, answer: dict[str, Any], text: str) -> Iterator[str]:
    yield f"{answer['line']:>6}"
    yield click.style(f"{answer['kind']:<6}", fg=_COLOURS[answer["kind"]])
    if answer["kind"] == "none":
        yield _nearest(engine, answer, text)
        return
    yield f"{answer['framework']:<12}"
    if answer["event"]:
        yield click.style(answer["event"], fg="yellow")
    values = answer["values"]
    order = [name for name in _SHOWN_FIRST if name in values]
    order += [name for name in values if name not in order and name != "current_iteration"]
    yield plain("  ".join(f"{name}={values[name]}" for name in order[:_SHOWN_VALUES]), _LONGEST)
    if len(order) > _SHOWN_VALUES:
        yield f"(+{len(order) - _SHOWN_VALUES})"
    if answer["format"].startswith(_GENERAL):
        yield click.style(_why_general(values), fg="bright_black")


def _why_general(values: dict[str, Any]) -> str:
    """Say why the general reader took a line for a step: by its counter and its measure."""
    counted = next((name for name in _COUNTED if name in values), "")
    measured = "lm_loss" if "lm_loss" in values else next((name for name in values if name not in _COUNTERS), "")
    by = f"counted by {counted}" if counted else "counted by the lines around it"
    return f"(no detector's format; {by}, measured by {measured})" if measured else f"(no detector's format; {by})"


def _nearest(engine: LineEngine, answer: dict[str, Any], text: str) -> str:
    shows = f"shows {answer['framework']}; " if answer["framework"] else ""
    if reason := engine.why_not_general(text):
        return f"{shows}no step because {reason}: {plain(text.strip())}"
    near = nearest(engine, text)
    if near is None:
        return f"{shows}like no known format: {plain(text.strip())}"
    return f"{shows}nearest {near.format}: {near.reason}: {plain(text.strip())}"
