"""The public name of the records for plugins; they are defined in `lens_core.model.records`."""

from .model.records import *  # noqa: F403
