"""One listing of a project's runs through the real `wandb.Api`, page by page, without a request per run.

wandb's paginator asks for pages and would make an object of each run: objects that ask the server about their type
(0.19 to 0.26), for their sweep, or for their summary (lazy ones), that stop at a summary which is no JSON, and that
all stay in memory. Here the paginator's `convert_objects` is replaced by one that hands the page's nodes over and
keeps nothing of them; logging in, retrying, paging and the query stay wandb's own.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, TypeVar

import httpx

from lens_core import LensError

from .figures import Access

Node = Mapping[str, Any]
T = TypeVar("T")

_REACH_SECONDS = 5.0


def window_filter(begins: float) -> dict[str, Any]:
    """Running whatever its age, or with a heartbeat since `begins`; evaluated by the server."""
    since = datetime.fromtimestamp(begins, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"$or": [{"state": "running"}, {"heartbeatAt": {"$gte": since}}]}


def connect_api(access: Access, request_timeout_seconds: int, folder: Path) -> Any:
    """A `wandb.Api`. Raises LensError when the key is refused, or the server cannot be asked.

    Whatever wandb keeps on disk goes to `folder`: neither a home nor a settings file of somebody's is read or written.
    """
    _ensure_reachable(access, request_timeout_seconds)
    folders = dict.fromkeys(("WANDB_DIR", "WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"), str(folder))
    os.environ.update(folders, WANDB_SILENT="true", WANDB_ERROR_REPORTING="false", WANDB_BASE_URL=access.base_url)
    import wandb

    return _asking(
        access,
        lambda: wandb.Api(
            api_key=access.api_key.reveal(),
            overrides={"base_url": access.base_url, "entity": access.entity, "project": access.project},
            timeout=request_timeout_seconds,
        ),
    )


def _ensure_reachable(access: Access, request_timeout_seconds: int) -> None:
    """Raise LensError if nothing answers there: wandb tries for half a minute and then calls it a refused key."""
    limit = min(_REACH_SECONDS, float(request_timeout_seconds))
    try:
        httpx.head(access.base_url, timeout=httpx.Timeout(limit, connect=limit))
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError) as error:
        if "certificate" in str(error).lower() or "ssl" in str(error).lower():
            return  # wandb's own client may know a certificate that this one does not
        raise LensError(
            f"{access.base_url} cannot be reached: {type(error).__name__}: {error}; check `base_url`, the network "
            "and the proxy"
        ) from None
    except (httpx.HTTPError, httpx.InvalidURL):
        return  # something is there; what it says is for wandb to judge


def list_runs(api: Any, access: Access, filters: dict[str, Any], page_size: int, take: Callable[[Node], None]) -> int:
    """Hand every run of the listing to `take`; the number of runs. Raises LensError with what the server said."""
    api.flush()  # listings are cached by path, filter and order
    options = {"lazy": False, "include_sweeps": False}
    known = inspect.signature(api.runs).parameters
    listing = api.runs(
        access.path,
        filters=filters,
        order="+created_at",
        per_page=page_size,
        **{name: value for name, value in options.items() if name in known},
    )

    def convert_objects() -> list[None]:
        project = (listing.last_response or {}).get("project")
        if project is None:
            raise LensError(f"{access.base_url} knows no project {access.path}, or this key may not see it")
        nodes = [edge["node"] for edge in project["runs"]["edges"]]
        for node in nodes:
            take(node)
        return [None] * len(nodes)

    listing.convert_objects = convert_objects
    return _asking(access, lambda: sum(1 for _ in listing))


def _asking(access: Access, ask: Callable[[], T]) -> T:
    """Translate wandb's errors into messages that say what to do and never show the key."""
    try:
        return ask()
    except LensError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever wandb and its transport raise is said in words
        text = " ".join(str(error).split()).replace(access.api_key.reveal(), "***")[:500]
        if _is_about_the_key(error, text):
            raise LensError(
                f"{access.base_url} refused the API key (or it is no key): {text}; see WANDB_API_KEY or `api_key`"
            ) from None
        raise LensError(f"{access.base_url}: {type(error).__name__}: {text}") from None


def _is_about_the_key(error: Exception, text: str) -> bool:
    """wandb 0.31 raises AuthenticationError for a server that is slow, too."""
    about = type(error).__name__ in ("AuthenticationError", "UsageError") or "401" in text
    lowered = text.lower()
    return about and not any(word in lowered for word in ("timeout", "timed out", "deadline", "500", "502", "503"))
