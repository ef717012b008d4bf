"""Facts of wandb about a run, read without disturbing it."""

from __future__ import annotations

from typing import Any

from . import say


def run_id(run: Any) -> str:
    """The run's id; empty where it cannot be read."""
    return str(_read_attribute(run, "id") or "")[:500]


def run_facts(run: Any) -> dict[str, Any]:
    """Return wandb's facts about the run; the configuration is read when evidence is made."""
    config = _read_attribute(run, "config")

    def wandb_facts() -> dict[str, Any]:
        tags = _read_attribute(run, "tags")
        url = None if _read_attribute(run, "offline") else _read_attribute(run, "url")
        return {
            **({"url": url} if isinstance(url, str) and url else {}),
            "project": _read_attribute(run, "project"),
            "name": _read_attribute(run, "name"),
            "id": _read_attribute(run, "id"),
            "tags": list(tags) if isinstance(tags, (list, tuple)) else [],
            "config": _config(config),
        }

    return {"wandb": wandb_facts}


def _config(config: Any) -> Any:
    try:
        return config.as_dict() if hasattr(config, "as_dict") else dict(config or {})
    except Exception as error:  # noqa: BLE001 - the user's own code may fail in any way
        return {"...": f"unreadable: {type(error).__name__}"}


def _read_attribute(run: Any, name: str) -> Any:
    try:
        return getattr(run, name, None)
    except Exception as error:  # noqa: BLE001 - wandb's own errors for runs in some states
        say.debug(f"run.{name} is not readable: {type(error).__name__}")
        return None
