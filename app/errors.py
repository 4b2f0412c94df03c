"""Every error that the API returns: its HTTP status, its codes, and what a caller can do about it.

docs/errors.md lists them: of each class the first paragraph of its docstring, and `fix`. The codes are those of Cloudflare's
documented Workers AI table. 7001, 7003 and 10000 are codes of its API gateway.
"""

from collections.abc import Sequence
from typing import Any

from app.openai_codes import OpenAICode

_TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}


class SlackwaterError(Exception):
    """Base of all errors that the API returns. `param`: the field that is wrong.

    `status`: of HTTP; it may also be one of `other_statuses`. `code`: in Cloudflare's envelope. `reason`: the code in OpenAI's
    form; it may also be one of `other_reasons`. `fix`: what a caller can do.
    """

    status = 500
    code = 5001
    reason: OpenAICode | None = None
    other_statuses: tuple[int, ...] = ()
    other_reasons: Sequence[OpenAICode] = ()
    fix = ""

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        param: str | None = None,
        reason: OpenAICode | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.status = status or self.status
        self.reason = reason or self.reason

    def content(self, *, openai: bool = True) -> dict[str, Any]:
        """The error as callers read it: Cloudflare's envelope, with OpenAI's `error` beside it if `openai`."""
        found = {"code": self.code, "message": self.message}
        envelope = {"result": None, "success": False, "errors": [found], "messages": []}
        return envelope | ({"error": self._openai()} if openai else {})

    def _openai(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        if isinstance(self, ModelUnknown):
            kind = "invalid_request_error"
        code = self.reason or (OpenAICode.INVALID_VALUE if self.param and self.status == 400 else None)
        return {"message": self.message, "type": kind, "param": self.param, "code": code}


class AuthenticationError(SlackwaterError):
    """No API key, an unknown or revoked one, or one that may not do this (403)."""

    status, code, reason = 401, 10000, OpenAICode.INVALID_KEY
    other_statuses = (403,)
    other_reasons = (OpenAICode.NOT_PERMITTED, OpenAICode.NETWORK_DENIED)
    fix = "Send a valid key of this account: `Authorization: Bearer KEY`."


class ModelUnknown(SlackwaterError):
    """The model is not known here, or it does not support the task of the route (404 on OpenAI's routes)."""

    status, code, reason = 400, 5007, OpenAICode.MODEL_UNKNOWN
    other_statuses = (404,)
    fix = "Name a model of `GET /v1/models` that does this task."

    def __init__(self, message: str) -> None:
        super().__init__(message, param="model")


class BadInput(SlackwaterError):
    """The request is invalid. The message names the field and what would be valid. 412: a condition that does not hold; 414, 431:
    the URL or the headers are too long; 416: a Range that is not in the file.
    """

    status, code = 400, 5006
    other_statuses = (412, 414, 416, 431)
    other_reasons = (  # the first one where `param` names a field, and nothing else is said
        OpenAICode.INVALID_VALUE,
        OpenAICode.INVALID_TYPE,
        OpenAICode.MISSING,
        OpenAICode.UNKNOWN_PARAMETER,
        OpenAICode.TOO_LONG,
    )
    fix = "Correct what the message names."


class PlaceUnknown(BadInput):
    """A page shall begin after something that this list does not know."""

    reason = OpenAICode.INVALID_VALUE

    def __init__(self, given: object, param: str = "after") -> None:
        said = f"{str(given)[:60]!r} is not in this list; send the last id, or the cursor, of the page before"
        super().__init__(f"{param}: {said}", param=param)


class PageTooLong(BadInput):
    """A page shall have more entries than this list gives at once, or less than one."""

    reason = OpenAICode.INVALID_VALUE

    def __init__(self, limit: int, most: int) -> None:
        super().__init__(f"limit: must be 1 to {most}, got {limit}", param="limit")


class SensitiveFound(BadInput):
    """The request has a sensitive value where the policy allows none. The message names its kind, never the value."""

    reason = OpenAICode.SENSITIVE
    fix = "Take the value out."


class RedactionDown(SlackwaterError):
    """The request must be redacted and cannot be. Nothing was stored."""

    status = 503
    fix = "Send it again later."


class PolicyUnknown(SlackwaterError):
    """No policy was read yet, so no request can be decided. Nothing was stored."""

    status = 503
    fix = "Send it again in some seconds."


class NotQueueable(SlackwaterError):
    """The model cannot be queued."""

    status, code = 400, 8007
    fix = "Call it synchronously, or queue another model."


class Conflict(SlackwaterError):
    """The state of the object does not allow the operation."""

    status, code = 409, 5006
    fix = "Read its state first; the message says what it is."


class StageOfPipeline(Conflict):
    """The batch is a stage of a pipeline, which acts as a whole."""

    fix = "Use the verbs of the pipeline."

    def __init__(self) -> None:
        super().__init__("The batch is a stage of a pipeline, which acts as a whole; use the verbs of the pipeline")


class KeyInUse(SlackwaterError):
    """A request with this Idempotency-Key is being stored at this moment."""

    status, code = 409, 5006
    fix = "Send it again in a second."


class ConversationLocked(SlackwaterError):
    """Another turn of the conversation runs, and did not end in time."""

    status, code, reason = 400, 5006, OpenAICode.CONVERSATION_LOCKED
    fix = "Send it again when that turn has ended."

    def __init__(self, message: str) -> None:
        super().__init__(message, param="conversation")


class DemandUnknown(SlackwaterError):
    """It is not known how many engines are needed. Keep those that there are."""

    status = 503
    fix = "Ask again later."


class VersionMoved(SlackwaterError):
    """The conversation has another version than the request's If-Match says."""

    status, code = 412, 5006
    fix = "Read the conversation, and send the request with its version."


class KeyReused(SlackwaterError):
    """The Idempotency-Key was used for another request."""

    status, code = 422, 5006
    fix = "Use a new key for a new request."


class MissingInput(SlackwaterError):
    """A header or the body itself is missing, or of a kind that is not accepted (415)."""

    status, code = 400, 3003
    other_statuses = (415,)
    fix = "Send what the message names."


class BodyTooLarge(SlackwaterError):
    """The body exceeds its limit, a file its own (400). Nothing of it was stored."""

    status, code, reason = 413, 3006, OpenAICode.TOO_LARGE
    other_statuses = (400,)
    fix = "Send less at once; the limit is the operator's."


class NotFound(SlackwaterError):
    """The account has no such object, or no longer (410). An id of another account and an unknown id give the same error."""

    status, code = 404, 7003
    other_statuses = (410,)
    fix = "Correct the id or the path."


class PathUnknown(NotFound):
    """There is no such route."""

    reason = OpenAICode.UNKNOWN_URL
    fix = "Correct the path; most often the client's `base_url` lacks `/v1`."


class SubscriptionUnknown(NotFound):
    """There is no such event subscription. Cloudflare has a code of its own for it."""

    code = 404
    fix = "Correct the id."

    def __init__(self) -> None:
        super().__init__("Subscription not found")


class AccountUnknown(NotFound):
    """The account does not exist, or it is being deleted."""

    fix = "Correct the account."


class MethodUnknown(SlackwaterError):
    """The path does not have this method. `Allow` names those that it has."""

    status, code = 405, 7001
    fix = "Use one of those."


class ExecutionFailed(SlackwaterError):
    """The engine failed during a synchronous request, or every item of a batch failed."""

    status, code, reason = 500, 5001, OpenAICode.SERVER_ERROR
    fix = "Read the engine's words in the message. Clients do not repeat it by themselves: it may be what the engine fails at."


class NoCapacity(SlackwaterError):
    """No engine has room for the request now, or none is ready (503).

    `retry_after`: seconds after which to try again.
    """

    status, code, reason = 429, 3040, OpenAICode.CAPACITY
    other_statuses = (503,)
    other_reasons = (OpenAICode.UNAVAILABLE,)
    fix = "Send it again after `Retry-After`, or queue it."

    def __init__(
        self, message: str, *, status: int | None = None, retry_after: int = 1, reason: OpenAICode | None = None
    ) -> None:
        super().__init__(message, status=status, reason=reason)
        self.retry_after = retry_after


class RateLimited(SlackwaterError):
    """The key has used up its limit for this minute.

    `retry_after`: seconds until the next minute. `final`: the request exceeds the limit of any minute.
    """

    status, code, reason = 429, 3021, OpenAICode.RATE_LIMIT
    fix = "Send it again after `Retry-After`."

    def __init__(self, message: str, retry_after: int, *, final: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.final = final


class QuotaExceeded(SlackwaterError):
    """The account has used up a quota. Nothing was stored; trying again at once does not help.

    `quota`: its name.
    """

    status, code, reason = 429, 3036, OpenAICode.QUOTA
    other_reasons = (OpenAICode.QUEUED_TOKENS,)
    fix = "Wait until queued work is done, cancel some, or delete files."

    def __init__(self, message: str, *, quota: str, reason: OpenAICode | None = None) -> None:
        super().__init__(message, reason=reason)
        self.quota = quota


class PolicyDenied(SlackwaterError):
    """A rule of the policy refuses the request. The message names the rule and whom to ask."""

    status, code, reason = 403, 3023, OpenAICode.POLICY_DENIED
    other_reasons = (OpenAICode.ENDPOINT_DENIED,)
    fix = "Ask whom the message names."


class ModelDenied(PolicyDenied):
    """A rule of the policy does not allow the model."""

    code, reason = 5018, OpenAICode.MODEL_DENIED
    fix = "Use another model."


class NotOwner(SlackwaterError):
    """The object is in the account, but somebody else's to change. The message says whose."""

    status, code, reason = 403, 10000, OpenAICode.NOT_PERMITTED
    fix = "Ask whom the message names."


class BudgetSpent(SlackwaterError):
    """A budget has too little available for the request.

    `retry_after`: seconds until it is renewed, or may have some again; None: it is
    never renewed, or never has enough. `again`: only work that runs keeps the money, so another try may help.
    """

    status, code, reason = 429, 3036, OpenAICode.BUDGET
    fix = "Wait for as long as `Retry-After` says. Without it, shorten the request, or have the budget raised."

    def __init__(self, message: str, *, retry_after: int | None = None, again: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        self.again = again


class TimedOut(SlackwaterError):
    """The engine did not answer a synchronous request in time."""

    status, code, reason = 408, 3007, OpenAICode.REQUEST_TIMEOUT
    fix = "Lower the limit of the answer, stream it, or queue it."


class CallerGone(SlackwaterError):
    """The caller disconnected before its answer."""

    status, code = 408, 3008
    fix = "Wait longer, or stream the answer."

    def __init__(self) -> None:
        super().__init__("Request was aborted")


class TestUnanswered(SlackwaterError):
    """The test of a webhook got no answer from its receiver."""

    # not 408 or 502, because clients try those again, and each try would send a test
    status, code = 424, 5006
    fix = "Do what the message says."
    __test__ = False  # it is none of pytest's


class KeysUnavailable(SlackwaterError):
    """A body cannot be sealed or opened now: the key provider does not answer, or its key is gone for good (410).

    `gone`: its key does not exist any more.
    """

    status, code = 503, 5001
    other_statuses = (410,)
    fix = "Send it again later; after 410 the content is lost."

    def __init__(self, message: str, *, gone: bool = False) -> None:
        super().__init__(message, status=410 if gone else None)
        self.gone = gone


class TurnLost(SlackwaterError):
    """A turn of a conversation was given up before its answer was stored, and nothing of it is kept. It may be sent again."""

    status, code = 503, 5001
    fix = "Send the turn again."


class SchemaMismatch(SlackwaterError):
    """This code cannot work with the schema of the database: it is too old for it, or too new."""

    status, code = 503, 5001
    fix = "The operator runs `slackwater migrate`."


class ServerUnfit(SlackwaterError):
    """The database server is not set as Slackwater needs it."""

    status, code = 503, 5001
    fix = "The operator does what the message says."

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}. {remedy}")
        self.remedy = ""  # the message has it, since logs show no more than that


class BehindPooler(SlackwaterError):
    """What belongs to a session of the database was to be done through a connection pooler."""

    status, code = 503, 5001
    fix = "The operator does what the message says."
    remedy = "Set SLACKWATER_DATABASE_DIRECT_URL to the address of the database itself."


class StorageError(SlackwaterError):
    """An operation on the object store failed.

    `missing`: there is no such object.
    """

    status, code = 503, 5001
    fix = "Send it again later."

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class StoreNotShared(SlackwaterError):
    """The object store of this part is not the one that the other parts use."""

    status, code = 503, 5001
    fix = "The operator does what the message says."
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
    fix = "Send it again when the operator has freed space."


class DatabaseAway(SlackwaterError):
    """The database cannot be reached now, or could not do this. What the request asked for may have been stored."""

    status, code = 503, 5001
    fix = "Send it again after `Retry-After`, with its Idempotency-Key."


class InternalError(SlackwaterError):
    """Our fault. The operator's log has it under the request's id."""

    status, code = 500, 5001
    fix = "Tell the operator the id."
