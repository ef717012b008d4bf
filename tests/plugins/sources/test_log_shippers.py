"""POST /logs from the real rsyslog and the real syslog-ng, with the configurations that the pages show."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from lens_plugins.sources.logs import Logs

from lens_core import LogLine
from lens_core.testing import until
from tests.docs.pages import blocks
from tests.plugins.sources.ingest_app import IngestApp

Make = Callable[..., IngestApp]

EXAMPLE = Path(__file__).parents[3] / "examples" / "rsyslog"
LINES = 25
# Its package and rsyslog's exclude each other, so scripts/test unpacks it into a folder.
BESIDE = Path(sys.prefix) / "beside" / "usr"
# Where the libraries are that came with it; scripts/environment.sh has checked that none is missing.
LIBRARY_PATH = BESIDE.parent / "library-path"
SYSLOG_NG = [str(BESIDE / "sbin/syslog-ng"), "--module-path", str(BESIDE / "lib/syslog-ng/3.38")]
SYSLOG_NG_CONFIGURATION = """@version: 3.38
source from_file {{ file("{log}" flags(no-parse)); }};
{destination}
log {{ source(from_file); destination(lens); }};
"""


@asynccontextmanager
async def served(app: IngestApp) -> AsyncIterator[int]:
    """The port on which the application is served."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app.app, log_level="error", lifespan="off", ws="none"))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        await serving
        listener.close()


@asynccontextmanager
async def running(command: list[str], said: Path, **environ: str) -> AsyncIterator[None]:
    with said.open("wb") as file:
        shipper = subprocess.Popen(command, stdout=file, stderr=file, env={**os.environ, **environ})
    try:
        yield
    finally:
        shipper.terminate()
        shipper.wait(240)


def training_log(folder: Path) -> Path:
    log = folder / "train.log"
    log.write_text("".join(f'step: {step}  loss: "1.5" \\ é\n' for step in range(LINES)))
    return log


def came(app: IngestApp) -> list[LogLine]:
    return [record for record in app.gate.records if isinstance(record, LogLine)]


def check(app: IngestApp) -> None:
    lines = came(app)
    assert {line.text for line in lines} == {f'step: {step}  loss: "1.5" \\ é' for step in range(LINES)}
    assert {line.origin.workload_uid for line in lines} == {"my-run"}
    assert all(line.origin.node and line.event_time is not None for line in lines)


@pytest.mark.skipif(not LIBRARY_PATH.exists(), reason="needs syslog-ng as scripts/test unpacks it")
async def test_the_real_syslog_ng_with_the_configuration_of_the_page(ingest_app: Make, tmp_path: Path) -> None:
    app = ingest_app(Logs)
    async with served(app) as port:
        configuration = tmp_path / "syslog-ng.conf"
        (destination,) = [block for block in blocks("logs.md", "text") if block.startswith("destination lens")]
        destination = destination.replace("http://lens:8080", f"http://127.0.0.1:{port}")
        configuration.write_text(SYSLOG_NG_CONFIGURATION.format(log=training_log(tmp_path), destination=destination))
        places = {"-f": configuration, "-R": tmp_path / "state", "-c": tmp_path / "ctl", "-p": tmp_path / "pid"}
        command = [*SYSLOG_NG, "-F", *(str(part) for place in places.items() for part in place)]
        async with running(command, tmp_path / "said", LD_LIBRARY_PATH=LIBRARY_PATH.read_text().strip()):
            await until(lambda: len(came(app)) >= LINES, "all lines came", seconds=240)
    check(app)


@pytest.mark.skipif(shutil.which("rsyslogd") is None, reason="needs rsyslog")
async def test_the_real_rsyslog_keeps_what_lens_cannot_take(ingest_app: Make, tmp_path: Path) -> None:
    app = ingest_app(Logs)
    app.gate.closed = True  # as if the spool were full
    async with served(app) as port:
        text = (EXAMPLE / "lens.conf").read_text()
        for shown, used in (
            ("/runs/my-run/*.log", str(training_log(tmp_path))),
            ("/usr/bin/python3 /usr/local/lib/lens_omprog.py", f"{sys.executable} {EXAMPLE / 'lens_omprog.py'}"),
            ("http://lens:8080/logs", f"http://127.0.0.1:{port}/logs"),
        ):
            assert shown in text
            text = text.replace(shown, used)
        configuration = tmp_path / "rsyslog.conf"
        configuration.write_text(f'global(workDirectory="{tmp_path}")\n{text}')
        command = ["rsyslogd", "-n", "-f", str(configuration), "-i", str(tmp_path / "pid")]
        async with running(command, tmp_path / "said"):
            await until(lambda: app.gate.refused > 0, "something was refused", seconds=240)
            app.gate.closed = False
            await until(lambda: len({line.text for line in came(app)}) >= LINES, "all lines came", seconds=240)
    check(app)
