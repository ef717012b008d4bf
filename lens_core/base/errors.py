"""The tree of Lens' errors; catch at any level.

LensError
├── ConfigurationError      the file, an option, a secret: what, where, how to fix it
├── PluginError             a plugin that cannot be used; names its distribution
├── RequestError            something a client sent; has an HTTP status and a code of the contract
│   ├── BadRequest              400 RequestParameterInvalid
│   ├── Unauthorized            401
│   ├── Forbidden               403
│   ├── NotFound                404
│   ├── PayloadTooLarge         413
│   ├── UnsupportedMediaType    415
│   └── Unavailable             503, with Retry-After
│       └── Overloaded              the spool is full because of a required sink, or too many bytes are in flight
└── SpoolError              the spool's file cannot be used (in use by another process, disk full, damaged)
"""

from __future__ import annotations

from typing import ClassVar


class LensError(Exception):
    """Base of every error that Lens raises on purpose; its text may be shown to the user as it is."""


class ConfigurationError(LensError):
    """The configuration cannot be used; the text says what, where and how to fix it."""


class PluginError(LensError):
    """A plugin cannot be used."""


class SpoolError(LensError):
    """The spool's file cannot be used."""


class RequestError(LensError):
    """A request that is answered with an error of the contract's shape."""

    status: ClassVar[int] = 500
    code: ClassVar[str] = "InternalError"

    def __init__(self, message: str, *, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.retry_after_seconds = retry_after_seconds


class BadRequest(RequestError):
    """The request itself is wrong; sending it again changes nothing."""

    status = 400
    code = "RequestParameterInvalid"


class Unauthorized(RequestError):
    """No token, or one that nobody issued."""

    status = 401
    code = "Unauthorized"


class Forbidden(RequestError):
    """A known token that may not do this."""

    status = 403
    code = "Forbidden"


class NotFound(RequestError):
    """No such route or thing."""

    status = 404
    code = "NotFound"


class MethodNotAllowed(RequestError):
    """The route exists, for another method."""

    status = 405
    code = "MethodNotAllowed"


class PayloadTooLarge(RequestError):
    """The body, or what it decompresses to, is over the limit."""

    status = 413
    code = "PayloadTooLarge"


class UnsupportedMediaType(RequestError):
    """A content type or content encoding that the route does not take."""

    status = 415
    code = "UnsupportedMediaType"


class TooManyRequests(RequestError):
    """The client should slow down."""

    status = 429
    code = "TooManyRequests"


class Unavailable(RequestError):
    """Something behind the route is not there now; the client should come again."""

    status = 503
    code = "Unavailable"

    def __init__(self, message: str, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message, retry_after_seconds=retry_after_seconds)


class Overloaded(Unavailable):
    """Nothing more can be taken now: a required sink is behind, or too many bytes are in flight."""
