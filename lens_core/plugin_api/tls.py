"""Files of certificates that settings name: whether they are there, and what a client trusts and shows by them."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from ..base.errors import ConfigurationError

__all__ = ["client_context", "require_files"]


def require_files(settings: Any, *names: str) -> None:
    """Raise ValueError where one of these settings names a file that is not there; '' names none."""
    for name in names:
        path = getattr(settings, name)
        if path and not Path(path).is_file():
            raise ValueError(f"{name}: there is no such file; correct the path")


def client_context(ca_file: str = "", certificate: str = "", key: str = "") -> ssl.SSLContext:
    """The certificates to trust, the system's without a file, and to show.

    Raises ConfigurationError for files that hold none.
    """
    try:
        context = ssl.create_default_context(cafile=ca_file or None)
        if certificate:
            context.load_cert_chain(certificate, key)
    except (OSError, ssl.SSLError) as error:
        files = filter(None, (ca_file, certificate, key))
        raise ConfigurationError(f"{', '.join(files)} cannot be used: {error}") from None
    return context
