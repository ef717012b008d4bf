"""The code blocks of a page, and running its console blocks for real.

What ran to its end is remembered, so that the last test of the folder can say whether any block was left out.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

import psutil

from tests.forked import forked_command
from tests.side_by_side import shared_folder

DOCS = Path(__file__).parents[2] / "docs"
ROOT = DOCS.parent
PAGES = sorted(
    [*DOCS.glob("*.md"), ROOT / "README.md", *ROOT.glob("examples/*/README.md"), ROOT / "benchmarks/README.md"]
)
_SECONDS = 600
# What processes of tests note for the test that looks at all of it: console blocks that ran to their end, tests that
# have ended.
_RAN, _ENDED = "console_blocks", "ended_tests"
_FENCED = r"^( *)```{language}\n(.*?)^ *```$"

# What runs until Ctrl-C ends by itself here and listens where nobody else does; readers look a moment after a training.
_LENS = """#!/bin/sh
case "$1" in
up) set -- "$@" --listen "127.0.0.1:${PAGE_PORT:-0}" ;;
tap) set -- "$@" --count 1 ;;
run)
    @lens@ "$@" || exit
    while @lens@ status --json | grep -q '"pending_records": *[1-9]'; do sleep 0.1; done
    exit ;;
esac
exec @lens@ "$@"
"""
# A server stays while the rest of its block runs: its output is waited for, and its group ended with the shell.
_HEAD = """set -m
end() { code=$?; for job in $(jobs -p); do kill -- -"$job"; done 2>/dev/null; wait; exit $code; }
trap end EXIT
serve() {
    said=$(mktemp); bash -c "$1" >"$said" & tries=0
    until [ -s "$said" ]; do
        tries=$((tries + 1)); kill -0 $! 2>/dev/null && [ $tries -lt 600 ] || { cat "$said"; return 1; }; sleep 0.05
    done
    cat "$said"
}
"""
_SERVER = re.compile(r"(?:\w+=\S+ )*lens up\b")


def note(what: str, text: str) -> None:
    """Leave a line for the last test of this folder, which may be in another process."""
    with (shared_folder() / f"{what}.{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps(text) + "\n")


def note_end(nodeid: str) -> None:
    """Leave word that a test has ended."""
    note(_ENDED, nodeid)


def blocks_that_ran() -> set[str]:
    """The console blocks that ran to their end in this run, in any process."""
    return _noted(_RAN)


def ended_tests() -> set[str]:
    """The tests of this folder that have ended in this run, in any process."""
    return _noted(_ENDED)


def _noted(what: str) -> set[str]:
    # A line that is being written has no end yet.
    texts = [path.read_text() for path in shared_folder().glob(f"{what}.*.jsonl")]
    return {json.loads(line) for text in texts for line in text.splitlines(keepends=True) if line.endswith("\n")}


def blocks(page: str, language: str) -> list[str]:
    """The texts of the code blocks of a language, in their order; `page` is relative to the folder of the pages."""
    return blocks_of((DOCS / page).read_text(), language)


def blocks_of(text: str, language: str) -> list[str]:
    """The same of a page's text."""
    found = re.findall(_FENCED.format(language=language), text, flags=re.M | re.S)
    return [textwrap.dedent(block) for _, block in found]


def run_console(
    block: str,
    folder: Path,
    environ: Mapping[str, str] = MappingProxyType({}),
    *,
    lens: str = "",
    values: Mapping[str, str] = MappingProxyType({}),
    before: Sequence[str] = (),
    after: Sequence[str] = (),
) -> list[str]:
    """Run the commands of a console block in one shell; each must end well and print the lines below it.

    What a line holds from … on may be anything; what follows # is for the reader. `values` are what the reader puts in
    place of what the page can only name, `lens` is how the command is called; commands `before` and `after` are the
    test's own. The answer is everything that was printed, one text for each command of the block.
    """
    commands = re.findall(r"^\$ ((?:.*\\\n)*.*)\n((?:(?!\$ ).*\n)*)", block, flags=re.M)
    assert commands, block
    own = [[_step(command, -1) for command in some] for some in (before, after)]
    steps = [_step(_filled(command, values), n) for n, (command, _) in enumerate(commands)]
    script = _HEAD + "\n".join([*own[0], "echo '--- begin'", *steps, *own[1]])
    code, out, said = _run(script, folder, _environment(folder, lens or shlex.join(forked_command()), environ))
    assert code == 0, f"{block}\n{out}\n{said}"
    note(_RAN, block)
    return _printed(commands, out)


def _run(script: str, folder: Path, environment: dict[str, str]) -> tuple[int, str, str]:
    """The shell's exit code, output and messages; past the time limit nothing of it goes on."""
    with subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env=environment,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as shell:
        try:
            out, said = shell.communicate(timeout=_SECONDS)
        except subprocess.TimeoutExpired:
            parent = psutil.Process(shell.pid)
            for process in (*parent.children(recursive=True), parent):
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            raise
    return shell.returncode, out, said


def lead_curl(folder: Path, shown: str, port: int, *more: str) -> None:
    """Let curl find on a port of this machine what the page shows at an address; `more` lines for its file."""
    (folder / ".curlrc").write_text("\n".join([f'connect-to = "{shown}:127.0.0.1:{port}"', *more, ""]))


def port_of(url: str) -> int:
    """The port of an address."""
    return int(url.rpartition(":")[2])


def _filled(command: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        command = command.replace(name, value)
    return command


def _step(command: str, number: int) -> str:
    serving = _SERVER.match(command)
    run = f"serve {_quoted(command)}" if serving else command
    # On a line of its own, because the command may end in a comment.
    return f"{run}\n[ $? = 0 ] || exit 1\necho '--- end {number}'"


def _quoted(command: str) -> str:
    return "'" + command.replace("'", "'\\''") + "'"


def _environment(folder: Path, lens: str, environ: Mapping[str, str]) -> dict[str, str]:
    tools = folder / "bin"
    tools.mkdir(exist_ok=True)
    (tools / "lens").write_text(_LENS.replace("@lens@", lens))
    (tools / "lens").chmod(0o755)
    clean = {key: value for key, value in os.environ.items() if not key.startswith(("LENS_", "PRIMUS_"))}
    path = f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**clean, "PATH": path, "HOME": str(folder), "LENS_DATA_DIR": str(folder / "data"), **environ}


def _printed(commands: Sequence[tuple[str, str]], rest: str) -> list[str]:
    """Return the output of each command, which must contain the lines that the page shows below it."""
    printed = []
    rest = rest.partition("--- begin\n")[2]
    for number, (command, expected) in enumerate(commands):
        out, _, rest = rest.partition(f"--- end {number}\n")
        printed.append(out)
        for line in expected.splitlines():
            assert re.split("#|…", line)[0].strip() in out, f"{command}: {line!r} is not in\n{out}"
    return printed
