"""The commands of `lens` that belong to Lens itself; a plugin's own come through the hook `lens_commands`."""

from __future__ import annotations

# In the order in which `lens --help` lists them.
OWN_COMMANDS = (
    "up",
    "demo",
    "run",
    "hook",
    "init",
    "validate",
    "schema",
    "plugins",
    "plugin",
    "graph",
    "explain",
    "status",
    "diagnose",
    "top",
    "tap",
    "doctor",
    "replay",
    "token",
    "collect",
    "db",
)
