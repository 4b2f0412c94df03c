"""The `code` of an error in OpenAI's form: of an answer, of a line of a batch file, of a request in an error file.

This table is what raising code uses and what docs/errors.md lists. Codes and names are OpenAI's where it has them. Pure.
"""

from enum import StrEnum
from typing import Self

_ASK = "Ask the operator or an admin of the account."
_LATER = "Try again after `Retry-After`."


class OpenAICode(StrEnum):
    """A code, what it means (`cause`), and what its caller can do (`fix`)."""

    cause: str
    fix: str

    def __new__(cls, value: str, cause: str, fix: str) -> Self:
        """A member; its value is the code."""
        member = str.__new__(cls, value)
        member._value_ = value
        member.cause, member.fix = cause, fix
        return member

    # of the request and its fields
    UNKNOWN_URL = (
        "unknown_url",
        "There is no such route; most often the client's `base_url` lacks `/v1`.",
        "Set `base_url` to `http://HOST:8700/v1`.",
    )
    MISSING = ("missing_required_parameter", "The field in `param` is missing.", "Send it.")
    INVALID_TYPE = (
        "invalid_type",
        "The model, a value of the metadata or the body of a line has another type. Of other fields this is `invalid_value`.",
        "Send the type that the message names.",
    )
    INVALID_VALUE = (
        "invalid_value",
        "The field in `param` has a value, or a type, that is not allowed.",
        "Send one that the message names.",
    )
    UNKNOWN_PARAMETER = (
        "unknown_parameter",
        "With `strict`, the field in `param` is not known.",
        "Correct its name, or leave `strict` out.",
    )
    MODEL_UNKNOWN = (
        "model_not_found",
        "There is no such model, or it does not serve this route.",
        "`GET /v1/models` lists them.",
    )
    TOO_LONG = (
        "context_length_exceeded",
        "Prompt and answer do not fit into the model's context window.",
        "Shorten the prompt, or lower the limit of the answer.",
    )
    TOO_LARGE = ("request_too_large", "The body exceeds its limit.", "Send less at once; large batches go as a file.")
    CONVERSATION_LOCKED = (
        "conversation_locked",
        "Another turn of the conversation runs.",
        "Try again when it has ended.",
    )

    # of the caller's rights and means
    INVALID_KEY = ("invalid_api_key", "There is no API key, or it is not known here or revoked.", "Send a valid key.")
    NOT_PERMITTED = ("insufficient_permissions", "The key's role or scope does not allow it.", _ASK)
    NETWORK_DENIED = ("network_not_allowed", "The key may not be used from this address.", _ASK)
    ENDPOINT_DENIED = ("endpoint_not_allowed", "The key may not use this route.", _ASK)
    MODEL_DENIED = (
        "model_not_allowed",
        "A policy or the key does not allow the model.",
        "Use one that the message names.",
    )
    POLICY_DENIED = ("policy_denied", "A rule of the policy refuses the request; the message names it.", _ASK)
    SENSITIVE = (
        "sensitive_data",
        "The request has a sensitive value where the policy allows none.",
        "Take it out; the message names its kind.",
    )
    RATE_LIMIT = ("rate_limit_exceeded", "The key has used up its limit for this minute.", _LATER)
    QUOTA = ("quota_exceeded", "The account has used up a quota.", "Do what the message says: wait, cancel or delete.")
    QUEUED_TOKENS = (
        "token_limit_exceeded",
        "A batch file would exceed the account's quota of queued tokens.",
        "Wait until queued work is done, or cancel some.",
    )
    BUDGET = (
        "insufficient_quota",
        "A budget has no money left for the request.",
        "Wait for its next window, or ask for more.",
    )
    CAPACITY = ("capacity_exceeded", "No engine has room for the request, or none is ready.", _LATER)
    UNAVAILABLE = (
        "resource_unavailable",
        "A flex call with `rejectIfBusy` would have to wait.",
        "Send it later, or let it wait.",
    )

    # of a line of a batch file
    INVALID_LINE = ("invalid_json_line", "The line is not a JSON object; the message says why.", "Correct the line.")
    INVALID_URL = (
        "invalid_url",
        "The line's `url` is not supported, or is not the batch's endpoint.",
        "Correct `url`.",
    )
    DUPLICATE_ID = ("duplicate_custom_id", "An earlier line has this `custom_id`.", "Give each line its own.")
    OTHER_MODEL = (
        "mismatched_model",
        "The line names another model than the lines before it.",
        "One model for each file, or `mixed`.",
    )
    STREAMING = ("streaming_unsupported", "The line asks for a stream.", "Leave `stream` out.")
    INVALID_FILE = (
        "invalid_request",
        "The file of a batch is unknown, or has another purpose.",
        "Upload it for `batch`.",
    )

    # of a request in an error file
    BATCH_CANCELLED = ("batch_cancelled", "The batch was cancelled before this request ran.", "`retry` runs it.")
    BATCH_EXPIRED = (
        "batch_expired",
        "The request did not run before the deadline.",
        "`retry`, or a longer `completion_window`.",
    )
    REQUEST_TIMEOUT = (
        "request_timeout",
        "The request had no answer in time.",
        "`retry`, or lower the limit of the answer.",
    )
    SERVER_ERROR = ("server_error", "The engine failed, or the request has no result.", "`retry` runs it again.")
