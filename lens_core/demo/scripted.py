"""A job with scripted faults on two real processes, and the truth about where its time went: `lens demo --faults`.

It is killed, goes on from its last checkpoint with a rank that needs longer for its own work, hangs until a watchdog
ends it, and ends well; it evaluates, and saves to a disk that gets slower. Nothing in here knows Lens: the launcher and
the ranks print lines as training scripts do, and write down beside them what they did when.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from .ranks import Peer, start_rank

WORLD_SIZE = 2
_NORMAL, _WATCHDOG_EXIT = 0, 3


class Script(NamedTuple):
    """The planned faults: times in seconds, and the steps at which things happen. All values are those of the demo."""

    step_seconds: float = 0.1
    steps: int = 900
    start_seconds: float = 4.0
    down_seconds: float = 6.0
    save_every: int = 100
    save_seconds: float = 1.0
    evaluate_every: int = 150
    evaluation_seconds: float = 3.0
    kill_after: int = 350
    slow_from: int = 400
    slow_until: int = 550
    slow_factor: float = 1.6
    hang_after: int = 680
    hang_seconds: float = 75.0
    log_every: int = 5

    @property
    def seconds(self) -> float:
        """Return about how long all of it takes."""
        slow = (self.slow_until - self.slow_from) * self.step_seconds * (self.slow_factor - 1)
        again = (self.kill_after + self.hang_after) % self.save_every * self.step_seconds
        pauses = self.steps / self.save_every * 2 * self.save_seconds
        pauses += self.steps / self.evaluate_every * self.evaluation_seconds
        waits = 3 * self.start_seconds + 2 * self.down_seconds + self.hang_seconds
        return self.steps * self.step_seconds + slow + again + pauses + waits


def small(factor: float, hang_seconds: float = 0.0) -> Script:
    """Return the same script in less time, for tests: without a hang, which takes more than a minute to be one."""
    whole = Script()
    return whole._replace(
        start_seconds=whole.start_seconds * factor,
        down_seconds=whole.down_seconds * factor,
        step_seconds=whole.step_seconds * factor,
        save_seconds=whole.save_seconds * factor,
        evaluation_seconds=whole.evaluation_seconds * factor,
        hang_seconds=hang_seconds,
    )


def run_script(script: Script, folder: Path) -> None:
    """Launch the ranks until they end well, as a launcher with restarts does; blocks until then."""
    resumed = 0
    for attempt in range(1, 10):
        begun = time.time()
        print_line("INFO: [default] Starting worker group")
        ranks = _start_ranks(script, folder, attempt, resumed)
        codes = [process.wait() for process in ranks]
        ended = time.time()
        _write_truth(folder, {"attempt": attempt, "begun": begun, "ended": ended, "resumed": resumed})
        if not any(codes):
            print_line("INFO: [default] worker group successfully finished.")
            return
        worst = next(code for code in codes if code)
        print_line(f"ERROR failed (exitcode: {worst}) local_rank: {codes.index(worst)} of train.py")
        resumed = max((int(file.stem) for file in folder.glob("*.checkpoint")), default=0)
        time.sleep(script.down_seconds)


def _start_ranks(script: Script, folder: Path, attempt: int, resumed: int) -> list[subprocess.Popen[bytes]]:
    import socket

    sockets = socket.socketpair()
    arguments = ["-m", "lens_core.demo.scripted", str(folder), str(attempt), str(resumed), json.dumps(script)]
    ranks = [start_rank(rank, sockets[rank], arguments) for rank in range(WORLD_SIZE)]
    for one in sockets:
        one.close()
    return ranks


class ScriptedRank:
    """One rank of one attempt."""

    def __init__(self, script: Script, folder: Path, attempt: int, rank: int, peer: Peer) -> None:
        self.script, self.folder, self.attempt, self.rank, self.peer = script, folder, attempt, rank, peer
        self.own_seconds: list[float] = []

    def train(self, resumed: int) -> int:
        """Train from a checkpoint on, with the faults of this attempt; the exit code."""
        time.sleep(self.script.start_seconds)
        if resumed and self.rank == 0:
            print_line(f"successfully loaded checkpoint from ckpt/iter_{resumed:07d}")
        self.peer.average([0.0])
        for number in range(resumed + 1, self.script.steps + 1):
            begun = time.time()
            self._work(number)
            try:
                self.peer.average([0.0])  # both ranks wait for the slower one, as in synchronous training
            except ConnectionError:
                return 1
            if self.rank == 0:
                self._record_step(number, begun)
            self._save_and_evaluate(number)
            if self.attempt == 1 and number == self.script.kill_after and self.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            if self.attempt == 2 and number == self.script.hang_after:
                return self._hang()
        return _NORMAL

    def _work(self, number: int) -> None:
        """The rank's own part of a step; in the second attempt that of the second rank takes longer for a while."""
        is_slow = self.attempt == 2 and self.rank == 1 and self.script.slow_from < number <= self.script.slow_until
        seconds = self.script.step_seconds * (self.script.slow_factor if is_slow else 1.0)
        time.sleep(seconds)
        self.own_seconds.append(seconds)

    def _record_step(self, number: int, begun: float) -> None:
        now = time.time()
        slow = self.attempt == 2 and self.script.slow_from < number <= self.script.slow_until
        _write_truth(self.folder, {"attempt": self.attempt, "step": number, "seconds": now - begun, "is_slow": slow})
        if number % self.script.log_every == 0:
            print_line(f"Step: {number}/{self.script.steps}, Loss: {2 + 5 / number:.5f}, Learning rate: 1.00000e-04")

    def _save_and_evaluate(self, number: int) -> None:
        """Save and evaluate after a step, both ranks together; each save takes longer than the one before."""
        if number % self.script.save_every == 0:
            share = self.script.save_every / self.script.steps
            with self._booked("checkpoint"):
                if self.rank == 0:
                    print_line(f"Writing checkpoint {self.folder}/{number}.checkpoint at step {number}")
                time.sleep(self.script.save_seconds * (1 + 2 * number / self.script.save_every * share))
                if self.rank == 0:
                    (self.folder / f"{number}.checkpoint").touch()
                    print_line(f"Saved checkpoint to {self.folder}/{number}.checkpoint at step {number}")
        if number % self.script.evaluate_every == 0:
            with self._booked("evaluation"):
                if self.rank == 0:
                    print_line("Starting evaluation")
                time.sleep(self.script.evaluation_seconds)

    def _hang(self) -> int:
        """Hang until the watchdog of the first rank gives up."""
        with self._booked("stalled"):
            time.sleep(self.script.hang_seconds)
        if self.rank == 0:
            print_line("[Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=7, OpType=ALLREDUCE)")
        return _WATCHDOG_EXIT

    @contextmanager
    def _booked(self, bucket: str) -> Iterator[None]:
        begun = time.time()
        yield
        if self.rank == 0:
            _write_truth(self.folder, {"attempt": self.attempt, "bucket": bucket, "seconds": time.time() - begun})


