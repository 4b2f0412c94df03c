"""One line of an OpenAI batch file: its request, or its problem with OpenAI's code and message. Pure.

Codes and messages are those of OpenAI's Batch API that others have published (ogx's integration tests of August 2025, Azure's
and Alibaba's documentation of their compatible APIs). Where none is known, they follow the same style.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.admission.admission import Admission
from app.batches.validation import not_json, openai, strict_json
from app.batches.validation.fields import show
from app.batches.validation.text_generation import Examine, ItemError, ItemFacts, ItemRules
from app.engines.catalogue import Catalogue, Model, Task
from app.engines.requests import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from app.errors import PolicyDenied, SensitiveFound
from app.openai_codes import OpenAICode
from app.policy import vaults
from app.policy.vaults import NO_VALUES, Vaults
from app.sentences import ended

# By route: the task of its models, and how its bodies are checked.
ROUTES: Mapping[str, tuple[Task, Examine]] = {
    CHAT: ("text-generation", openai.chat),
    COMPLETIONS: ("text-generation", openai.completion),
    EMBEDDINGS: ("text-embeddings", openai.embedding),
    RESPONSES: ("text-generation", openai.response),
}
MOST_PROBLEMS = 1000
VAULT = "vault"  # field of a redacted line: the sealed values of its placeholders, in base64
_SHOWN = 60  # characters of a name in a message
_CUSTOM_ID_CHARACTERS = 512
_TEMPLATE_TOKENS = 512  # that a chat template may add
WITHHELD = b"?"  # stands for a line that is no JSON, in a file whose lines are redacted
_NEEDED = ("custom_id", "method", "url", "body")
_STREAMING = {CHAT: "Chat Completions", COMPLETIONS: "Completions", EMBEDDINGS: "Embeddings", RESPONSES: "Responses"}


@dataclass(frozen=True, slots=True)
class LineProblem:
    """One entry of a batch's `errors`. `line` counts from 1; None: the problem belongs to no line.

    `alone`: only the line fails, and the batch runs. OpenAI detects these problems when it runs the line.
    """

    code: OpenAICode
    line: int | None
    message: str
    param: str | None = None
    alone: bool = False

    def view(self) -> dict[str, Any]:
        """The entry in the form that callers read."""
        return {"code": self.code, "line": self.line, "message": self.message, "param": self.param}


class LineError(Exception):
    """A line violates a rule. `alone`: see LineProblem."""

    def __init__(self, code: OpenAICode, message: str, param: str | None, *, alone: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.param, self.alone = code, message, param, alone


@dataclass(frozen=True, slots=True)
class BadLine:
    """An invalid line; `custom_id` if it has a valid one."""

    custom_id: str | None
    problem: LineProblem


@dataclass(slots=True)
class Demand:
    """The sum of the lines for one model. Tokens are estimates; `most_tokens` is the upper limit of the answers, and
    `most_prompt_tokens` that of the prompts.
    """

    requests: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    most_tokens: int = 0
    most_prompt_tokens: int = 0

    def add(self, facts: ItemFacts, most_prompt: int) -> None:
        """Add one line, whose prompt has at most so many tokens."""
        self.requests += 1
        self.prompt_tokens += facts.est_tokens - facts.answer_tokens
        self.answer_tokens += facts.answer_tokens
        self.most_tokens += facts.most_tokens
        self.most_prompt_tokens += most_prompt


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A valid line. `asked`: its body as it was sent, where the policy has changed it. `values`: of its placeholders."""

    custom_id: str
    route: str
    model: Model
    body: dict[str, Any]
    facts: ItemFacts
    asked: dict[str, Any] | None = None
    values: Mapping[str, str] = field(default_factory=lambda: NO_VALUES)


def vault_values(sealed: Any, opener: Vaults | None) -> Mapping[str, str]:
    """What the placeholders stand for that a line got when its file was uploaded. `sealed`: its field VAULT."""
    if not isinstance(sealed, str) or opener is None:
        return NO_VALUES
    try:
        return opener.opened(base64.b64decode(sealed), vaults.OF_FILE)
    except ValueError:  # the caller's own field
        return NO_VALUES


def opens(sealed: Any, opener: Vaults) -> bool:
    """Whether the field VAULT of a line has values that can be read, or is the caller's own."""
    try:
        vault = base64.b64decode(sealed, validate=True) if isinstance(sealed, str) else b""
    except ValueError:
        return True
    return not vaults.is_vault(vault) or opener.opened(vault, vaults.OF_FILE) is not NO_VALUES


