"""docs/upgrading.md, every step of it: a daemon of the shipped unit is installed, backed up, upgraded, taken back."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from lens_core.base.data_dir import read_address
from tests.docs.pages import ROOT, blocks, run_console
from tests.end_to_end.running_lens import http_get, http_post, metrics_body, wait_for

PAGE = "upgrading.md"
TOOLS = Path(sys.executable).parent


class Machine:
    """A machine with systemd in a folder; its package installer puts the Lens of this checkout there."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.data = root / "var/lib/lens"
        tools = root / "bin"
        tools.mkdir(parents=True)
        systemctl = f'#!/bin/sh\nexec {sys.executable} {ROOT}/tests/docs/systemctl.py "$@"\n'
        for name, text in (("useradd", "#!/bin/sh\n"), ("systemctl", systemctl)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self._environ = {"PATH": f"{tools}:{os.environ['PATH']}", "LENS_ROOT": str(root)}
        (root / "deploy").symlink_to(ROOT / "deploy")

    def give(self, number: int, *, before: tuple[str, ...] = ()) -> list[str]:
        """Give a console block of the page."""
        opt = f"{self.root}/opt/lens-agent"
        values = {
            **{f"/{name}/": f"{self.root}/{name}/" for name in ("opt", "etc", "var")},
            f"python3 -m venv {opt}": f"mkdir -p {opt}/bin && ln -s {TOOLS}/lens {opt}/bin/lens",
            f'{opt}/bin/pip install --upgrade ./plugins/sources/wandb_hook ".[all]"': "true",
            f'{opt}/bin/pip install ./plugins/sources/wandb_hook ".[all]"': "true",
            # Where a port is free; the page's is taken on most machines.
            "systemctl daemon-reload": f"sed -i 's/127.0.0.1:8080/127.0.0.1:0/' {self.root}/etc/lens/lens.yaml",
        }
        lens = f"{sys.executable} -m lens_core.cli"
        return run_console(
            blocks(PAGE, "console")[number], self.root, self._environ, lens=lens, values=values, before=before
        )

    @property
    def url(self) -> str:
        """The address of the daemon."""
        address = read_address(self.data)
        assert address is not None
        return address.url

    def store(self, workload: str) -> None:
        """Send rows and wait until they are stored."""
        body = metrics_body(workload, range(5))
        assert http_post(f"{self.url}/api/v1/wandb/metrics", json=body).is_success
        wait_for(lambda: workload in self.stored(), 240, "the rows")

    def stored(self) -> set[str]:
        """The workloads that the store knows."""
        answer = http_get(f"{self.url}/api/v1/overview")
        return {line["workload_uid"] for line in answer.json()["workloads"]} if answer.is_success else set()


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path / "machine")
    yield made
    with suppress(FileNotFoundError, ProcessLookupError):
        os.kill(int((made.root / "main.pid").read_text()), signal.SIGTERM)


def test_a_daemon_is_installed_backed_up_upgraded_and_taken_back(machine: Machine) -> None:
    install, reload, export, copy, upgrade, restore, between = range(7)
    machine.give(install)
    machine.store("before")
    machine.give(reload)
    machine.give(export)
    assert (machine.root / "everything.jsonl.gz").stat().st_size > 100
    machine.give(copy)
    wait_for(lambda: machine.stored() == {"before"}, 240, "the store after the copy")
    machine.give(upgrade)
    machine.store("after")
    machine.give(restore)
    wait_for(lambda: machine.stored() == {"before"}, 240, "the store as it was")
    machine.give(between)
    wait_for(lambda: machine.stored() == {"before", "after"}, 240, "what came in between")
