"""The host of Lens: everything that a plugin may import is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base.deprecation import LensDeprecationWarning, deprecated, deprecated_names
from .base.errors import BadRequest, ConfigurationError, LensError, Overloaded, PluginError, Unavailable
from .base.protobuf import Field as ProtobufField
from .base.protobuf import WireError
from .base.protobuf import fields as protobuf_fields
from .base.secrets import Secret
from .base.state_file import load_state, save_state
from .model.event_types import EVENT_TYPES
from .model.queries import (
    EventRow,
    MetricInfo,
    MetricPoint,
    News,
    PointColumns,
    PointQuery,
    Progress,
    RunSummary,
    SourceCount,
    WorkloadDetail,
    WorkloadPage,
    WorkloadSummary,
)
from .model.records import (
    AnyRecord,
    Detection,
    Device,
    Diagnosis,
    Event,
    Evidence,
    LogLine,
    Measurement,
    Origin,
    Pod,
    Record,
    SeriesBatch,
    StepMetrics,
    WorkloadReference,
)
from .plugin_api.analyzer import Analyzer
from .plugin_api.components import (
    API_VERSION,
    Collector,
    Component,
    Context,
    Detector,
    Door,
    IngestRequest,
    NoSettings,
    Reply,
    Route,
    Sink,
    Source,
    hookimpl,
)
from .plugin_api.log_formats import EventPattern, Field, LogFormat, Mark, Table
from .plugin_api.sink_answers import Answer, Batch, BatchLimits, Delivered, Poisoned, Position, Rejected, Retry
from .plugin_api.store import Store
from .plugin_api.vocabulary import VOCABULARY as KNOWN_KEYS

__version__ = "0.1.0"

__all__ = [
    "API_VERSION",
    "EVENT_TYPES",
    "KNOWN_KEYS",
    "Analyzer",
    "Answer",
    "AnyRecord",
    "BadRequest",
    "Batch",
    "BatchLimits",
    "Collector",
    "Component",
    "ConfigurationError",
    "Context",
    "Delivered",
    "Detection",
    "Detector",
    "Device",
    "Diagnosis",
    "Door",
    "Event",
    "EventPattern",
    "EventRow",
    "Evidence",
    "Field",
    "IngestRequest",
    "LensDeprecationWarning",
    "LensError",
    "LogFormat",
    "LogLine",
    "Mark",
    "Measurement",
    "MetricInfo",
    "MetricPoint",
    "News",
    "NoSettings",
    "Origin",
    "Overloaded",
    "PluginError",
    "Pod",
    "PointColumns",
    "PointQuery",
    "Poisoned",
    "Position",
    "Progress",
    "ProtobufField",
    "Record",
    "Rejected",
    "Reply",
    "Retry",
    "Route",
    "RunSummary",
    "Secret",
    "SeriesBatch",
    "Sink",
    "Source",
    "SourceCount",
    "StepMetrics",
    "Store",
    "Table",
    "Unavailable",
    "WireError",
    "WorkloadDetail",
    "WorkloadPage",
    "WorkloadReference",
    "WorkloadSummary",
    "__version__",
    "deprecated",
    "hookimpl",
    "load_state",
    "protobuf_fields",
    "save_state",
]

# Hidden from type checkers, which would else believe that every name is here.
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__)
