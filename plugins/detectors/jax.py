"""JAX: told by what is loaded and set; its trainers print lines of their own (MaxText in its own file)."""

from __future__ import annotations

from lens_core import Detector, hookimpl


class Jax(Detector):
    """JAX."""

    name = "jax"
    layer = "base"
    modules = ("jax",)
    distributions = ("jax",)
    environment = ("JAX_BACKEND", "JAX_PLATFORMS")
    project_keywords = ("jax",)


@hookimpl
def lens_detectors() -> list[type[Detector]]:
    """The detector of this file."""
    return [Jax]
