"""One line of an OpenAI batch file: what it asks for, or what is wrong with it in OpenAI's words. Pure.

Codes and messages are those of OpenAI's Batch API as others have met them (ogx's integration tests of August 2025, Azure's and
Alibaba's documentation of their compatible APIs); where none is known, ours in their manner.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from app.batches.validation import openai, strict_json, text_generation
from app.batches.validation.text_generation import Examine, ItemError, ItemFacts, ItemRules
from app.engines.catalogue import Catalogue, Model, Task
from app.engines.requests import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from app.sentences import ended

# Which models serve a route, and how its bodies are checked.
ROUTES: Mapping[str, tuple[Task, Examine]] = {
    CHAT: ("text-generation", text_generation.examine),
    COMPLETIONS: ("text-generation", openai.completion),
    EMBEDDINGS: ("text-embeddings", openai.embedding),
    RESPONSES: ("text-generation", openai.response),
}
MOST_PROBLEMS = 1000
_SHOWN = 60  # characters of a name in a message
_CUSTOM_ID_CHARACTERS = 512
_MALFORMED = "invalid_json_line"
_NEEDED = ("custom_id", "method", "url", "body")
_STREAMING = {CHAT: "Chat Completions", COMPLETIONS: "Completions", EMBEDDINGS: "Embeddings", RESPONSES: "Responses"}


@dataclass(frozen=True, slots=True)
class LineProblem:
    """One entry of a batch's `errors`. `line` counts from 1; None: it is about no line.

    `alone`: only the line fails, and the batch runs; what OpenAI finds out when it runs the line.
    """

    code: str
    line: int | None
    message: str
    param: str | None = None
    alone: bool = False

    def view(self) -> dict[str, Any]:
        """As callers see it."""
        return {"code": self.code, "line": self.line, "message": self.message, "param": self.param}


class Unfit(Exception):
    """A line breaks a rule. `alone`: as in a Problem."""

    def __init__(self, code: str, message: str, param: str | None, *, alone: bool = False) -> None:
        super().__init__(message)
        self.code, self.message, self.param, self.alone = code, message, param, alone


@dataclass(frozen=True, slots=True)
class BadLine:
    """A line that cannot be run; `custom_id` if it has one that could be read."""

    custom_id: str | None
    problem: LineProblem


@dataclass(slots=True)
class Demand:
    """What the lines for one model ask for. Tokens are estimates; more than `most_tokens` the answers cannot have."""

    requests: int = 0
    prompt_tokens: int = 0
    answer_tokens: int = 0
    most_tokens: int = 0

    def add(self, facts: ItemFacts) -> None:
        """One more line."""
        self.requests += 1
        self.prompt_tokens += facts.est_tokens - facts.answer_tokens
        self.answer_tokens += facts.answer_tokens
        self.most_tokens += facts.most_tokens


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A line that can be run."""

    custom_id: str
    route: str
    model: Model
    body: dict[str, Any]
    facts: ItemFacts


