"""Example answers of the main operations, for the OpenAPI document. The keys are those of `openapi_operations`."""

from collections.abc import Mapping
from typing import Any

from app import __version__

_MODEL = "smollm2-135m-instruct"
_REQUEST = "2457fe16-510b-4636-923b-e2e32d7ecd98"
_BATCH = "batch_61a064cc38f94e27ab2d6674c96f0b39"
_AT = "2026-11-22T14:18:00.566+00:00"
_DONE = "2026-11-22T14:18:42.180+00:00"
_TOKENS = {"prompt_tokens": 38, "completion_tokens": 8, "total_tokens": 46}
_PRICE = {"cost": 1.1e-06, "currency": "USD"}
_USAGE = _TOKENS | {"prompt_tokens_details": {"cached_tokens": 0}} | _PRICE
_TEXT = "The capital of France is Paris."
_ITEM = {
    "id": 0,
    "result": {"response": _TEXT, "usage": _TOKENS | _PRICE},
    "success": True,
    "external_reference": "france",
}
_COMPLETION = {
    "id": "chatcmpl-5f1c",
    "object": "chat.completion",
    "created": 1_795_357_080,
    "model": _MODEL,
    "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": _TEXT}}],
    "usage": _USAGE,
}
_OVERVIEW: dict[str, Any] = {
    "request_id": _REQUEST,
    "name": None,
    "model": _MODEL,
    "status": "completed",
    "run": 1,
    "progress": {"total": 1, "succeeded": 1, "failed": 0},
    "usage": _USAGE,
    "tags": [],
    "metadata": None,
    "policy": None,
    "diverted_to": None,
    "trace_id": None,
    "created_at": _AT,
    "finished_at": _DONE,
    "expires_at": None,
}
_NO_ENGINE = {"code": "no_engine", "message": f"no engine serves {_MODEL}", "since": _AT}
_LINK = {"code": "next", "message": "next in line", "since": _AT, "blocks": True, "met": False}
_FILE = {
    "id": "file-5BpTNOuaciULYj65clIEeB",
    "object": "file",
    "bytes": 211,
    "created_at": 1_795_357_080,
    "expires_at": 1_797_949_080,
    "filename": "input.jsonl",
    "purpose": "batch",
    "status": "processed",
    "status_details": None,
    "lines": 1,
}
_NEW_BATCH = {
    "id": _BATCH,
    "object": "batch",
    "endpoint": "/v1/chat/completions",
    "model": _MODEL,
    "errors": None,
    "input_file_id": _FILE["id"],
    "completion_window": "24h",
    "status": "in_progress",
    "output_file_id": None,
    "error_file_id": None,
    "created_at": 1_795_357_080,
    "in_progress_at": 1_795_357_080,
    "expires_at": 1_795_443_480,
    "finalizing_at": None,
    "completed_at": None,
    "failed_at": None,
    "expired_at": None,
    "cancelling_at": None,
    "cancelled_at": None,
    "request_counts": {"total": 1, "completed": 0, "failed": 0, "in_progress": 1},
    "usage": {
        "input_tokens": 0,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 0,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 0,
        "cost": 0.0,
        "currency": "USD",
    },
    "metadata": None,
    "policy": None,
    "diverted_to": None,
    "pipeline": None,
    "trace_id": None,
    "progress": 0.0,
    "eta": 1_795_357_122,
    "no_eta": None,
}
_ENGINE = {
    "name": "engine-0",
    "model": _MODEL,
    "serves": [_MODEL],
    "max_model_len": 8192,
    "version": "0.11.0",
    "scheduling_policy": "priority",
    "mode": "managed",
    "state": "ready",
    "reason": "open",
    "message": "engine-0 is open, for 2 min",
    "since": _AT,
    "intake": "open",
    "slots": 256,
    "allowance": 64,
    "batch_in_flight": 12,
    "sync_in_flight": 3,
    "protection": "inside",
    "problems": [],
}
_STATUS = {
    "status": "warning",
    "version": __version__,
    "at": _DONE,
    "parts": {"api": "ok", "database": "ok", "steward": "ok", "notifier": "ok", "maintenance": "ok", "workers": 1},
    "webhooks": {"allow_private": "off"},
    "callers": {
        "verdict": "protected",
        "headline": "Synchronous callers are protected",
        "details": "Of smollm2-135m-instruct over 60 min, at p95: first token 118 ms beside batch work, 112 ms alone (1.05 times)"
        "; 4,100 streams beside, 2,300 alone.",
    },
    "engines": [_ENGINE],
    "queue": {
        "open_batches": 1,
        "waiting_for_money": 0,
        "items_queued": 40,
        "items_claimed": 4,
        "items_in_engine": 12,
        "items_done": 8,
        "oldest_waiting_seconds": 12.5,
    },
    "duties": [
        {
            "name": "days",
            "about": "drops days whose retention is over",
            "succeeded_at": _AT,
            "took_seconds": 0.4,
            "due_at": _DONE,
            "error": None,
        }
    ],
    "problems": [
        {
            "code": "model_unserved",
            "message": "Batches for org/other wait, but no engine serves it.",
            "remedy": "They are kept until one does. To end them: slackwater batch list, slackwater batch cancel.",
            "severity": "warning",
        }
    ],
}
_MODELS = {
    "object": "list",
    "data": [
        {
            "id": _MODEL,
            "object": "model",
            "created": 1_735_689_600,
            "owned_by": "slackwater",
            "max_model_len": 8192,
            "task": "text-generation",
            "capabilities": ["async_queue", "json_mode"],
        }
    ],
}


def _success(result: Any, **extra: Any) -> dict[str, Any]:
    return {"result": result, "success": True, "errors": [], "messages": [], **extra}


_QUEUED = _success({"status": "queued", "request_id": _REQUEST, "model": _MODEL})
_ENDED = _success({"responses": [_ITEM], "usage": _USAGE})

ANSWERS: Mapping[str, Mapping[str, Any]] = {
    "post ai/run/{model}": {"submitted": _QUEUED, "polled": _ENDED},
    "post ai/run": {"submitted": _QUEUED, "polled": _ENDED},
    "get ai/batches": {
        "listed": _success([_OVERVIEW], result_info={"count": 1, "per_page": 20, "cursor": None}),
    },
    "get ai/batches/{request_id}": {"completed": _success(_OVERVIEW | {"failures": []})},
    "get ai/batches/{request_id}/why": {
        "waiting": _success(
            {
                "request_id": _REQUEST,
                "model": _MODEL,
                "status": "queued",
                "progress": {"total": 1, "succeeded": 0, "failed": 0, "queued": 1, "claimed": 0, "in_engine": 0},
                "waiting": _NO_ENGINE,
                "chain": [_NO_ENGINE | {"blocks": True, "met": False}, _LINK],
                "decisions": [],
            }
        )
    },
    "post v1/chat/completions": {"answered": _COMPLETION},
    "post v1/files": {"uploaded": _FILE},
    "post v1/batches": {"created": _NEW_BATCH},
    "get v1/batches/{batch_id}": {"running": _NEW_BATCH},
    "get v1/batches": {
        "listed": {"object": "list", "data": [_NEW_BATCH], "first_id": _BATCH, "last_id": _BATCH, "has_more": False}
    },
    "get v1/models": {"listed": _MODELS},
    "get /status": {"warning": _STATUS},
}
LINES: Mapping[str, Any] = {"get ai/batches/{request_id}/results": _ITEM}  # one line of NDJSON