def most_prompt(line: BatchLine, line_bytes: int) -> int:
    """The tokens that the prompt of a line has at most: one for each byte, and what the chat template adds. One prompt, unlike a
    list of them, fits into the context, which an image that the engine fetches may fill.
    """
    most, window = line_bytes + _TEMPLATE_TOKENS, line.model.context_window
    if line.route not in (CHAT, RESPONSES):
        return most
    return window if line.model.media_hosts else min(window, most)


class Lines:
    """Reads the lines of one file in order, and collects their problems and the demand for each model.

    `problems` fail a batch of the file, `alone` only their lines.

    `endpoint`: the route that all lines must name; None: any known route. `mixed`: they may name several models.
    Without `strict` their JSON is known to be valid from an earlier reading.
    """

    def __init__(
        self,
        models: Catalogue,
        rules_of: Mapping[str, ItemRules],
        endpoint: str | None = None,
        *,
        mixed: bool = False,
        strict: bool = True,
        admission: Admission,
    ) -> None:
        self._models = models
        self._admission = admission
        self._rules = rules_of
        self._endpoint = endpoint
        self._mixed = mixed
        self._loads = strict_json.loads if strict else orjson.loads
        self._seen: set[str] = set()
        self._custom_id_read: str | None = None
        self.problems: list[LineProblem] = []
        self.alone: list[LineProblem] = []
        self.demand: dict[str, Demand] = {}
        self.count = 0
        self.malformed = 0  # lines that are not JSON objects
        self.number = 0
        self.model: Model | None = None  # of the first line with a valid route and model

    def read(self, text: bytes) -> BatchLine | BadLine | None:
        """The next line of the file; None if it is blank."""
        self.number += 1
        if not text.strip():
            return None
        self.count += 1
        self._custom_id_read = None
        try:
            line = self._read(text)
        except LineError as error:
            self.malformed += error.code == OpenAICode.INVALID_LINE
            message = (
                error.message
                if self._admission.redaction is None
                else self._admission.redaction.scrubbed(error.message)
            )
            problem = LineProblem(error.code, self.number, message, error.param, error.alone)
            kept = self.alone if problem.alone else self.problems
            if len(kept) < MOST_PROBLEMS:
                kept.append(problem)
            return BadLine(self._custom_id_read, problem)
        self.demand.setdefault(line.model.name, Demand()).add(line.facts, most_prompt(line, len(text)))
        return line

    def _read(self, text: bytes) -> BatchLine:
        given = self._parsed(text)
        if not isinstance(given, dict):
            raise LineError(
                OpenAICode.INVALID_LINE, f"This line is not a JSON object, but {not_json.kind(given)}.", None
            )
        self._custom_id_read = custom_id_in(given)
        if self._admission.redaction is not None:
            self._admission.redaction.check(f"custom_id of line {self.number}", self._custom_id_read)
        for name in _NEEDED:
            if given.get(name) is None:
                raise LineError(OpenAICode.MISSING, f"Missing required parameter: '{name}'.", name)
        custom_id, route, body = self._custom_id(given["custom_id"]), self._route(given), given["body"]
        if not isinstance(body, dict):
            raise LineError(OpenAICode.INVALID_TYPE, "Invalid type for 'body': expected an object.", "body")
        model = self._model(body, route)
        if body.get("stream") is True:  # what is neither true nor false is the body's own fault
            message = f"{_STREAMING[route]}: Streaming is not supported in the Batch API."
            raise LineError(OpenAICode.STREAMING, message, "body.stream")
        if route == CHAT and body.get("messages") is None:
            raise LineError(OpenAICode.MISSING, "Missing required parameter: 'body.messages'.", "body.messages")
        if self.model is None:
            self.model = model
        self._seen.add(custom_id)
        return self._admitted(custom_id, route, model, body, vault_values(given.get(VAULT), self._admission.vaults))

    def _parsed(self, text: bytes) -> Any:
        try:
            return self._loads(text)
        except strict_json.NumberUnfit as error:
            raise LineError(OpenAICode.INVALID_VALUE, f"{error}.", error.field) from None
        except (strict_json.JsonError, orjson.JSONDecodeError):
            raise LineError(OpenAICode.INVALID_LINE, _refused(text), None) from None

    def _admitted(
        self, custom_id: str, route: str, model: Model, body: dict[str, Any], values: Mapping[str, str]
    ) -> BatchLine:
        """The line as it may run. A line that is invalid, or that the policy denies, fails alone. Raises LineError."""
        examine = ROUTES[route][1]

        def examined(model: Model, body: dict[str, Any]) -> ItemFacts:
            if model.name not in self._rules:  # it was adopted a moment ago
                raise ItemError("model", "is not known yet; try again in a second")
            return examine(body, self._rules[model.name])

        try:
            admitted = self._admission.admit(model, body, route, examined, values)
        except ItemError as error:
            param = f"body.{error.field}" if error.field else "body"
            said = f"Invalid value for '{param}': {error.message}"
            if error.reason is OpenAICode.MISSING:
                said = f"Missing required parameter: '{param}'{error.message.removeprefix('is missing')}"
            raise LineError(error.reason or OpenAICode.INVALID_VALUE, ended(said), param, alone=True) from None
        except PolicyDenied as denial:
            raise LineError(denial.reason or OpenAICode.POLICY_DENIED, denial.message, "body", alone=True) from None
        except SensitiveFound as refusal:
            raise LineError(refusal.reason or OpenAICode.SENSITIVE, refusal.message, "body", alone=True) from None
        asked = None if admitted.item is body else body
        return BatchLine(custom_id, route, admitted.model, admitted.item, admitted.facts, asked, admitted.values)

    @property
    def all_problems(self) -> list[LineProblem]:
        """All problems by line, at most `MOST_PROBLEMS`; beyond that, those that fail the batch take precedence."""
        kept = [*self.problems, *self.alone][:MOST_PROBLEMS]
        return sorted(kept, key=lambda problem: problem.line or 0)

    def _custom_id(self, given: str) -> str:
        if self._custom_id_read is None:
            message = f"Invalid value for 'custom_id': expected a string of 1 to {_CUSTOM_ID_CHARACTERS} characters."
            raise LineError(OpenAICode.INVALID_VALUE, message, "custom_id")
        if given in self._seen:
            message = (
                f"The custom_id '{given}' for this request is a duplicate of another request. "
                "The custom_id parameter must be unique for each request in a batch."
            )
            raise LineError(OpenAICode.DUPLICATE_ID, message, "custom_id")
        return given

    def _route(self, given: Mapping[str, Any]) -> str:
        if given["method"] != "POST":
            raise LineError(OpenAICode.INVALID_VALUE, "Invalid value for 'method': only 'POST' is supported.", "method")
        url = given["url"]
        if self._endpoint is not None and url != self._endpoint:
            message = (
                f"The URL provided for this request does not match the batch endpoint. It is {show(url)}, not "
                f"{show(self._endpoint)}."
            )
            raise LineError(OpenAICode.INVALID_URL, message, "url")
        if not isinstance(url, str) or url not in ROUTES:
            message = f"The URL provided for this request is not supported. Supported values: {', '.join(ROUTES)}."
            raise LineError(OpenAICode.INVALID_URL, message, "url")
        return url

    def _model(self, body: Mapping[str, Any], route: str) -> Model:
        name = body.get("model")
        if name is None:
            raise LineError(OpenAICode.MISSING, "Missing required parameter: 'body.model'.", "body.model")
        if not isinstance(name, str):
            message = f"Invalid type for 'body.model': expected a string, but got {not_json.kind(name)} instead."
            raise LineError(OpenAICode.INVALID_TYPE, message, "body.model")
        model = self._models.resolve(name)
        if model is None or "async_queue" not in model.capabilities or model.task != ROUTES[route][0]:
            what = f"on {route}" if model is not None else "by the Batch API"
            raise LineError(
                OpenAICode.MODEL_UNKNOWN,
                f"The provided model '{name[:_SHOWN]}' is not supported {what}; GET /v1/models lists those that are.",
                "body.model",
            )
        if self.model is not None and model.name != self.model.name and not self._mixed:
            message = (
                f"The model '{name[:_SHOWN]}' for this request does not match the rest of the batch. "
                "Each batch must contain requests for a single model."
            )
            raise LineError(OpenAICode.OTHER_MODEL, message, "body.model")
        return model


def _refused(text: bytes) -> str:
    """Why a line is not taken as JSON."""
    no_json = "This line is not parseable as valid JSON"
    try:
        if text != WITHHELD:
            strict_json.loads(text)
    except strict_json.JsonError as error:
        return f"{no_json if error.invalid else 'This line is refused'}: {error.reason}."
    return f"{no_json}."


def custom_id_in(given: Mapping[str, Any]) -> str | None:
    """The id of a line; None: it has no valid one."""
    found = given.get("custom_id")
    if not isinstance(found, str) or not 1 <= len(found) <= _CUSTOM_ID_CHARACTERS or "\0" in found:
        return None
    return found
