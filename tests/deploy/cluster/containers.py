"""Containers as far as a test needs them: a root file system of their own over the machine's, their volumes, a network
of their own. Needs root.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

# Whatever is written to the root file system goes to a tmpfs and is gone with the container.
_START = """
set -e
work=$1 mounts=$2; shift 2
ip link set lo up
mount -t tmpfs tmpfs "$work"
mkdir "$work/upper" "$work/work" "$work/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/upper,workdir=$work/work" "$work/root"
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
while read -r from to; do
    mkdir -p "$work/root$to"
    mount --bind "$from" "$work/root$to"
done <"$mounts"
exec chroot "$work/root" "$@"
"""


class Mount(NamedTuple):
    """A folder of the machine, and where a container sees it."""

    source: Path
    target: str


class Container:
    """A command in surroundings of its own, which `run` enters. `log` has what it says."""

    def __init__(
        self, folder: Path, command: Sequence[str], environ: Mapping[str, str], mounts: Sequence[Mount], workdir: str
    ) -> None:
        folder.mkdir()
        (folder / "work").mkdir()
        listed = folder / "mounts"
        listed.write_text("".join(f"{mount.source} {mount.target}\n" for mount in mounts))
        self.log = folder / "log"
        self._environ = ["/usr/bin/env", "-i", "-C", workdir, *(f"{name}={value}" for name, value in environ.items())]
        start = ["unshare", "-m", "-n", "sh", "-c", _START, "start", str(folder / "work"), str(listed)]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*start, *self._environ, *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd="/"
            )

    def wait(self) -> None:
        """Wait for its end, which must be a good one."""
        code = self._process.wait(240)
        assert code == 0, self.log.read_text()

    def run(self, command: Sequence[str]) -> subprocess.CompletedProcess[bytes]:
        """Run another command in it."""
        enter = ["nsenter", "-t", str(self._process.pid), "-m", "-n", "-r"]
        return subprocess.run(
            [*enter, *self._environ, *command], capture_output=True, timeout=240, check=False, cwd="/"
        )

    def stop(self) -> None:
        """SIGTERM, and wait."""
        self._process.terminate()
        self._process.wait(240)


# What `_START` needs of the kernel, on folders of its own.
_TRY = """
set -e
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$1/root"
mount -t proc proc "$1/root/proc"
"""


def may_run() -> bool:
    """Whether this machine lets us make namespaces, and lay a file system over its own in them."""
    if os.geteuid() != 0:
        return False
    with tempfile.TemporaryDirectory() as folder:
        tried = ["unshare", "-m", "-n", "sh", "-c", _TRY, "try", folder]
        return subprocess.run(tried, check=False, capture_output=True).returncode == 0
