"""Faults of the fake engine that replace an answer; see `testing.fakes.engine` for the rules."""

import json
from typing import Any

from aiohttp import web


def error(rule: dict[str, Any]) -> dict[str, Any]:
    """The error of a stream's last event, or of an answer with the status 500."""
    return {"message": rule.get("message", "scripted"), "type": "InternalServerError", "code": 500}


def odd(rule: dict[str, Any]) -> web.Response:
    """An answer of another status or with another body."""
    if rule["mode"] == "junk":
        return web.Response(text=rule["body"], content_type="application/json")
    if "body" in rule:
        headers = {"content-encoding": rule["encoding"]} if "encoding" in rule else {}
        kind = rule.get("type", "text/html")
        return web.Response(text=rule["body"], status=rule["status"], content_type=kind, headers=headers)
    described = {"message": rule.get("message", "scripted"), "type": "scripted", "code": rule["status"]}
    return web.json_response({"error": described}, status=rule["status"])


def edited(answer: dict[str, Any], rule: dict[str, Any]) -> bytes:
    """An answer, or an event of one, as JSON, with the changes of an `edit`."""
    kept = {name: value for name, value in answer.items() if name not in rule.get("without", ())}
    text = json.dumps(kept)
    for old, new in rule.get("replace", ()):
        text = text.replace(old, new)
    return text.encode()


async def die(request: web.Request) -> web.StreamResponse:
    """Close the socket in the middle of the answer."""
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "1000"})
    await response.prepare(request)
    await response.write(b'{"choices": [')
    assert request.transport is not None
    request.transport.abort()
    return response
