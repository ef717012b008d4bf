"""Lens inside a training process: see every metric that is logged, never be noticed.

This module runs at the start of every Python process of an environment that has the hook installed, before
anything else, so it imports nothing but two modules that are always there (and for the same reason has no
`from __future__` line, which is an import too). Everything else is imported when a tracker is.
"""

import _thread
import sys

__version__ = "0.1.0"
__all__ = ["VARIABLES", "add_tracker", "arm", "attach", "install_wandb_hook", "run_environment"]

# Every variable that the hook reads; one of them being set arms it (lens_hook.pth holds the same list).
VARIABLES = (
    "PRIMUS_LENS_WANDB_HOOK",
    "PRIMUS_LENS_TRACKERS",
    "PRIMUS_LENS_WANDB_API_REPORTING",
    "PRIMUS_LENS_API_BASE_URL",
    "PRIMUS_LENS_API_TOKEN",
    "PRIMUS_LENS_PROXY",
    "PRIMUS_LENS_FLUSH_INTERVAL_SECONDS",
    "PRIMUS_LENS_BATCH_SIZE",
    "PRIMUS_LENS_QUEUE_BYTES",
    "PRIMUS_LENS_EXIT_DEADLINE_SECONDS",
    "PRIMUS_LENS_SPOOL_PATH",
    "PRIMUS_LENS_SPOOL_SYNC_SECONDS",
    "PRIMUS_LENS_WANDB_SAVE_LOCAL",
    "PRIMUS_LENS_WANDB_OUTPUT_PATH",
    "PRIMUS_LENS_WANDB_ENHANCE_METRICS",
    "PRIMUS_LENS_WANDB_DEBUG",
    "LENS_CONFIG",
    "WORKLOAD_UID",
    "POD_UID",
    "POD_NAME",
    "POD_NAMESPACE",
    "RANK",
    "LOCAL_RANK",
    "NODE_RANK",
    "SLURM_NODEID",
    "PET_NODE_RANK",
    "WORLD_SIZE",
    "SLURM_JOB_ID",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_JOB_NAME",
    "SLURMD_NODENAME",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NTASKS",
)

# The trackers, and the frameworks that log by themselves: for each the modules whose import we wait for, and the part
# of this package that is then called with the module. `PRIMUS_LENS_TRACKERS` chooses among these names.
TRACKERS = {
    "wandb": {
        "wandb.sdk.wandb_run": "wandb_source:on_wandb_run",
        "wandb.sdk.wandb_init": "wandb_source:on_wandb_init",
        "wandb": "wandb_source:on_wandb",
    },
    "tensorboard": {
        "tensorboard.summary.writer.event_file_writer": "tensorboard_source:on_event_file_writer",
        "tensorboardX.event_file_writer": "tensorboard_source:on_event_file_writer",
        "tensorflow.python.ops.summary_ops_v2": "tensorflow_source:on_summary_ops",
    },
    "mlflow": {"mlflow.tracking._tracking_service.client": "trackers.mlflow:patch_mlflow"},
    "trackio": {"trackio.run": "trackers.trackio:patch_trackio"},
    "swanlab": {
        "swanlab.sdk.internal.run": "trackers.swanlab:patch_swanlab",
        "swanlab.data.run.main": "trackers.swanlab:patch_old_swanlab",
    },
    "comet": {"comet_ml.experiment": "trackers.comet:patch_comet"},
    "clearml": {
        "clearml.backend_interface.metrics.reporter": "trackers.clearml:patch_clearml",
        "clearml.binding.frameworks.tensorflow_bind": "trackers.clearml:patch_mirror",
    },
    "aim": {"aim.sdk.tracker": "trackers.aim:patch_aim"},
    "transformers": {"transformers.trainer_callback": "trackers.transformers:patch_transformers"},
    "lightning": {
        "lightning.pytorch.trainer.connectors.logger_connector.logger_connector": "trackers.lightning:patch_lightning",
        "pytorch_lightning.trainer.connectors.logger_connector.logger_connector": "trackers.lightning:patch_lightning",
    },
    "accelerate": {"accelerate.accelerator": "trackers.accelerate:patch_accelerate"},
    "keras": {"keras.src.callbacks.callback_list": "trackers.keras:patch_keras"},
    "ray": {
        "ray.train.v2._internal.execution.context": "trackers.ray:patch_ray",
        "ray.train._internal.session": "trackers.ray:patch_old_ray",
    },
    "torchtitan": {"torchtitan.components.metrics": "trackers.torchtitan:patch_torchtitan"},
}
# By module: the tracker's name, and the function that is called, or where it is ("package.module:function").
TARGETS: "dict[str, tuple[str, object]]" = {
    module: (tracker, f"lens_hook.{place}")
    for tracker, modules in TRACKERS.items()
    for module, place in modules.items()
}
# The first import of one of these, or of a module of `TARGETS`, makes other distributions' trackers known: reading
# their entry points takes longer than a small command runs.
FRAMEWORKS = frozenset({"torch", "jax", "tensorflow", "paddle", "mindspore"})


