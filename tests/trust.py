"""The authorities that clients of httpx trust in tests, which speak to no public server by one."""

from __future__ import annotations

import os
from pathlib import Path

import certifi


def one_authority(folder: Path) -> str:
    """Make a file in a folder with the first of all public authorities."""
    everything = Path(certifi.where()).read_text()
    end = "-----END CERTIFICATE-----\n"
    file = folder / f"authority-{os.getpid()}.pem"
    file.write_text(everything[: everything.index(end)] + end)
    return str(file)


def trust(authorities: str) -> None:
    """Have each client of this process read this file: reading all public authorities takes 20 ms of CPU time."""
    certifi.where = lambda: authorities
