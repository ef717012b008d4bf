"""Who may do what: loopback without a token, everybody else by a bearer token with a role.

Roles: `ingest` may send, `read` may ask, `admin` may do everything. `/livez`, `/readyz` and an open ingest need none.
"""

from __future__ import annotations

import ipaddress

from starlette.requests import HTTPConnection

from ..errors import Forbidden, Unauthorized
from .state import ApiState


def require_role(connection: HTTPConnection, state: ApiState, role: str) -> None:
    """Raise Unauthorized or Forbidden unless this client may act in this role.

    A token that is sent is always looked at, from loopback too, so that a wrong one is noticed where it is tried.
    """
    header = connection.headers.get("authorization", "")
    scheme, _, token = header.partition(" ")
    if scheme.lower() == "bearer" and token.strip():
        _check_token(token.strip(), state, role)
    elif is_loopback(connection) or (role == "ingest" and state.open_ingest):
        return
    else:
        raise Unauthorized(
            "a token is required from other machines: send `Authorization: Bearer TOKEN`; "
            f"`lens token create --role {role} NAME` on the daemon's machine makes one"
        )


def _check_token(token: str, state: ApiState, role: str) -> None:
    held = state.tokens.role_of(token)
    if held is None:
        raise Unauthorized("this token is not known here; it may have been revoked")
    if held not in (role, "admin"):
        raise Forbidden(f"this token has the role {held}, this route needs {role}")


def is_loopback(connection: HTTPConnection) -> bool:
    """Whether the client is on this machine; a forwarded header means that somebody else is behind it."""
    if connection.client is None or "x-forwarded-for" in connection.headers or "forwarded" in connection.headers:
        return False
    try:
        address = ipaddress.ip_address(connection.client.host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback
