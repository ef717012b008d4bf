"""`lens goodput`: where the time of a run went."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TextIO

import click
import msgspec

if TYPE_CHECKING:
    from .facts import Ledger


@click.command("goodput")
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    required=True,
    help="A training log; - is standard input.",
)
@click.option(
    "--times",
    type=click.File("r", errors="replace"),
    help="A file with the time of each line of the log, where its lines have none.",
)
@click.option("--json", "as_json", is_flag=True, help="The ledger as a JSON object.")
def command(path: str, times: TextIO | None, as_json: bool) -> None:
    """Say which share of a run's time made progress, and what took the rest, out of its log alone.

    \b
    Examples:
      lens goodput --file train.log
      lens goodput --file train.log --json | jq '.runs[0].buckets'
      lens goodput --file train.log --times times.txt

    The first time in the log is the start of the process. Times stand on the lines, with their date; for a log without
    them --times names a file that has as many lines, each with seconds since the epoch or an ISO 8601 time.
    """
    from .log_file import ledger_of_log
    from .wording import report

    with click.open_file(path, "rb") as file:
        ledger = ledger_of_log(file, path, times)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode({"runs": [as_answer(ledger)]})).decode())
    else:
        click.echo(report(ledger))


def as_answer(ledger: Ledger) -> dict[str, Any]:
    """The ledger in the shape of the API's answers."""
    return {
        "run": ledger.run,
        "wall_seconds": ledger.wall_seconds,
        "goodput": None if ledger.goodput is None else round(ledger.goodput, 4),
        "buckets": ledger.buckets,
        "interruptions": [msgspec.to_builtins(found) for found in ledger.interruptions],
        "resolution": ledger.resolution,
        "notes": ledger.notes,
    }
