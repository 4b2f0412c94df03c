"""Every error a caller can meet, with its HTTP status and its Workers AI code.

    SlackwaterError
    ├── AuthenticationError   401/403  10000
    ├── ModelUnknown          400/404  5007   (404 on OpenAI's routes)
    ├── BadInput              400      5006   (`item` and `field` name the place)
    ├── Conflict              409      5006
    ├── KeyInUse              409      5006
    ├── KeyReused             422      5006
    ├── MissingInput          400/415  3003
    ├── BodyTooLarge          413      3006
    ├── NotFound              404      7003
    │   └── AccountUnknown    404      7003
    ├── ExecutionFailed       500      5001
    ├── NoCapacity            429/503  3040   (503: there is no engine)
    ├── RateLimited           429      3021
    ├── TimedOut              408      3007
    └── StorageError          503      5001
        └── StorageFull       507      5001

Codes: Cloudflare's documented Workers AI table where it has one; 7003 and 10000 are those of its API gateway.
"""

UNAVAILABLE = "resource_unavailable"  # OpenAI's word for a flex call that would have to wait


class SlackwaterError(Exception):
    """Base of all errors that are answered to a caller. `param`, `reason`: OpenAI's `param` and `code`, on its routes."""

    status = 500
    code = 5001

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        code: int | None = None,
        param: str | None = None,
        reason: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.reason = reason
        self.status = status or self.status
        self.code = code or self.code


class AuthenticationError(SlackwaterError):
    """No API key, an unknown or revoked one, or a key of another account."""

    status, code = 401, 10000


class ModelUnknown(SlackwaterError):
    """The model is not in the catalogue, or does not do what the route is for."""

    status, code = 400, 5007

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model")


class BadInput(SlackwaterError):
    """The body breaks a rule. The message names where, and what would be right."""

    status, code = 400, 5006


class Conflict(SlackwaterError):
    """What is asked for does not go with the state that the thing is in."""

    status, code = 409, 5006


class KeyInUse(SlackwaterError):
    """A request with this Idempotency-Key is being stored at this moment."""

    status, code = 409, 5006


class KeyReused(SlackwaterError):
    """The Idempotency-Key stands for another request."""

    status, code = 422, 5006


class MissingInput(SlackwaterError):
    """A header or the body itself is missing or of the wrong kind."""

    status, code = 400, 3003


class BodyTooLarge(SlackwaterError):
    """The body exceeds its cap; nothing of it was kept."""

    status, code = 413, 3006


class NotFound(SlackwaterError):
    """No such thing for this account. A foreign id and an unknown id read the same."""

    status, code = 404, 7003


class AccountUnknown(NotFound):
    """There is no such account, or it is being deleted."""


class ExecutionFailed(SlackwaterError):
    """The engine broke while it ran a synchronous request, or every item of a batch failed."""

    status, code = 500, 5001


class NoCapacity(SlackwaterError):
    """No engine takes a synchronous request now. `retry_after`: seconds after which to try again."""

    status, code = 429, 3040

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: int = 1, reason: str | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class RateLimited(SlackwaterError):
    """The key has used up its minute. `retry_after`: seconds until the next one; `final`: no minute would be enough."""

    status, code = 429, 3021

    def __init__(self, message: str, retry_after: int, *, final: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.final = final


class TimedOut(SlackwaterError):
    """The engine did not answer a synchronous request in time."""

    status, code = 408, 3007


class StorageError(SlackwaterError):
    """The object store did not do what was asked of it. `missing`: it has no such object."""

    status, code = 503, 5001

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class StoreNotShared(SlackwaterError):
    """A part's object store is not the one that the other parts use."""

    status, code = 503, 5001
    remedy = (
        "Give every part the same SLACKWATER_STORAGE_URL: s3://bucket/prefix, or file:///folder where all of them have that "
        "folder mounted. Where the old store is gone for good, `delete from object_store` in the database lets the next start "
        "mark a new one."
    )


class StoreTaken(StoreNotShared):
    """An object store is in use by another installation, and each would remove the other's objects."""

    remedy = (
        "Give each installation a prefix or a folder of its own: SLACKWATER_STORAGE_URL. Where the other one is gone for good, "
        "delete what it has left there, or at least its markers."
    )


class StorageFull(StorageError):
    """The disk that holds spools or the database is full; nothing was stored."""

    status, code = 507, 5001
