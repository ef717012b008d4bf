"""`lens goodput`: where the time of a run, of a job or of all jobs went."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import click
import msgspec

from lens_core.commands import (
    config_option,
    daemon_url,
    data_dir_option,
    find_workload,
    print_text,
    request_json,
    url_option,
)

BY = ("cause", "node", "framework", "namespace", "name", "workload")


@click.command("goodput")
@click.argument("uid", required=False)
@click.option(
    "--file",
    "path",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True),
    help="A training log; - is standard input. No daemon is asked.",
)
@click.option(
    "--times",
    type=click.File("rb"),
    help="A file with the time of each line of the log, where its lines have none.",
)
@click.option("--since", help="Only the last span (7d, 12h, 30m) [default: all of a job, 7d of the fleet].")
@click.option("--by", type=click.Choice(BY), help="How the fleet is grouped [default: cause].")
@click.option(
    "--price-per-gpu-hour",
    "price",
    type=click.FloatRange(min=0),
    help="The price of a GPU-hour, in any currency: costs in money, too [default: that of the daemon's settings].",
)
@click.option("--json", "as_json", is_flag=True, help="The ledger as a JSON object.")
@config_option
@data_dir_option
@url_option
def command(
    uid: str | None,
    path: str | None,
    times: BinaryIO | None,
    since: str | None,
    by: str | None,
    price: float | None,
    as_json: bool,
    data_dir: Path | None,
    url: str | None,
) -> None:
    """Say which share of the time made progress, and what took the rest: of a job, of all jobs, or of a log alone.

    \b
    Examples:
      lens goodput --file train.log
      lens goodput --file train.log --json | jq '.runs[0].buckets'
      lens goodput --file train.log --times times.txt
      lens goodput my-job
      lens goodput --since 7d --by node
      lens goodput my-job --price-per-gpu-hour 2.50

    UID is a workload, by uid or name; without one the daemon answers for all of them. Of a log the first time is the
    start of the process. Times stand on the lines, with their date; for a log without them --times names a file that
    has as many lines, each with seconds since the epoch or an ISO 8601 time.
    """
    if path is not None:
        if uid is not None or since is not None or by is not None:
            raise click.UsageError("--file reads a log alone: leave UID, --since and --by out")
        _of_log(path, times, price, as_json)
        return
    if times is not None:
        raise click.UsageError("--times are of a log; name it by --file")
    if uid is not None and by is not None:
        raise click.UsageError("--by groups all jobs; leave it out for one")
    from .prices import with_prices

    base = daemon_url(url, data_dir)
    parameters = {name: value for name, value in (("since", since), ("by", by)) if value}
    if uid is None:
        answer = with_prices(request_json("GET", base, "/api/v1/goodput", **parameters), price)
        _show(answer, as_json, fleet=True)
    else:
        from urllib.parse import quote

        path = f"/api/v1/workloads/{quote(find_workload(base, uid))}/goodput"
        runs = request_json("GET", base, path, **parameters)["runs"]
        _show({"runs": [with_prices(run, price) for run in runs]}, as_json, fleet=False)


def _of_log(path: str, times: BinaryIO | None, price: float | None, as_json: bool) -> None:
    from shutil import copyfileobj
    from tempfile import TemporaryFile

    from lens_core.logs import decode_lines

    from .answers import as_answer
    from .log_file import ledger_of_log
    from .prices import with_prices
    from .wording import report

    with click.open_file(path, "rb") as file, TemporaryFile() as copy:
        is_stream = not file.seekable()
        if is_stream:  # lines that are out of order are read twice
            copyfileobj(file, copy)
        source = copy if is_stream else file

        def lines_from_start() -> Iterable[bytes]:
            source.seek(0)
            return source

        ledger = ledger_of_log(lines_from_start, path, None if times is None else list(decode_lines(times)))
    answer = with_prices(as_answer(ledger), price)
    if as_json:
        _print({"runs": [answer]})
    else:
        pace = {"typical": ledger.typical_seconds, "best": ledger.best_seconds}
        print_text(report(answer | {"step_seconds": pace}))


def _show(answer: dict[str, Any], as_json: bool, *, fleet: bool) -> None:
    from .wording import fleet_report, report

    if as_json:
        _print(answer)
    elif fleet:
        print_text(fleet_report(answer))
    elif not answer["runs"]:
        click.echo("nothing is stored of this workload, or nothing with steps")
    else:
        print_text("\n\n".join(report(run) for run in answer["runs"]))


def _print(answer: dict[str, Any]) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(answer)).decode())
