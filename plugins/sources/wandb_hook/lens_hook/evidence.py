"""Raw facts about a run: what is loaded, what is set, what the run was configured with. No rules about frameworks."""

from __future__ import annotations

import os
import re
import sys
import time
from typing import Any

from . import say
from .process_facts import process_facts
from .redact import bounded
from .session import Session

ENVIRONMENT = (
    "FRAMEWORK",
    "TRAINING_FRAMEWORK",
    "PRIMUS_CONFIG",
    "PRIMUS_VERSION",
    "PRIMUS_BACKEND",
    "DEEPSPEED_CONFIG",
    "DEEPSPEED_VERSION",
    "DS_CONFIG",
    "MEGATRON_CONFIG",
    "MEGATRON_LM_PATH",
    "JAX_BACKEND",
    "JAX_PLATFORMS",
    "PL_TRAINER_GPUS",
    "TRANSFORMERS_CACHE",
    "ACCELERATE_MIXED_PRECISION",
    "ACCELERATE_USE_DEEPSPEED",
    "ACCELERATE_USE_FSDP",
    "TORCHELASTIC_RUN_ID",
    "WORLD_SIZE",
    "RANK",
    "LOCAL_RANK",
    "MASTER_ADDR",
    "MASTER_PORT",
    "WORKLOAD_UID",
    "POD_UID",
    "POD_NAME",
    "POD_NAMESPACE",
    "IMAGE_TAG",
)
_PREFIXES = ("PRIMUS_", "DEEPSPEED_", "MEGATRON_", "MAXTEXT_", "NEMO_", "TORCHTITAN_")
_OWN_PREFIX = "PRIMUS_LENS_"
_SOURCES = {"wandb": "wandb", "tensorflow": "tensorboard"}  # of evidence, by data source
_LOOK_SECONDS = 10.0
_MAX_SENT = 20
_MAX_MODULES = 1500
_STDLIB: frozenset[str] = frozenset(getattr(sys, "stdlib_module_names", sys.builtin_module_names))
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,99}\Z")
_VERSION = re.compile(r"[A-Za-z0-9.+!_\-]{1,60}\Z")


class Watch:
    """Knows which sessions need evidence: new ones, changed configurations, and frameworks imported since."""

    def __init__(self) -> None:
        self._seen: frozenset[str] = frozenset()
        self._module_count = 0
        self._look_at = 0.0

    def due(self, sessions: list[Session], *, final: bool) -> list[tuple[Session, str, dict[str, Any]]]:
        """Sessions whose evidence has to be sent now, with it."""
        if not sessions or (not final and not self._time_to_look(sessions)):
            return []
        self._notice_modules(sessions)
        found: list[tuple[Session, str, dict[str, Any]]] = []
        for session in sessions:
            if not session.evidence_due:
                continue
            session.evidence_due = False
            if session.evidence_sent == _MAX_SENT:
                say.once("evidence", f"the evidence of a run was sent {_MAX_SENT} times; later changes are not told")
            else:
                session.evidence_sent += 1
                source = _SOURCES.get(session.data_source, "tracker")
                found.append((session, source, collect_facts(session)))
        return found

    def _time_to_look(self, sessions: list[Session]) -> bool:
        now = time.monotonic()
        new = any(session.evidence_due and (session.ended or not session.evidence_sent) for session in sessions)
        if not new and now < self._look_at:
            return False
        self._look_at = now + _LOOK_SECONDS
        return True

    def _notice_modules(self, sessions: list[Session]) -> None:
        if len(sys.modules) == self._module_count:
            return
        self._module_count = len(sys.modules)
        names = frozenset(top_level_modules())
        if not names <= self._seen:
            for session in sessions:
                session.evidence_due = session.evidence_due or (session.wants_evidence and not session.ended)
        self._seen = self._seen | names


def top_level_modules() -> list[str]:
    """Names of the loaded top-level modules that are not the standard library's."""
    found = {name for name in list(sys.modules) if "." not in name}
    return sorted(name for name in found if name not in _STDLIB and _NAME.match(name) and _is_public(name))


def _is_public(name: str) -> bool:
    if _has_no_stdlib_list() and getattr(sys.modules.get(name), "__file__", None):
        return "site-packages" in str(sys.modules[name].__file__) or "dist-packages" in str(sys.modules[name].__file__)
    return True


def _has_no_stdlib_list() -> bool:
    return not hasattr(sys, "stdlib_module_names")  # Python 3.9


def collect_facts(session: Session) -> dict[str, Any]:
    """The facts of the wire's evidence record."""
    known = session.facts() if callable(session.facts) else session.facts
    facts = {key: value() if callable(value) else value for key, value in known.items()}
    if not session.wants_evidence:  # another session says the rest
        return dict(bounded(facts))
    return {
        **bounded(facts),
        "process": process_facts(os.environ),
        "environment": environment_facts(),
        "pytorch": pytorch_facts(),
        "modules": {name: module_version(name) for name in top_level_modules()[:_MAX_MODULES]},
        "system": {
            "python_version": ".".join(map(str, sys.version_info[:3])),
            "python_executable": sys.executable or "",
            "platform": _platform(),
        },
    }


def _platform() -> str:
    """System, release and machine; `platform.platform()` would read through the interpreter's binary for more."""
    if not hasattr(os, "uname"):
        return sys.platform
    name = os.uname()
    return f"{name.sysname}-{name.release}-{name.machine}"


def environment_facts() -> dict[str, str]:
    """The framework variables that are set."""
    wanted = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    for name in sorted(os.environ):
        if name.startswith(_PREFIXES) and not name.startswith(_OWN_PREFIX) and len(wanted) < 100:
            wanted[name] = os.environ[name]
    facts = bounded(wanted)
    return facts if isinstance(facts, dict) else {}


def module_version(name: str) -> str | None:
    """Return the version that the loaded module declares; asks neither the disk nor a lazy attribute."""
    module = sys.modules.get(name)
    names = getattr(module, "__dict__", {})
    lazy = names.get("_objects")  # the place where lazy modules of transformers and its relatives keep it
    version = names.get("__version__") or (isinstance(lazy, dict) and lazy.get("__version__")) or names.get("version")
    return version[:60] if isinstance(version, str) and _VERSION.match(version) else None


def pytorch_facts() -> dict[str, Any]:
    """PyTorch as far as it is loaded; no device call, so `cuda_available` is null unless CUDA runs already."""
    torch = sys.modules.get("torch")
    if torch is None or "torch.version" not in sys.modules:
        return {"available": False}
    version = sys.modules["torch.version"].__dict__
    cuda = sys.modules.get("torch.cuda")
    running = bool(cuda is not None and cuda.__dict__.get("_initialized", False))
    built = version.get("cuda") or version.get("hip")
    return {
        "available": True,
        "version": str(torch.__dict__.get("__version__", "")),
        "cuda_version": version.get("cuda"),
        "hip_version": version.get("hip"),
        "cuda_available": True if running else (None if built else False),
    }
