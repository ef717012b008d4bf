"""The token of a variable, as the header that carries it."""

from __future__ import annotations

from collections.abc import Mapping

from .errors import LensError


def bearer_header(environ: Mapping[str, str], variable: str) -> dict[str, str]:
    """The header Authorization with the token that a variable holds; empty if it is not set.

    Space around it does not count: secrets that were made from a file often end with a line break. Raises LensError,
    without the token, where no header can hold it.
    """
    token = environ.get(variable, "").strip()
    if not token:
        return {}
    if not (token.isascii() and token.isprintable()):
        raise LensError(f"{variable} holds characters that no token has; set it again, without quotes and line breaks")
    return {"Authorization": f"Bearer {token}"}