def print_line(line: str) -> None:
    """A line of the log, with its time."""
    moment = datetime.now().astimezone().isoformat(sep=" ", timespec="milliseconds")
    sys.stdout.write(f"{moment} {line}\n")
    sys.stdout.flush()


def _write_truth(folder: Path, entry: dict[str, Any]) -> None:
    with (folder / "truth.log").open("a") as file:
        file.write(json.dumps(entry) + "\n")


def right_ledger(folder: Path, script: Script) -> dict[str, float]:
    """The seconds of each bucket, from what the launcher and the first rank wrote down."""
    entries = [json.loads(line) for line in (folder / "truth.log").read_text().splitlines()]
    lives = {one["attempt"]: one for one in entries if "begun" in one}
    found = dict.fromkeys(("productive", "startup", "checkpoint", "evaluation", "slow", "stalled", "lost", "down"), 0.0)
    usual = sorted(one["seconds"] for one in entries if "step" in one and not one["is_slow"])
    pace = usual[len(usual) // 2]
    for attempt, life in lives.items():
        own = [one for one in entries if one.get("attempt") == attempt]
        steps = [one for one in own if "step" in one]
        later = lives.get(attempt + 1)
        left = life["ended"] - life["begun"]
        for one in own:
            if "bucket" in one:
                found[one["bucket"]] += one["seconds"]
                left -= one["seconds"]
        for one in steps:
            is_lost = later is not None and one["step"] > later["resumed"]
            slow = max(0.0, one["seconds"] - pace) if one["is_slow"] else 0.0
            found["slow"] += slow
            found["lost" if is_lost else "productive"] += one["seconds"] - slow
            left -= one["seconds"]
        found["startup"] += left  # what an attempt did besides is to start, and to end
        if later is not None:
            found["down"] += later["begun"] - life["ended"]
    return found


def run_role(arguments: Sequence[str]) -> int:
    """Be the launcher (FOLDER SCRIPT), or a rank of it (FOLDER ATTEMPT RESUMED SCRIPT)."""
    folder, script = Path(arguments[0]), Script(*json.loads(arguments[-1]))
    if len(arguments) == 2:
        run_script(script, folder)
        return 0
    rank = int(os.environ["RANK"])
    return ScriptedRank(script, folder, int(arguments[1]), rank, Peer.from_environment()).train(int(arguments[2]))


if __name__ == "__main__":
    sys.exit(run_role(sys.argv[1:]))
