"""`lens doctor`: from the hook to the database, where does it stop, and what fixes it."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import msgspec

from ..base.errors import LensError
from ..base.process import keep_off_proxies
from ..plugin_api.commands import data_dir_option, json_option
from . import checks, checks_symptoms
from .checks import Finding
from .client import (
    config_option,
    daemon_url,
    is_daemon_named,
    request_headers,
    resolve_data_dir,
    url_option,
)
from .wording import in_locale, plain

SIGNS = {"ok": "✓", "warning": "!", "failed": "✗", "skipped": "·"}
STEP_WIDTH = 22
STYLES = {"ok": "green", "warning": "yellow", "failed": "red", "skipped": "bright_black"}


@click.command("doctor")
@click.option("--send", is_flag=True, help="Also send one row of the workload lens-doctor and query it.")
@json_option
@url_option
@data_dir_option
@config_option
def command(send: bool, as_json: bool, url: str | None, data_dir: Path | None) -> None:
    """Check every hop from hook to store and report what is broken.

    Each finding has the command that fixes it. Ends with 1 when something failed. Run it in the shell, container or
    pod in which the training runs: it looks at the same variables.

    \b
    Examples:
      lens doctor
      lens doctor --send
      lens doctor --json | jq '.[] | select(.state == "failed")'
    """
    if not os.environ.get("PRIMUS_LENS_PROXY"):
        keep_off_proxies(os.environ, ["*"])  # as the hook, which uses none of the environment's unasked
    findings = []
    for finding in _examine_named(url, data_dir, send=send):
        findings.append(finding)
        if not as_json:
            _print_finding(finding)
    if as_json:
        click.echo(msgspec.json.format(msgspec.json.encode(findings)).decode())
    failed = [finding for finding in findings if finding.state == "failed"]
    if failed and not as_json:
        # A daemon that takes nothing says so because of a sink behind it, which is what has to be fixed.
        cause = next((finding for finding in failed if finding.step not in ("daemon", "sending")), failed[0])
        click.echo(f"\nIt stops at: {cause.step}. Try: {cause.remedy}")
    sys.exit(1 if failed else 0)


def _examine_named(url: str | None, data_dir: Path | None, *, send: bool) -> Iterator[Finding]:
    """All findings about the daemon that is meant, or that it does not run."""
    try:
        address = daemon_url(url, data_dir)
    except LensError as error:
        yield Finding("daemon", "failed", str(error), f"lens up --data-dir {resolve_data_dir(data_dir)}")
        return
    yield from examine(address, given=is_daemon_named(url, data_dir), send=send)


def examine(daemon: str, *, given: bool, send: bool) -> Iterator[Finding]:
    """All findings, in the order of the path; what lies after a break is not looked at."""
    environ = os.environ
    yield from checks.hook(environ)
    yield from checks_symptoms.reporting(environ)
    yield from checks_symptoms.master(environ)
    named = {} if given else environ
    url = checks.target_url(named, daemon)
    reached = list(checks.network(url))
    yield from reached
    if any(finding.state == "failed" for finding in reached):
        yield Finding("daemon", "skipped", "and everything behind it: not reached")
        return
    try:
        headers = request_headers(environ)
    except LensError as error:
        yield Finding("token", "failed", str(error), "export LENS_TOKEN=…")
        return
    answered, status = checks.daemon(url, headers)
    yield from answered
    if status is None:
        yield from checks.sending(checks.hook_address(named, daemon), environ)
        yield Finding("pipelines", "skipped", "and everything behind them: the daemon does not say")
        return
    if status["not_ready"]:
        yield Finding("sending", "failed", f"what is sent now is refused: {status['not_ready']}", checks.LOOK_BELOW)
    elif has_wandb(status):
        yield from checks.sending(checks.hook_address(named, daemon), environ)
    else:
        yield Finding("sending", "skipped", "the source wandb_api is not configured: the hook cannot send here")
    yield from checks_symptoms.identity(url, headers, environ)
    yield from checks.sources(status)
    yield from checks_symptoms.silent(status)
    yield from checks_symptoms.directory(url, headers, status)
    yield from checks_symptoms.drops(url, headers, status)
    yield from checks.pipelines(status)
    yield from checks.plugins(status)
    yield from checks_symptoms.other_daemons(status)
    yield from checks_symptoms.event_loop(status)
    yield from checks_symptoms.plugins_at_work(status)
    began = time.perf_counter()
    stored = list(checks.store(url, headers, status))
    yield from stored
    yield from checks_symptoms.latency(stored, time.perf_counter() - began)
    if send and has_wandb(status) and status["store"] is not None:
        yield from checks.probe(url, headers, environ)
    elif send:
        yield Finding("probe", "skipped", "a row needs the source wandb_api and a sink that answers queries")


def has_wandb(status: Mapping[str, Any]) -> bool:
    """Whether the daemon takes what the hook sends."""
    return any(source["type"] == "wandb_api" for source in status["sources"])


def _print_finding(finding: Finding) -> None:
    """One finding; on a terminal its text keeps to its own column."""
    sign = click.style(SIGNS[finding.state], fg=STYLES[finding.state])
    text = plain(finding.text, 2000)
    click.echo(in_locale(f"{sign} {finding.step:{STEP_WIDTH}} {_wrapped(text)}"))
    if finding.remedy and finding.state != "ok":
        click.echo(in_locale(f"  {'':{STEP_WIDTH}} → {_wrapped(plain(finding.remedy, 2000))}"))


def _wrapped(text: str) -> str:
    if not sys.stdout.isatty():
        return text
    indent = STEP_WIDTH + 3
    width = max(30, shutil.get_terminal_size().columns - indent - 2)
    lines = textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)
    return f"\n{' ' * indent}".join(lines)
