"""Access control: loopback needs no token, other clients need a bearer token with a role.

Roles: `ingest` may send, `read` may ask, `admin` may do everything. `/livez`, `/readyz` and an open ingest need none.
The page's login is a session that stands for the token it was made with. What a browser sends is looked at twice:
a page of somebody else's must not use a login, nor the trust in loopback.
"""

from __future__ import annotations

import hmac
import ipaddress
import socket
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from ..base.errors import Forbidden, Unauthorized
from .sessions import CSRF_HEADER, Session
from .state import ApiState

_SAFE_METHODS = ("GET", "HEAD", "OPTIONS")


def require_role(connection: HTTPConnection, state: ApiState, role: str, *, is_open: bool = False) -> None:
    """Raise Unauthorized or Forbidden unless this client may act in this role; `is_open`: also without a token.

    A token that is sent is always looked at, from loopback too, so that a wrong one is noticed where it is tried.
    """
    header = connection.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        _check_token(token.strip(), state, role)
    elif (found := state.sessions.find_session(connection)) is not None:
        _check_session(connection, *found, role)
    elif is_loopback(connection):
        _refuse_other_sites(connection, state)
    elif not (is_open or (role == "ingest" and state.open_ingest)):
        raise Unauthorized(
            "a token is required from other machines: send `Authorization: Bearer TOKEN`; "
            f"`lens token create --role {role} NAME` on the daemon's machine makes one"
        )


def _check_token(token: str, state: ApiState, role: str) -> None:
    held = state.tokens.role_of(token)
    if held is None:
        raise Unauthorized(
            "this token is not known here; it may have been revoked: `lens token create` on the daemon's machine makes"
            " another"
        )
    _check_held(held, role)


def _check_held(held: str, role: str) -> None:
    if held not in (role, "admin"):
        raise Forbidden(f"this token has the role {held}, this route needs {role}")


def _check_session(connection: HTTPConnection, session: Session, held: str, role: str) -> None:
    _check_held(held, role)
    if connection.scope.get("method", "GET") not in _SAFE_METHODS:
        sent = connection.headers.get(CSRF_HEADER, "")
        if not hmac.compare_digest(sent.encode(), session.csrf.encode()):
            raise Forbidden(f"a login changes something only with its {CSRF_HEADER} header (GET /api/v1/session)")


def _refuse_other_sites(connection: HTTPConnection, state: ApiState) -> None:
    """Browsers on this machine are on loopback, whatever page they show: a stranger's page gets nothing from it."""
    site = connection.headers.get("sec-fetch-site")
    if site is None and "origin" not in connection.headers:
        return  # not a browser
    if site in ("cross-site", "same-site") and connection.scope.get("method", "GET") not in _SAFE_METHODS:
        raise Forbidden("another site's page may not send here")
    # A name of a stranger that resolves to this machine would make its page ours (DNS rebinding).
    host = urlsplit(f"//{connection.headers.get('host', '')}").hostname or ""
    ours = {"localhost", socket.gethostname().lower(), _public_host(state)}
    if not (_is_address(host) or host in ours or host.endswith(".localhost")):
        raise Forbidden(f"{host!r} is no name of this daemon; set server.public_url, or use its address")


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _public_host(state: ApiState) -> str | None:
    return urlsplit(state.public_url).hostname if state.public_url else None


def is_loopback(connection: HTTPConnection) -> bool:
    """Whether the client is on this machine; a forwarded header means that somebody else is behind it."""
    if connection.client is None or "x-forwarded-for" in connection.headers or "forwarded" in connection.headers:
        return False
    return _is_loopback_address(connection.client.host)


@lru_cache(1024)
def _is_loopback_address(host: str) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
