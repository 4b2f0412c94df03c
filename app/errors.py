"""Every error that the API returns, with its HTTP status and its Workers AI code.

    SlackwaterError
    ├── AuthenticationError   401/403  10000
    ├── ModelUnknown          400/404  5007   (404 on OpenAI's routes)
    ├── BadInput              400      5006   (`item` and `field` name the place)
    │   └── SensitiveFound    400      5006
    ├── RedactionDown         503      5001
    ├── Conflict              409      5006
    │   └── StageOfPipeline   409      5006
    ├── KeyInUse              409      5006
    ├── ConversationLocked    400      5006
    ├── VersionMoved          412      5006
    ├── KeyReused             422      5006
    ├── MissingInput          400/415  3003
    ├── BodyTooLarge          413      3006
    ├── NotFound              404      7003
    │   └── AccountUnknown    404      7003
    ├── ExecutionFailed       500      5001
    ├── NoCapacity            429/503  3040   (503: there is no engine)
    ├── RateLimited           429      3021
    ├── QuotaExceeded         429      3036
    ├── PolicyDenied          403      3023
    │   └── ModelDenied       403      5018
    ├── NotOwner              403      10000
    ├── BudgetSpent           429      3036
    ├── TimedOut              408      3007
    ├── KeysUnavailable       410/503  5001   (410: the key is gone for good)
    ├── TurnLost              503      5001
    ├── SchemaMismatch        503      5001
    └── StorageError          503      5001
        └── StorageFull       507      5001

The codes are those of Cloudflare's documented Workers AI table. 7003 and 10000 are codes of its API gateway.
"""

QUOTA = "insufficient_quota"  # OpenAI's code for a request that no money is left for
UNAVAILABLE = "resource_unavailable"  # OpenAI's code for a flex call that would have to wait


class SlackwaterError(Exception):
    """Base of all errors that the API returns. `param`, `reason`: the fields `param` and `code` on OpenAI's routes."""

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
    """The model is not in the catalogue, or it does not support the task of the route."""

    status, code = 400, 5007

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model")


class BadInput(SlackwaterError):
    """The request is invalid. The message names the field and what would be valid."""

    status, code = 400, 5006


class PlaceUnknown(BadInput):
    """A page shall begin after something that this list does not know."""

    def __init__(self, after: object) -> None:
        super().__init__(
            f"after: {str(after)[:60]!r} is no place in this list; give the last id of the page before", param="after"
        )


class SensitiveFound(BadInput):
    """The request has a sensitive value where the policy allows none. The message names its kind, never the value."""

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="sensitive_data")


class RedactionDown(SlackwaterError):
    """The request must be redacted and cannot be. Nothing was stored."""

    status = 503


class PolicyUnknown(SlackwaterError):
    """No policy was read yet, so no request can be decided. Nothing was stored."""

    status = 503


class Conflict(SlackwaterError):
    """The state of the object does not allow the operation."""

    status, code = 409, 5006


class StageOfPipeline(Conflict):
    """The batch is a stage of a pipeline, which acts as a whole."""

    def __init__(self) -> None:
        super().__init__("The batch is a stage of a pipeline, which acts as a whole; use the verbs of the pipeline")


class KeyInUse(SlackwaterError):
    """A request with this Idempotency-Key is being stored at this moment."""

    status, code = 409, 5006


class ConversationLocked(SlackwaterError):
    """Another turn of the conversation runs, and did not end in time."""

    status, code = 400, 5006

    def __init__(self, message: str) -> None:
        super().__init__(message, param="conversation", reason="conversation_locked")


class VersionMoved(SlackwaterError):
    """The conversation has another version than the request's If-Match says."""

    status, code = 412, 5006


class KeyReused(SlackwaterError):
    """The Idempotency-Key was used for another request."""

    status, code = 422, 5006


class MissingInput(SlackwaterError):
    """A header or the body itself is missing or of the wrong kind."""

    status, code = 400, 3003


class BodyTooLarge(SlackwaterError):
    """The body exceeds its limit. Nothing of it was stored."""

    status, code = 413, 3006


class NotFound(SlackwaterError):
    """The account has no such object. An id of another account and an unknown id give the same error."""

    status, code = 404, 7003


