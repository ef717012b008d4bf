"""Reading the query parameters of the query routes; each mistake is a 400 that names the parameter."""

from __future__ import annotations

from starlette.requests import Request

from ..errors import BadRequest
from ..queries import PointQuery


def workload_uid(request: Request) -> str:
    """The workload of the path. Raises BadRequest when it is missing."""
    uid: str = request.path_params.get("uid", "").strip()
    if not uid:
        raise BadRequest("workload_uid is required")
    return uid


def integer(request: Request, name: str, *, minimum: int | None = None, maximum: int | None = None) -> int | None:
    """An optional whole number."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise BadRequest(f"{name} must be a whole number, not {text[:50]!r}") from None
    if (minimum is not None and number < minimum) or (maximum is not None and number > maximum):
        raise BadRequest(f"{name} must be between {minimum} and {maximum}, not {number}")
    return number


def time_ms(request: Request, name: str) -> int | None:
    """An optional time, in milliseconds since the epoch."""
    text = request.query_params.get(name, "").strip()
    if not text:
        return None
    try:
        number = int(text)
    except ValueError:
        raise BadRequest(f"{name} must be a time in milliseconds since the epoch, not {text[:50]!r}") from None
    if not -(2**53) <= number <= 2**53:
        raise BadRequest(f"{name} is not a time in milliseconds since the epoch: {number}")
    return number


def metric_names(request: Request) -> tuple[str, ...] | None:
    """The metrics asked for, None for all: `all`, `a,b`, Grafana's `{a,b}`; repeated, each is one literal name."""
    given = request.query_params.getlist("metrics")
    if len(given) > 1:
        return tuple(dict.fromkeys(name for name in given if name))
    text = given[0].strip() if given else ""
    if text.startswith("{") and text.endswith("}"):
        text = text[1:-1]
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    return None if not names or (len(names) == 1 and names[0].lower() == "all") else names


def point_query(request: Request) -> PointQuery:
    """All parameters of the routes that answer points."""
    return PointQuery(
        workload_uid=workload_uid(request),
        metrics=metric_names(request),
        data_source=request.query_params.get("data_source", "").strip(),
        start_ms=time_ms(request, "start"),
        end_ms=time_ms(request, "end"),
        run_id=request.query_params.get("run_id"),
        attempt=integer(request, "attempt", minimum=0, maximum=2**31 - 1),
    )
