"""Virtual environments with real packages, made once and kept; scripts that run in them with the hook on.

`python -m tests.plugins.sources.wandb_hook.environments` makes those that are missing, so that no test waits for
packages; `--night` makes those of the night's tests, too.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from tests.durations import preparing
from tests.side_by_side import SELDOM_GARBAGE

ROOT = Path(__file__).resolve().parents[4]
HOOK = ROOT / "plugins" / "sources" / "wandb_hook"
BOOTSTRAP = HOOK / "lens_hook" / "bootstrap"
CACHE = Path(os.environ.get("LENS_TEST_ENVIRONMENTS", "~/.cache/lens-test-environments")).expanduser()

WANDB_VERSIONS: dict[str, Sequence[str]] = {
    "0.16.6": ("wandb==0.16.6", "numpy<2", "setuptools<81"),
    "0.19.11": ("wandb==0.19.11", "numpy"),
    "0.22.3": ("wandb==0.22.3", "numpy"),
    "0.31.0": ("wandb==0.31.0", "numpy", "psutil"),
}
NEWEST = "0.31.0"
TORCH: Sequence[str] = (
    "torch==2.13.0",
    "numpy",
    "wandb==0.31.0",
    "transformers",
    "accelerate",
    "lightning",
    "tensorboard",
    "tensorboardX",
    "psutil",
)
# Every tracker and framework that the hook has a file for, together.
TRACKERS: Sequence[str] = (
    *("torch==2.13.0", "numpy", "transformers", "accelerate", "lightning", "keras", "torchtitan==0.3.0"),
    *("ray[train]==2.60.0", "wandb==0.31.0", "tensorboard", "mlflow==3.17.2", "trackio==0.43.0", "swanlab==0.10.3"),
    *("comet_ml==3.58.8", "clearml==2.1.12", "aim==3.29.1", "setuptools<81"),
)
# The oldest of each kind whose functions differ from today's.
OLD_TRACKERS: Sequence[str] = (
    "mlflow==2.22.5",
    "swanlab==0.7.6",
    "comet_ml==3.47.6",
    "clearml==1.18.0",
    "sqlalchemy<2.1",
    "setuptools<81",
)
TENSORFLOW: Sequence[str] = ("tensorflow-cpu==2.21.0", "tensorboard")
DLROVER: Sequence[str] = ("dlrover[k8s]==0.6.1", "protobuf")
EXPORTER: Sequence[str] = ("primus-lens-wandb-exporter==0.2.0", "wandb==0.31.0", "numpy", "psutil")
NOTEBOOK: Sequence[str] = ("wandb==0.31.0", "ipykernel", "jupyter_client")
# Of the W&B API, the version whose lazy runs have texts for summaries.
WANDB_LAZY: Sequence[str] = ("wandb==0.22.2",)
# ClickHouse's engine, which brings a pyarrow of its own.
CHDB: Sequence[str] = ("chdb-core==26.9.0",)
# Those that take long to make come first.
EVERY: Mapping[str, Sequence[str]] = {
    "torch-2.13.0": TORCH,
    "trackers": TRACKERS,
    "old-trackers": OLD_TRACKERS,
    "tensorflow-2.21.0": TENSORFLOW,
    "dlrover": DLROVER,
    "upstream-exporter": EXPORTER,
    "wandb-0.22.2": WANDB_LAZY,
    "notebook": NOTEBOOK,
    "chdb": CHDB,
    **{f"wandb-{version}": packages for version, packages in WANDB_VERSIONS.items()},
}
# Those that only tests of the night need (tests/night.yaml).
NIGHT = {"tensorflow-2.21.0", "wandb-0.22.2", *(f"wandb-{version}" for version in WANDB_VERSIONS if version != NEWEST)}
DAY = [name for name in EVERY if name not in NIGHT]
# npm's packages for tests with node.
GRAFANA_DATA = "@grafana/data@13.2.3"


class Environment:
    """A virtual environment that scripts are run in."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.python = str(directory / "bin" / "python")

    @property
    def packages(self) -> Path:
        """The folder of its packages."""
        return next(self.directory.glob("lib/python*/site-packages"))

    def run(
        self,
        script: str,
        work: Path,
        variables: Mapping[str, str] | None = None,
        *,
        launcher: Sequence[str] = (),
        seconds: float = 600.0,
        check: bool = True,
    ) -> subprocess.CompletedProcess[str]:
        """Run `script` to its end; with `check` it must have succeeded."""
        process = subprocess.Popen(
            [*(launcher or [self.python]), str(write_script(script, work))],
            env=self.variables(work, variables),
            cwd=work,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            stdout, stderr = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGABRT)  # prints the stacks of all threads
            stdout, stderr = process.communicate()
            raise AssertionError(f"it did not end within {seconds:g} s\n{stdout}{stderr}") from None
        assert not check or process.returncode == 0, stdout + stderr
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    def start(
        self, script: str, work: Path, variables: Mapping[str, str] | None = None, *, stdin: int | None = None
    ) -> subprocess.Popen[str]:
        """Start `script`; the caller ends it."""
        return subprocess.Popen(
            [self.python, str(write_script(script, work))],
            env=self.variables(work, variables),
            cwd=work,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def variables(self, work: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a training process: the hook on the path and armed, wandb offline."""
        return {
            "PATH": f"{self.directory}/bin:/usr/bin:/bin",
            "HOME": str(work),
            "PYTHONPATH": str(BOOTSTRAP),
            "WANDB_MODE": "offline",
            "WANDB_DIR": str(work),
            "WANDB_SILENT": "true",
            "WANDB_ERROR_REPORTING": "false",
            "PRIMUS_LENS_FLUSH_INTERVAL_SECONDS": "0.2",
            "HF_HUB_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",  # small tensors: more threads would only look for work
            "CLEARML_CONFIG_FILE": str(Path(__file__).with_name("clearml.conf")),
            "PYTHONFAULTHANDLER": "1",
            **(more or {}),
        }


def write_script(script: str, work: Path) -> Path:
    """`script`, without its indentation, as a file in `work`."""
    path = work / f"script_{len(list(work.glob('script_*.py')))}.py"
    path.write_text(textwrap.dedent(script))
    return path


def environment(name: str, packages: Sequence[str], python: str = sys.executable) -> Environment:
    """The cached environment `name` with exactly `packages` asked for; made anew if that list has changed."""
    if os.environ.get("LENS_WHOLE_RUN") == "day" and name not in DAY:
        raise AssertionError(f"a test of the day needs the environment {name}, which is not made before: see NIGHT")
    found = CACHE / name
    if _is_complete(found, packages):
        return _with_seldom_garbage(Environment(found))
    CACHE.mkdir(parents=True, exist_ok=True)
    with preparing(), (CACHE / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # test processes may run side by side
        return _made(found, packages, python)


def _is_complete(directory: Path, packages: Sequence[str]) -> bool:
    mark = directory / ".complete"
    return mark.exists() and mark.read_text().strip() == " ".join(packages)


def _made(directory: Path, packages: Sequence[str], python: str) -> Environment:
    if not _is_complete(directory, packages):
        shutil.rmtree(directory, ignore_errors=True)
        subprocess.run([python, "-m", "venv", str(directory)], check=True, capture_output=True, timeout=240)
        pip = [str(directory / "bin" / "python"), "-m", "pip", "-q", "install", "--disable-pip-version-check"]
        done = subprocess.run([*pip, *packages], capture_output=True, text=True, timeout=900, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        if any(directory.glob("lib/python*/site-packages/nvidia")):
            # pip prefers a CPU build of the same version, wherever its configuration finds one.
            print(
                f"{directory.name} got GPU builds, gigabytes of them: let pip know where CPU builds are "
                "(PIP_FIND_LINKS or PIP_EXTRA_INDEX_URL)",
                file=sys.stderr,
            )
        (directory / ".complete").write_text(" ".join(packages))
    return _with_seldom_garbage(Environment(directory))


def _with_seldom_garbage(made: Environment) -> Environment:
    """Have its processes look for garbage as seldom as tests do: that takes up to a seventh of importing trackers."""
    file = made.packages / "seldom_garbage.pth"
    if not file.exists() or file.read_text() != SELDOM_GARBAGE:
        whole = file.with_suffix(f".{os.getpid()}")  # processes that begin meanwhile read all of it or nothing
        whole.write_text(SELDOM_GARBAGE)
        whole.rename(file)
    return made


def node_packages(package: str) -> Path:
    """The cached folder in whose `node_modules` npm has installed a package."""
    folder = CACHE / package.replace("/", "-").strip("@")
    CACHE.mkdir(parents=True, exist_ok=True)
    with preparing(), folder.with_name(f"{folder.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / ".complete").exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            command = ["npm", "install", "--no-audit", "--no-fund", "--silent", "--prefix", str(folder), package]
            subprocess.run(command, check=True, timeout=900, stdout=subprocess.DEVNULL)
            (folder / ".complete").touch()
    return folder


def make_missing(names: Iterable[str]) -> None:
    """Make what is missing, one at a time for each core; what cannot be made is said, and left to its tests."""
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made: dict[str, Future[object]] = {name: pool.submit(environment, name, EVERY[name]) for name in names}
        if shutil.which("npm"):
            made[GRAFANA_DATA] = pool.submit(node_packages, GRAFANA_DATA)
    for name, done in made.items():
        if error := done.exception():
            print(f"{name} could not be made: {error}", file=sys.stderr)


if __name__ == "__main__":
    make_missing(EVERY if "--night" in sys.argv[1:] else DAY)
