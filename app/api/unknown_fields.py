"""Unknown fields of a body and unknown query parameters: a warning in a header, or a refusal in strict mode.

The engine gets unknown fields and ignores them, so a typing error such as `max_token` would go unnoticed. With
`?strict=true` or the header `x-slackwater-strict: true` every unknown field is an error.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from fastapi import Request

from app.api import boolean_params, response_headers
from app.api.header_texts import HeaderTexts
from app.batches.validation.fields import FIELDS
from app.batches.validation.text_generation import LENGTHS
from app.errors import BadInput
from app.openai_codes import OpenAICode
from workers.engine.private_fields import ENGINE_PRIVATE_FIELDS

WARNING, STRICT = response_headers.WARNING, "x-slackwater-strict"
SWITCH = boolean_params.WORDS
_MOST_CHECKED, _MOST_WARNINGS, _LONGEST = 20, 3, 60
_NEAR = 0.8  # difflib's ratio: one letter more, less or wrong

# The fields of OpenAI's routes, of vLLM 0.32 and of Workers AI.
_INFERENCE = """
    model messages prompt input text query contexts truncate_inputs pooling requests request_id lora functions function_call
    audio modalities prediction moderation verbosity web_search_options metadata store safety_identifier service_tier
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning reasoning_effort stream_options
    parallel_tool_calls best_of echo suffix dimensions encoding_format background conversation context_management
    access_programs image include instructions max_output_tokens max_tool_calls previous_response_id truncation
    min_tokens ignore_eos stop_token_ids bad_words allowed_token_ids logprob_token_ids prompt_logprobs use_beam_search
    length_penalty include_stop_str_in_output skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens
    truncation_side thinking_token_budget add_special_tokens add_generation_prompt continue_final_message documents
    chat_template_kwargs include_reasoning repetition_detection return_token_ids watermarking enable_response_messages
    previous_input_messages normalize custom_id
"""
_BATCH = """
    input_file_id endpoint completion_window metadata output_expires_after idempotency_key requests mixed validation
    partial_results then depends_on
"""
INFERENCE = frozenset([*FIELDS, *LENGTHS, *_INFERENCE.split()]) - ENGINE_PRIVATE_FIELDS
BATCH = frozenset(_BATCH.split())


def check(
    request: Request, given: Mapping[str, Any], known: Collection[str] = INFERENCE, *, noun: str = "field"
) -> None:
    """Warn of fields that resemble a known one. Raises BadInput in strict mode for the first unknown one.

    `noun`: the word for one of them in messages.
    """
    strict = _is_strict(request)
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    warnings = []
    for name in unknown if strict else unknown[:_MOST_CHECKED]:
        warning = _warning(name, known, noun)
        if strict:
            message = warning or f"{_plain(name)}: unknown {noun}"
            raise BadInput(message, param=_plain(name), reason=OpenAICode.UNKNOWN_PARAMETER)
        if warning:
            warnings.append(warning)
    if warnings:
        response_headers.add(request, {WARNING: " | ".join(warnings[:_MOST_WARNINGS])})


class ItemFields:
    """The unknown fields of the items of one submit. `warnings`: those that resemble a known one, each with its first place."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._strict = _is_strict(request)
        self._seen: set[str] = set()
        self.warnings: list[str] = []

    def look(self, item: Mapping[str, Any], where: str) -> None:
        """Look at one item. Raises BadInput in strict mode for an unknown field."""
        if INFERENCE.issuperset(item):
            return
        for name in item:
            if name in INFERENCE or name in self._seen or (len(self._seen) == _MOST_CHECKED and not self._strict):
                continue
            self._seen.add(name)
            warning = _warning(name, INFERENCE, "field")
            if self._strict:
                message = f"{where}.{warning or f'{_plain(name)}: unknown field'}"
                raise BadInput(message, param=_plain(name), reason=OpenAICode.UNKNOWN_PARAMETER)
            if warning and len(self.warnings) < _MOST_WARNINGS:
                self.warnings.append(f"{where}.{warning}")

    def warn(self) -> None:
        """Put the warnings into the header of the answer, after those that it has."""
        if self.warnings:
            before = getattr(self._request.state, "headers", {}).get(WARNING)
            told = " | ".join([*([before] if before else []), *self.warnings])
            response_headers.add(self._request, {WARNING: told})


def _warning(name: str, known: Collection[str], noun: str) -> str | None:
    """The message about an unknown field; None: the engine may know it."""
    if name in ENGINE_PRIVATE_FIELDS:
        return f"{name}: only the operator may set it; it was left out"
    near = get_close_matches(name, known, 1, _NEAR)
    return f"{_plain(name)}: unknown {noun}; did you mean {near[0]}?" if near else None


def _is_strict(request: Request) -> bool:
    """Whether the request asks for strict mode; the header comes before the query. Raises BadInput."""
    by_header = HeaderTexts(request.headers).get(STRICT) or None
    if by_header is None and not request.scope["query_string"]:
        return False
    by_query = boolean_params.parse(request.query_params.get("strict") or None, "strict")
    return by_query if by_header is None else boolean_params.parse(by_header, "strict")


def _plain(name: str) -> str:
    """The name in characters that a header may hold."""
    return name.encode("unicode_escape").decode()[:_LONGEST]
