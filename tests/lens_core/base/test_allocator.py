from __future__ import annotations

import platform
import subprocess
import sys

import pytest

# Page faults of making and dropping large blocks, as a request does with its body.
SCRIPT = """
import resource, sys
from lens_core.base.process import keep_large_blocks
if sys.argv[1] == "keep":
    keep_large_blocks()
size = int(sys.argv[2])
for _ in range(10):
    bytearray(b"x") * size
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(100):
    bytearray(b"x") * size
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="does not apply: a switch of glibc")
def test_large_blocks_stay() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT, "keep", "1900000"], check=True, capture_output=True, text=True)
    assert int(run.stdout) < 2000  # without it nearly five hundred for each of the hundred blocks


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="does not apply: a switch of glibc")
def test_unusual_blocks_go_back_at_once() -> None:
    run = subprocess.run([sys.executable, "-c", SCRIPT, "keep", "4000000"], check=True, capture_output=True, text=True)
    assert int(run.stdout) > 50_000


def test_a_command_collects_rarely() -> None:
    script = (
        "import atexit, gc, sys\n"
        "atexit.register(lambda: print(gc.get_threshold()[0]))\n"
        "sys.argv = ['lens', '--version']\n"
        "from lens_core.cli import main\n"
        "main()"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert int(run.stdout.splitlines()[-1]) >= 10_000


def test_what_stays_is_not_looked_through_again() -> None:
    script = (
        "import gc, lens_core.daemon.daemon\n"
        "from lens_core.base.process import freeze_gc\n"
        "freeze_gc()\n"
        "print(gc.get_freeze_count(), len(gc.get_objects()))"
    )
    run = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    frozen, looked_at = map(int, run.stdout.split())
    assert frozen > 10_000
    assert looked_at < 1_000


# The heap's top is in use, so that nothing below it leaves by itself.
RELEASE_SCRIPT = """
import asyncio, sys
import psutil
from lens_core.base.process import UNUSUAL_BYTES, MemoryRelease, keep_large_blocks

keep_large_blocks()
process = psutil.Process()

async def main(size):
    release = MemoryRelease()
    blocks = [bytearray(b"x") * 100_000 for _ in range(400)]
    top = bytearray(b"x") * 100_000
    before = process.memory_info().rss
    del blocks
    release.after_body(size)
    for _ in range(500):
        if process.memory_info().rss < before - 30_000_000:
            break
        await asyncio.sleep(0.01)
        if size < UNUSUAL_BYTES and release.is_idle:
            break
    print(before - process.memory_info().rss, len(top))

asyncio.run(main(UNUSUAL_BYTES + int(sys.argv[1])))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="does not apply: a switch of glibc")
@pytest.mark.parametrize(("beyond", "returned"), [(0, True), (-1, False)])
def test_memory_returns_after_an_unusual_body_only(beyond: int, returned: bool) -> None:
    run = subprocess.run(
        [sys.executable, "-c", RELEASE_SCRIPT, str(beyond)], check=True, capture_output=True, text=True
    )
    assert (int(run.stdout.split()[0]) > 30_000_000) is returned
