"""DLRover's wire protocol, written from its observed behaviour: no dlrover package, and nothing is ever unpickled.

A message is a Python pickle of one of the classes of `dlrover.python.common.comm`, inside a small protobuf message
(gRPC service `elastic.Master`) or base64 in JSON (HTTP). `pickles` reads and writes the pickles as data. `rendezvous`
and `key_values` are what the nodes of a job need of a master to start.
"""

from __future__ import annotations

from .client import MasterConnection, MasterError
from .messages import Report, report_from_wire, report_to_wire
from .pickles import PickleError, Wire, dump, load

__all__ = [
    "MasterConnection",
    "MasterError",
    "PickleError",
    "Report",
    "Wire",
    "dump",
    "load",
    "report_from_wire",
    "report_to_wire",
]
