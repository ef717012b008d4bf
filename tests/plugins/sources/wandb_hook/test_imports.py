"""The import finder among other people's: every import ends as it would without us, and wandb is seen."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.plugins.sources.wandb_hook.environments import HOOK
from tests.plugins.sources.wandb_hook.test_startup import python_of

# Imports a small `wandb` through random finders and loaders, as old and as odd as Python takes them, with the hook's
# finder and without it. Prints how many imports of each kind there were.
AMONG_OTHERS = """
import collections, importlib, random, sys, types, warnings
from importlib.machinery import ModuleSpec
warnings.simplefilter("ignore")
SOURCES = {
    "wandb": "from wandb.sdk import wandb_run, wandb_init",
    "wandb.sdk": "",
    "wandb.sdk.wandb_run": "class Run:\\n    def _log(self, data, step=None, commit=None): return 'logged'",
    "wandb.sdk.wandb_init": "",
}

def run_source(module, name):
    module.__path__ = []
    exec(SOURCES[name], module.__dict__)

class Modern:
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        run_source(module, module.__name__)

class Slotted(Modern):
    __slots__ = ()

class OfManySlots:
    __slots__ = ("more",)
    create_module, exec_module = Modern.create_module, Modern.exec_module

class Static:
    create_module = staticmethod(lambda spec: None)
    exec_module = staticmethod(lambda module: run_source(module, module.__name__))

class Stubborn(Modern):
    def __setattr__(self, name, value):
        raise RuntimeError("nothing can be set here")

class Hostile(Modern):
    def __getattribute__(self, name):
        if name in ("__dict__", "load_module"):
            raise RuntimeError("nothing can be read here")
        return object.__getattribute__(self, name)

class Old:
    def load_module(self, name):
        module = sys.modules.setdefault(name, types.ModuleType(name))
        run_source(module, name)
        return module

class Failing(Modern):
    def exec_module(self, module):
        raise ZeroDivisionError("a module that cannot be imported")

SHARED = Modern()
LOADERS = [Modern, Slotted, OfManySlots, lambda: Static, lambda: SHARED, Stubborn, Hostile, Old, Failing]

class Finding:
    def __init__(self, loader, names, found=True):
        self.loader, self.names, self.found = loader, names, found
    def find_spec(self, name, path=None, target=None):
        if name not in self.names or not self.found:
            return None
        return ModuleSpec(name, self.loader(), is_package=True)

class FindingOld:
    def __init__(self, names):
        self.names = names
    def find_module(self, name, path=None):
        return Old() if name in self.names else None

class Raising:
    def __init__(self, names):
        self.names = names
    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            raise LookupError(name)

def some_finders(random):
    names = [name for name in SOURCES if random.random() < 0.8]
    kind = random.randrange(8)
    if kind == 0:
        return object()  # a finder of no protocol at all
    if kind in (1, 2):
        return FindingOld(names)
    if kind == 3:
        return Raising(names[:1])
    return Finding(random.choice(LOADERS), names)

def outcome(seed, hooked):
    for name in list(sys.modules):
        if name.partition(".")[0] == "wandb":
            del sys.modules[name]
    vars(SHARED).clear()
    chosen = random.Random(seed)
    sys.meta_path[:] = [some_finders(chosen) for _ in range(chosen.randrange(1, 5))] + PYTHONS
    sys.meta_path.append(Finding(Modern, list(SOURCES)))
    if hooked:
        lens_hook.arm()
    try:
        wandb = importlib.import_module("wandb")
        __import__("colorsys"), sys.modules.pop("colorsys")
        run = wandb.wandb_run.Run()
        return "imported", run._log({"loss": 1}), wandb.wandb_run.Run
    except Exception as error:
        return type(error).__name__, str(error), None

PYTHONS = list(sys.meta_path)
import lens_hook
kinds = collections.Counter()
for seed in range(400):
    plain, seen = outcome(seed, False), outcome(seed, True)
    assert plain[:2] == seen[:2], (seed, plain, seen)
    if seen[0] == "imported":
        assert hasattr(vars(seen[2])["_log"], "_lens_hook_original"), seed
    kinds[seen[0]] += 1