class Lines:
    """Reads the lines of one file in order and remembers what is wrong with them, and what they ask for of each model.

    `problems` fail a batch of the file, `alone` only their lines.

    `endpoint`: the route that all have to name; None: any that is served. `mixed`: they may name several models.
    Not `strict`: they were read before, so that their JSON is known to be sound.
    """

    def __init__(
        self,
        models: Catalogue,
        rules_of: Mapping[str, ItemRules],
        endpoint: str | None = None,
        *,
        mixed: bool = False,
        strict: bool = True,
    ) -> None:
        self._models = models
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
        self.malformed = 0  # lines that are no JSON object
        self.number = 0
        self.model: Model | None = None  # of the first line that has one and may be tried

    def read(self, text: bytes) -> BatchLine | BadLine | None:
        """The next line of the file; None if it is blank."""
        self.number += 1
        if not text.strip():
            return None
        self.count += 1
        self._custom_id_read = None
        try:
            line = self._read(text)
        except Unfit as unfit:
            self.malformed += unfit.code == _MALFORMED
            problem = LineProblem(unfit.code, self.number, unfit.message, unfit.param, unfit.alone)
            kept = self.alone if problem.alone else self.problems
            if len(kept) < MOST_PROBLEMS:
                kept.append(problem)
            return BadLine(self._custom_id_read, problem)
        self.demand.setdefault(line.model.name, Demand()).add(line.facts)
        return line

    def _read(self, text: bytes) -> BatchLine:
        try:
            given = self._loads(text)
        except (strict_json.JsonError, orjson.JSONDecodeError):
            raise Unfit(_MALFORMED, "This line is not parseable as valid JSON.", None) from None
        if not isinstance(given, dict):
            raise Unfit(_MALFORMED, "This line is not a JSON object.", None)
        self._custom_id_read = custom_id_in(given)
        for name in _NEEDED:
            if given.get(name) is None:
                raise Unfit("missing_required_parameter", f"Missing required parameter: '{name}'.", name)
        custom_id, route, body = self._custom_id(given["custom_id"]), self._route(given), given["body"]
        if not isinstance(body, dict):
            raise Unfit("invalid_type", "Invalid type for 'body': expected an object.", "body")
        model = self._model(body, route)
        if body.get("stream"):
            message = f"{_STREAMING[route]}: Streaming is not supported in the Batch API."
            raise Unfit("streaming_unsupported", message, "body.stream")
        if route == CHAT and body.get("messages") is None:
            raise Unfit("missing_required_parameter", "Missing required parameter: 'messages'.", "body.messages")
        if self.model is None:
            self.model = model
        self._seen.add(custom_id)
        try:
            facts = ROUTES[route][1](body, self._rules[model.name])
        except ItemError as error:
            param = f"body.{error.field}" if error.field else "body"
            message = ended(f"Invalid value for '{param}': {error.message}")
            raise Unfit("invalid_value", message, param, alone=True) from None
        return BatchLine(custom_id, route, model, body, facts)

    @property
    def told(self) -> list[LineProblem]:
        """Everything that is wrong, by line; no more than `MOST_PROBLEMS`, those that fail the batch before others."""
        found = [*self.problems, *self.alone][:MOST_PROBLEMS]
        return sorted(found, key=lambda problem: problem.line or 0)

    def _custom_id(self, given: str) -> str:
        if self._custom_id_read is None:
            message = f"Invalid value for 'custom_id': expected a string of 1 to {_CUSTOM_ID_CHARACTERS} characters."
            raise Unfit("invalid_value", message, "custom_id")
        if given in self._seen:
            message = (
                f"The custom_id '{given}' for this request is a duplicate of another request. "
                "The custom_id parameter must be unique for each request in a batch."
            )
            raise Unfit("duplicate_custom_id", message, "custom_id")
        return given

    def _route(self, given: Mapping[str, Any]) -> str:
        if given["method"] != "POST":
            raise Unfit("invalid_value", "Invalid value for 'method': only 'POST' is supported.", "method")
        url = given["url"]
        if self._endpoint is not None and url != self._endpoint:
            raise Unfit("invalid_url", "The URL provided for this request does not match the batch endpoint.", "url")
        if not isinstance(url, str) or url not in ROUTES:
            message = f"The URL provided for this request is not supported. Supported values: {', '.join(ROUTES)}."
            raise Unfit("invalid_url", message, "url")
        return url

    def _model(self, body: Mapping[str, Any], route: str) -> Model:
        name = body.get("model")
        if name is None:
            raise Unfit("missing_required_parameter", "Missing required parameter: 'model'.", "body.model")
        model = self._models.resolve(name) if isinstance(name, str) else None
        if model is None or "async_queue" not in model.capabilities or model.task != ROUTES[route][0]:
            what = f"on {route}" if model is not None else "by the Batch API"
            raise Unfit(
                "model_not_found", f"The provided model '{str(name)[:_SHOWN]}' is not supported {what}.", "body.model"
            )
        if self.model is not None and model.name != self.model.name and not self._mixed:
            message = (
                f"The model '{str(name)[:_SHOWN]}' for this request does not match the rest of the batch. "
                "Each batch must contain requests for a single model."
            )
            raise Unfit("mismatched_model", message, "body.model")
        return model


def custom_id_in(given: Mapping[str, Any]) -> str | None:
    """The id of a line, if it is one."""
    found = given.get("custom_id")
    if not isinstance(found, str) or not 1 <= len(found) <= _CUSTOM_ID_CHARACTERS or "\0" in found:
        return None
    return found
