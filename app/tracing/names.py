"""The names of our spans and of their attributes: one table, because the conventions for generative AI still change. Pure.

No attribute holds content: no prompt, no answer, and no message of an engine, which may quote either.
"""

from collections.abc import Mapping

# Spans
SUBMIT = "submit slackwater"
CHUNK = "process slackwater"
UNTOLD = "report slackwater"
END = "settle slackwater"
WEBHOOK = "send webhook"

# OpenTelemetry, generative AI (semantic-conventions-genai, in development)
GEN_AI_OPERATION = "gen_ai.operation.name"
GEN_AI_PROVIDER = "gen_ai.provider.name"
GEN_AI_MODEL = "gen_ai.request.model"
GEN_AI_FINISH_REASONS = "gen_ai.response.finish_reasons"
GEN_AI_INPUT_TOKENS = "gen_ai.usage.input_tokens"
GEN_AI_OUTPUT_TOKENS = "gen_ai.usage.output_tokens"
GEN_AI_CACHED_TOKENS = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_WORKFLOW = "gen_ai.workflow.name"
PROVIDER = "vllm"  # the conventions have no value for it yet

# OpenTelemetry, messaging (in development), HTTP and errors
MESSAGING_SYSTEM = "messaging.system"
MESSAGING_OPERATION = "messaging.operation.type"
MESSAGING_COUNT = "messaging.batch.message_count"
HTTP_METHOD = "http.request.method"
HTTP_STATUS = "http.response.status_code"
SERVER_ADDRESS = "server.address"
ERROR = "error.type"
SYSTEM = "slackwater"

# Ours
ACCOUNT = "slackwater.account"
BATCH = "slackwater.batch"  # its request_id
CHUNK_ID = "slackwater.chunk"
CORRELATION = "slackwater.correlation_id"
DELIVERY = "slackwater.delivery"
ENDPOINT = "slackwater.endpoint"
ENGINE = "slackwater.engine"
ENGINE_SECONDS = "slackwater.engine_seconds"
EVENT = "slackwater.event"
FIRST_TOKEN_SECONDS = "slackwater.first_token_seconds"  # noqa: S105
ITEM = "slackwater.item"  # its position in the batch, from 0
ITEMS_FAILED = "slackwater.items.failed"
ITEMS_OK = "slackwater.items.ok"
ITEMS_RETURNED = "slackwater.items.returned"
KIND = "slackwater.kind"
POLICY_RULES = "slackwater.policy.rules"
RUN = "slackwater.run"
SECONDS = "slackwater.seconds"
STATE = "slackwater.state"
STORY = "slackwater.recorded_because"
STREAMED = "slackwater.streamed"
SUBMIT_TRACE = "slackwater.submit.trace_id"
ATTEMPT = "slackwater.attempt"
UNTOLD_ITEMS = "slackwater.failed_items_without_span"
VERDICT = "slackwater.verdict"
WEBHOOK_ID = "slackwater.webhook_id"
YIELDS = "slackwater.yields"

_OPERATIONS: Mapping[str, str] = {
    "/v1/chat/completions": "chat",
    "/v1/completions": "text_completion",
    "/v1/embeddings": "embeddings",
    "/v1/responses": "chat",
}
_ERRORS: Mapping[int, str] = {5006: "invalid_request", 3007: "timeout", 5001: "execution_failed"}


def operation(endpoint: str) -> str:
    """The operation of a request, by the engine's route for it. An item that no engine can take has its own."""
    return _OPERATIONS.get(endpoint, "unfit")


def error(code: int) -> str:
    """The type of an item's error, by its code."""
    return _ERRORS.get(code, str(code))
