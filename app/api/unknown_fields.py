"""Fields of a body, or query parameters, that nobody knows: warned of in a header, or in strict mode refused.

Unknown fields are passed on to the engine, which ignores them; so `max_token` would go unnoticed. A caller who wants to be
told of every field that is not known here sends `?strict=true` or the header `x-slackwater-strict: true`.
"""

from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any

from fastapi import Request

from app.api import response_headers
from app.batches.validation.fields import FIELDS
from app.batches.validation.text_generation import LENGTHS
from app.engines.private_fields import ENGINE_PRIVATE_FIELDS
from app.errors import BadInput

WARNING, STRICT = "x-slackwater-warning", "x-slackwater-strict"
_TRUE = ("1", "true", "yes")
SWITCH = (*_TRUE, "0", "false", "no")
_MOST_LOOKED_AT, _MOST_TOLD, _LONGEST = 20, 3, 60
_NEAR = 0.8  # of difflib: one letter more, less or wrong

# Of OpenAI's routes and of vLLM 0.32 behind them, those of Workers AI beside.
_INFERENCE = """
    model messages prompt input text query contexts truncate_inputs pooling requests request_id lora functions function_call
    audio modalities prediction moderation verbosity web_search_options metadata store user safety_identifier service_tier
    prompt_cache_key prompt_cache_options prompt_cache_retention reasoning reasoning_effort stream_options tool_choice
    parallel_tool_calls logit_bias best_of echo suffix dimensions encoding_format background conversation context_management
    access_programs image include instructions max_output_tokens max_tool_calls previous_response_id truncation
    min_tokens ignore_eos stop_token_ids bad_words allowed_token_ids logprob_token_ids prompt_logprobs use_beam_search
    length_penalty include_stop_str_in_output skip_special_tokens spaces_between_special_tokens truncate_prompt_tokens
    truncation_side thinking_token_budget add_special_tokens add_generation_prompt continue_final_message documents
    chat_template_kwargs include_reasoning repetition_detection return_token_ids watermarking enable_response_messages
    previous_input_messages normalize custom_id
"""
_BATCH = """
    input_file_id endpoint completion_window metadata output_expires_after idempotency_key requests mixed validation
    partial_results
"""
INFERENCE = frozenset([*FIELDS, *LENGTHS, *_INFERENCE.split()]) - ENGINE_PRIVATE_FIELDS
BATCH = frozenset(_BATCH.split())


def check(
    request: Request, given: Mapping[str, Any], known: Collection[str] = INFERENCE, *, called: str = "field"
) -> None:
    """Warn of fields that are near a known one. Raises BadInput in strict mode, for the first that is not known.

    `called`: what the message calls one of them.
    """
    strict = _is_strict(request)
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    told = []
    for name in unknown if strict else unknown[:_MOST_LOOKED_AT]:
        said = _said(name, known, called)
        if strict:
            raise BadInput(said or f"{_plain(name)}: unknown {called}", param=_plain(name), reason="unknown_parameter")
        if said:
            told.append(said)
    if told:
        response_headers.add(request, {WARNING: " | ".join(told[:_MOST_TOLD])})


def _said(name: str, known: Collection[str], called: str) -> str | None:
    """What is to be said of an unknown field; None: it may be the engine's."""
    if name in ENGINE_PRIVATE_FIELDS:
        return f"{name}: is the operator's to set; it was left out"
    near = get_close_matches(name, known, 1, _NEAR)
    return f"{_plain(name)}: unknown {called}; did you mean {near[0]}?" if near else None


def _is_strict(request: Request) -> bool:
    """Whether the caller asks for it. Raises BadInput for what is neither yes nor no."""
    asked = request.headers.get(STRICT), request.query_params.get("strict")
    for given in asked:
        if given and given.lower() not in SWITCH:
            raise BadInput(f"strict: must be one of {', '.join(SWITCH)}, got {given[:40]!r}", param="strict")
    return (asked[0] or asked[1] or "").lower() in _TRUE


def _plain(name: str) -> str:
    """The name as a header may hold it."""
    return name.encode("unicode_escape").decode()[:_LONGEST]