assert kinds["imported"] > 100 and kinds["LookupError"] > 5 and kinds["ZeroDivisionError"] > 5, kinds
"""


@pytest.mark.parametrize("version", ["", "3.9", "3.10", "3.12", "3.13", "3.14"])
def test_imports_end_as_they_would_without_us(version: str, tmp_path: Path) -> None:
    python = python_of(version) if version else sys.executable
    if python is None:
        pytest.skip(f"does not apply: no Python {version} here")
    script = tmp_path / "script.py"
    script.write_text(AMONG_OTHERS)
    done = subprocess.run(
        [python, str(script)],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": str(HOOK),
            "HOME": str(tmp_path),
            "PRIMUS_LENS_WANDB_API_REPORTING": "off",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_a_process_without_stderr_imports_all_the_same() -> None:
    code = (
        "import sys, types, lens_hook; sys.stderr = None; "
        "lens_hook.on_import('wandb.sdk.wandb_run', types.SimpleNamespace()); print('alive')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOOK), "WORKLOAD_UID": "w"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "alive\n")


# Everything that the patches call is broken in turn, and all of it at once; the user's calls go on as they are.
BROKEN_INSIDE = """
import itertools, sys, types
import lens_hook
lens_hook.attach(reporting=False)
from lens_hook import buffer, process_end, runtime, session, tensorboard_source, tensorflow_source, wandb_source

def broken(*args, **options):
    raise ArithmeticError("a defect of the hook")

PLACES = [
    (wandb_source, "snapshot"), (wandb_source, "time"), (wandb_source, "_prepared"), (wandb_source, "_session_of"),
    (wandb_source, "run_facts"), (wandb_source, "run_id"), (wandb_source, "stands_back"), (wandb_source, "Summary"),
    (runtime, "get_runtime"), (runtime, "existing"), (runtime.Runtime, "open_session"),
    (runtime.Runtime, "close_session"), (buffer.Buffer, "append_row"), (buffer.Buffer, "_attend"),
    (session.Session, "define_axis"), (session.Session, "__init__"),
    (tensorboard_source, "scalars"), (tensorboard_source, "session_of"), (process_end, "describe_end"),
]

def classes():
    class Run:
        id, project, name, tags, config, _step, _exit_code = "r", "p", "n", ("a",), {"lr": 1}, 0, 1
        def _log(self, data, step=None, commit=None): return "logged", data, step
        def _on_start(self): return "started"
        def _on_finish(self): return "finished"
        def _define_metric(self, name, step_metric=None, step_sync=None): return "defined"
        def _config_callback(self, *args): return "configured"
        def _summary_update_callback(self, record): return "summary"
    class EventFileWriter:
        def add_event(self, event): return "written"
        def get_logdir(self): return "runs"
    wandb_source.on_wandb_run(types.SimpleNamespace(Run=Run))
    tensorboard_source.on_event_file_writer(types.SimpleNamespace(EventFileWriter=EventFileWriter))
    return Run(), EventFileWriter()

def calls():
    run, writer = classes()
    row = {"loss": 1.0}
    summary = types.SimpleNamespace(value=[])
    event = types.SimpleNamespace(HasField=lambda name: True, summary=summary, step=1, wall_time=1.0)
    record = types.SimpleNamespace(update=[types.SimpleNamespace(key=("best",), value=1.0)])
    assert run._on_start() == "started"
    for _ in range(3):
        assert run._log(row, 3) == ("logged", row, 3)
    assert run._log(None) == ("logged", None, None)
    assert run._define_metric("loss", "epoch") == "defined"
    assert run._config_callback() == "configured"
    assert run._summary_update_callback(record) == "summary"
    assert run._summary_update_callback(None) == "summary"
    assert writer.add_event(event) == "written"
    assert writer.add_event(None) == "written"
    assert run._on_finish() == "finished"

calls()
for chosen in [*([place] for place in PLACES), *itertools.combinations(PLACES, 2), PLACES]:
    kept = [(owner, name, getattr(owner, name)) for owner, name in chosen]
    for owner, name, _ in kept:
        setattr(owner, name, broken)
    try:
        calls()
    finally:
        for owner, name, value in kept:
            setattr(owner, name, value)
sys.stderr.flush()
"""


def test_a_defect_inside_a_patch_never_reaches_the_users_call(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BROKEN_INSIDE)
    done = subprocess.run(
        [sys.executable, str(script)],
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(HOOK), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stderr.splitlines()
    assert len(lines) == len({line.split(":")[1] for line in lines}), "each kind is said once"
