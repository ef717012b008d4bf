"""Additions of `lens run` to a command's environment: the bootstrap folder first on PYTHONPATH, and nothing on disk."""

from __future__ import annotations

import os
from collections.abc import Mapping

_PACKAGE = os.path.dirname(os.path.abspath(__file__))
LOCAL_BASE_URL = "http://127.0.0.1:8080/api/v1"


def run_environment(environment: Mapping[str, str], base_url: str | None = None) -> dict[str, str]:
    """A copy of `environment` in which every Python process arms the hook at its start.

    A receiver that the environment names already stays; else `base_url`, else the local daemon.
    """
    changed = dict(environment)
    existing = [entry for entry in changed.get("PYTHONPATH", "").split(os.pathsep) if entry]
    # Not the folder that the package lies in: it may hold a whole environment's packages, which would hide the job's.
    bootstrap = os.path.join(_PACKAGE, "bootstrap")
    changed["PYTHONPATH"] = os.pathsep.join([bootstrap, *(entry for entry in existing if entry != bootstrap)])
    if not changed.get("PRIMUS_LENS_API_BASE_URL", "").strip() and not changed.get("LENS_CONFIG", "").strip():
        changed["PRIMUS_LENS_API_BASE_URL"] = base_url or LOCAL_BASE_URL
    return changed
