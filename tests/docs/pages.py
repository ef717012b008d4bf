"""The code blocks of a page, and running its console blocks for real."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def blocks(page: str, language: str) -> list[str]:
    """The texts of the code blocks of a language, in their order."""
    return re.findall(rf"```{language}\n(.*?)```", (DOCS / page).read_text(), flags=re.S)


def run_console(block: str, folder: Path, **environ: str) -> list[str]:
    """Run the commands of a console block in one shell; each must end well and print the lines below it.

    What a line holds from … on may be anything. The answer is everything that was printed, one text for each command.
    """
    (folder / "bin").mkdir(exist_ok=True)
    lens = folder / "bin" / "lens"
    lens.write_text(f'#!/bin/sh\nexec {sys.executable} -m lens_core.cli "$@"\n')
    lens.chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LENS_", "PRIMUS_"))}
    path = f"{folder / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**clean, "PATH": path, "HOME": str(folder), "XDG_DATA_HOME": str(folder / "share"), **environ}
    printed = []
    commands = re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.M)
    assert commands, block
    script = "\n".join(f"{command} || exit 1\necho '--- end {n}'" for n, (command, _) in enumerate(commands))
    command = ["sh", "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    rest = done.stdout
    for number, (command_text, expected) in enumerate(commands):
        out, _, rest = rest.partition(f"--- end {number}\n")
        printed.append(out)
        for line in expected.splitlines():
            assert re.split("#|…", line)[0].strip() in out, f"{command_text}: {line!r} is not in\n{out}"
    return printed