class AccountUnknown(NotFound):
    """The account does not exist, or it is being deleted."""


class ExecutionFailed(SlackwaterError):
    """The engine failed during a synchronous request, or every item of a batch failed."""

    status, code = 500, 5001


class NoCapacity(SlackwaterError):
    """No engine can take the synchronous request now. `retry_after`: seconds after which to try again."""

    status, code = 429, 3040

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: int = 1, reason: str | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class RateLimited(SlackwaterError):
    """The key has used up its limit for this minute.

    `retry_after`: seconds until the next minute. `final`: the request exceeds the limit of any minute.
    """

    status, code = 429, 3021

    def __init__(self, message: str, retry_after: int, *, final: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.final = final


class QuotaExceeded(SlackwaterError):
    """The account has used up a quota. `reason`: OpenAI's code. Nothing was stored; trying again at once does not help.

    `quota`: its name.
    """

    status, code = 429, 3036

    def __init__(self, message: str, *, quota: str, reason: str = "quota_exceeded") -> None:
        super().__init__(message, reason=reason)
        self.quota = quota


class PolicyDenied(SlackwaterError):
    """A rule of the policy refuses the request. The message names the rule and whom to ask."""

    status, code = 403, 3023

    def __init__(self, message: str, *, reason: str = "policy_denied") -> None:
        super().__init__(message, reason=reason)


class ModelDenied(PolicyDenied):
    """A rule of the policy does not allow the model."""

    code = 5018

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="model_not_allowed")


class NotOwner(SlackwaterError):
    """The object is in the account, but somebody else's to change. The message says whose."""

    status, code = 403, 10000

    def __init__(self, message: str) -> None:
        super().__init__(message, reason="insufficient_permissions")


class BudgetSpent(SlackwaterError):
    """A budget has no money left for the request. `retry_after`: seconds until it is renewed, or may have some again; None: it is
    never renewed, or never has enough. `again`: only work that runs keeps the money, so another try may help.
    """

    status, code = 429, 3036

    def __init__(self, message: str, *, retry_after: int | None = None, again: bool = False) -> None:
        super().__init__(message, reason=QUOTA)
        self.retry_after = retry_after
        self.again = again


class TimedOut(SlackwaterError):
    """The engine did not answer a synchronous request in time."""

    status, code = 408, 3007


class KeysUnavailable(SlackwaterError):
    """A body cannot be sealed or opened now: the key provider does not answer. `gone`: its key does not exist any more."""

    status, code = 503, 5001

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message, status=410 if gone else None)
        self.gone = gone


class TurnLost(SlackwaterError):
    """A turn of a conversation was given up before its answer was stored, and nothing of it is kept. It may be sent again."""

    status, code = 503, 5001


class SchemaMismatch(SlackwaterError):
    """This code cannot work with the schema of the database: it is too old for it, or too new."""

    status, code = 503, 5001


class ServerUnfit(SlackwaterError):
    """The database server is not set as Slackwater needs it."""

    status, code = 503, 5001

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. {remedy}")
        self.remedy = ""  # the message has it, since logs show no more than that


class BehindPooler(SlackwaterError):
    """What belongs to a session of the database was to be done through a connection pooler."""

    status, code = 503, 5001
    remedy = "Set SLACKWATER_DATABASE_DIRECT_URL to the address of the database itself."


class StorageError(SlackwaterError):
    """An operation on the object store failed. `missing`: there is no such object."""

    status, code = 503, 5001

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class StoreNotShared(SlackwaterError):
    """The object store of this part is not the one that the other parts use."""

    status, code = 503, 5001
    remedy = (
        "Give every part the same SLACKWATER_STORAGE_URL: s3://bucket/prefix, or file:///folder where all of them have that "
        "folder mounted. If the old store is gone for good, run `delete from object_store` in the database; the next start then "
        "marks a new one."
    )


class StoreTaken(StoreNotShared):
    """An object store is in use by another installation, and each would remove the other's objects."""

    remedy = (
        "Give each installation a prefix or a folder of its own: SLACKWATER_STORAGE_URL. Where the other one is gone for good, "
        "delete what it has left there, or at least its markers."
    )


class StorageFull(StorageError):
    """The disk of the spool files or of the database is full. Nothing was stored."""

    status, code = 507, 5001