class Finder:
    """Stands first in `sys.meta_path` and lets every import pass but those of `TARGETS`.

    It stays there: `find_spec("wandb")` by somebody who only asks whether wandb exists must not use it up.
    """

    def __init__(self) -> None:
        self.busy: set[tuple[str, int]] = set()  # the names that each thread is looking up through the other finders
        self.unwatched: list[str] = []  # modules whose loader cannot tell us; looked for at the next imports

    def find_spec(self, name: str, path: "object" = None, target: "object" = None) -> "object":
        """The spec that the other finders have for `name`, whose loader then tells us; raises only what they raise."""
        if self.unwatched:
            self._find_unwatched()
        if name not in TARGETS:
            if name in FRAMEWORKS:
                complete()
            return None
        lookup = (name, _thread.get_ident())
        if lookup in self.busy:
            return None
        self.busy.add(lookup)
        try:
            spec = _find_through_others(name, path, target)
        finally:
            self.busy.discard(lookup)
        complete()
        if not _notify_after(getattr(spec, "loader", None), name) and name not in self.unwatched:
            self.unwatched.append(name)
        return spec

    def _find_unwatched(self) -> None:
        for name in list(self.unwatched):
            module = sys.modules.get(name)
            if module is not None and not getattr(getattr(module, "__spec__", None), "_initializing", False):
                self.unwatched.remove(name)
                on_import(name, module)


def _find_through_others(name: str, path: "object", target: "object") -> "object":
    """Ask all finders of Python but ours, which is busy; finders of the old protocol included."""
    import _frozen_importlib  # importlib's core: always loaded, and the only one that knows the old protocol

    find = getattr(_frozen_importlib, "_find_spec", None)
    return find(name, path, target) if find is not None else None  # None: Python goes on without us


def _notify_after(loader: "object", name: str) -> bool:
    """Have `on_import(name)` called once `loader` has executed the module; False where that cannot be had.

    The method is replaced on this one loader object, which keeps its type and all that it can do besides.
    """
    try:
        method = "exec_module" if hasattr(loader, "exec_module") else "load_module"
        execute = getattr(loader, method)
        if isinstance(loader, type) or not hasattr(loader, "__dict__"):
            return False  # a class is the loader of other modules, too
    except Exception:  # noqa: BLE001 - a loader may be anything; the user's import must not fail
        return False

    def execute_and_tell(module: "object") -> "object":
        if getattr(module, "__name__", module) != name:  # one loader for many modules
            return execute(module)
        loader.__dict__.pop(method, None)
        result = execute(module)
        on_import(name, sys.modules.get(name, module))
        return result

    try:
        setattr(loader, method, execute_and_tell)
    except Exception:  # noqa: BLE001 - as above
        return False
    return True


_is_complete = False  # whether the trackers of other distributions are known
_complained: "set[str]" = set()


def complete() -> None:
    """Make the trackers known that other distributions bring; once, and never raises."""
    global _is_complete
    if _is_complete:
        return
    _is_complete = True
    try:
        __import__("lens_hook.discovery", fromlist=["discovery"]).add_installed_trackers()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a distribution's metadata may be anything
        _complain("the trackers of other distributions", error)


def _complain(name: str, error: BaseException) -> None:
    """Say once for each module that the hook does not see it; never raises."""
    if name in _complained:
        return
    _complained.add(name)
    try:
        sys.stderr.write(f"lens-hook: off for {name}: {type(error).__name__}: {error}\n")
    except Exception:  # noqa: BLE001 - no stderr, or an error without a text: there is nobody to tell
        return


def on_import(name: str, module: "object") -> None:
    """Tell the part of this package that waits for `name` that it has been imported; never raises."""
    tracker, patch = TARGETS[name]
    try:
        __import__("lens_hook.discovery", fromlist=["discovery"]).patch_module(tracker, patch, module)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a user's own `secrets.py` in the place of Python's may do anything
        _complain(name, error)


def arm() -> None:
    """Wait for the trackers to be imported; calling it again does nothing."""
    if not any(type(finder).__name__ == "Finder" and type(finder).__module__ == __name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, Finder())  # type: ignore[arg-type]


def arm_from_environment() -> None:
    """Arm the hook if one of its variables is set; what `lens_hook.start` names (PEP 829)."""
    import os

    if any(name in os.environ for name in VARIABLES):
        arm()


def attach(config: "str | None" = None, **options: "object") -> None:
    """Switch the hook on in this process, also when wandb has been imported already.

    `config` is the path of a YAML file and starts a private daemon (embedded mode); `options` are the fields of
    `lens_hook.settings.Settings` and win over the environment. An unknown option raises TypeError.
    """
    from .attaching import attach as attach_now

    attach_now(config, options)


install_wandb_hook = attach


def add_tracker(name: str, module: str, patch: "object") -> None:
    """Have `patch(module)` called as soon as `module` is imported, or now if it has been; `name` is the tracker's.

    `patch` is a function, or where one is: "package.module:function".
    """
    from .discovery import add_tracker as add_now

    add_now(name, module, patch)  # type: ignore[arg-type]  # it looks


def run_environment(environment: "dict[str, str]", base_url: "str | None" = None) -> "dict[str, str]":
    """`environment` with what `lens run` adds: the hook armed, sending to `base_url` unless told otherwise."""
    from .launch import run_environment as build

    return build(environment, base_url)
