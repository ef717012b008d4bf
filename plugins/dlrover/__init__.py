"""DLRover's wire protocol, written from its observed behaviour: no dlrover package, and nothing is ever unpickled.

A message is a Python pickle of one of the classes of `dlrover.python.common.comm`, inside a small protobuf message
(gRPC service `elastic.Master`) or base64 in JSON (HTTP). `pickles` reads and writes the pickles as data, `messages`
wraps them, `client` reports to a master. Not here: the source that answers as a master (`sources/dlrover_master`), the
sink (`sinks/dlrover.py`).
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
