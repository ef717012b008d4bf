"""The host of Lens: everything that a plugin may import is here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .base.backoff import Backoff
from .base.data_dir import load_state, save_state
from .base.deprecation import LensDeprecationWarning, deprecated, deprecated_names
from .base.errors import (
    BadRequest,
    ConfigurationError,
    LensError,
    Overloaded,
    PluginError,
    RequestError,
    Unavailable,
    UnsupportedMediaType,
)
from .base.redaction import Secret
from .base.self_metrics import MetricGroup, SelfMetrics
from .directory.directory import Directory
from .directory.index import Index, workload_of
from .model.event_types import ATTENTION_EVENTS, EVENT_TYPES, STATE_EVENTS
from .model.queries import (
    EventRow,
    MetricInfo,
    MetricPoint,
    News,
    PodLife,
    PodSpan,
    PointColumns,
    PointQuery,
    Progress,
    RunSummary,
    RunValues,
    SourceCount,
    WorkloadDetail,
    WorkloadPage,
    WorkloadSummary,
)
from .model.records import (
    SHOWN_NAME_LABEL,
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
    Gate,
    IngestRequest,
    NoSettings,
    Partial,
    Reply,
    Route,
    Sink,
    Source,
    hookimpl,
)
from .plugin_api.log_formats import EventPattern, Field, LogFormat, Mark, Table
from .plugin_api.protobuf import Field as ProtobufField
from .plugin_api.protobuf import WireError
from .plugin_api.protobuf import fields as protobuf_fields
from .plugin_api.sink_answers import Answer, Batch, BatchLimits, Delivered, Poisoned, Position, Rejected, Retry
from .plugin_api.store import Store
from .plugin_api.vocabulary import VOCABULARY as KNOWN_KEYS

__version__ = "0.1.0"

__all__ = [
    "API_VERSION",
    "ATTENTION_EVENTS",
    "EVENT_TYPES",
    "KNOWN_KEYS",
    "SHOWN_NAME_LABEL",
    "STATE_EVENTS",
    "Analyzer",
    "Answer",
    "AnyRecord",
    "Backoff",
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
    "Directory",
    "Event",
    "EventPattern",
    "EventRow",
    "Evidence",
    "Field",
    "Gate",
    "Index",
    "IngestRequest",
    "LensDeprecationWarning",
    "LensError",
    "LogFormat",
    "LogLine",
    "Mark",
    "Measurement",
    "MetricGroup",
    "MetricInfo",
    "MetricPoint",
    "News",
    "NoSettings",
    "Origin",
    "Overloaded",
    "Partial",
    "PluginError",
    "Pod",
    "PodLife",
    "PodSpan",
    "PointColumns",
    "PointQuery",
    "Poisoned",
    "Position",
    "Progress",
    "ProtobufField",
    "Record",
    "Rejected",
    "Reply",
    "RequestError",
    "Retry",
    "Route",
    "RunSummary",
    "RunValues",
    "Secret",
    "SelfMetrics",
    "SeriesBatch",
    "Sink",
    "Source",
    "SourceCount",
    "StepMetrics",
    "Store",
    "Table",
    "Unavailable",
    "UnsupportedMediaType",
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
    "workload_of",
]

# Hidden from type checkers, which would else believe that every name is here.
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__)
