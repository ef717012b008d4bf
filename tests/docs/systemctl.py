"""A `systemctl` for one unit in a folder: runs the unit's own commands, with its own environment, as systemd does.

Paths of the unit begin at $LENS_ROOT. Called as `systemctl start|stop|restart|reload|enable --now|daemon-reload lens`.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(os.environ["LENS_ROOT"])
PID = ROOT / "main.pid"
LOG = ROOT / "lens.log"


def _lines(key: str) -> list[str]:
    unit = (ROOT / "etc/systemd/system/lens.service").read_text()
    found = re.findall(rf"^{key}=(.*)$", unit, flags=re.M)
    return [re.sub(r"(?<![\w/])/(opt|etc|var)/", rf"{ROOT}/\1/", line) for line in found]


def _environment() -> dict[str, str]:
    own = dict(line.split("=", 1) for line in _lines("Environment"))
    return {"HOME": str(ROOT), "LENS_TEST_LISTEN": os.environ.get("LENS_TEST_LISTEN", ""), **own}


def _run(command: str) -> None:
    words = command.replace("$MAINPID", PID.read_text() if PID.exists() else "").split()
    done = subprocess.run(words, env=_environment(), check=False)
    if done.returncode:
        sys.exit(f"lens.service: {command} ended with {done.returncode}")


def _start() -> None:
    (ROOT / "var/lib/lens").mkdir(parents=True, exist_ok=True)
    for command in _lines("ExecStartPre"):
        _run(command)
    (command,) = _lines("ExecStart")
    with LOG.open("ab") as log:
        process = subprocess.Popen(
            command.split(),
            env=_environment(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    PID.write_text(str(process.pid))
    address = ROOT / "var/lib/lens/daemon.json"
    while not address.exists():  # the test's own time limit ends this
        if process.poll() is not None:
            sys.exit(LOG.read_text())
        time.sleep(0.05)


def _stop() -> None:
    pid = int(PID.read_text())
    os.kill(pid, signal.SIGTERM)
    while _is_there(pid):
        time.sleep(0.05)


def _is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def main(words: list[str]) -> None:
    """Do what was asked for."""
    verb = words[0]
    if verb in ("stop", "restart"):
        _stop()
    if verb in ("start", "restart", "enable"):
        _start()
    if verb == "reload":
        for command in _lines("ExecReload"):
            _run(command)


if __name__ == "__main__":
    main(sys.argv[1:])
