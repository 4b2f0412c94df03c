"""Links in the OpenAPI document: what a create makes, and the operations that act on it."""

from collections.abc import Mapping
from typing import Any

from app.api import openapi_operations as operations

# Where the id of what was made stands in the answer, by operation.
_IDS: Mapping[str, str] = {
    "post v1/files": "/id",
    "post v1/uploads": "/id",
    "post v1/batches": "/id",
    "post v1/pipelines": "/id",
    "post v1/webhook_endpoints": "/id",
    "post v1/responses": "/id",
    "post v1/conversations": "/id",
    "post event_subscriptions/subscriptions": "/result/id",
    "post ai/run/{model}": "/result/request_id",
    "post ai/run": "/result/request_id",
}
_ELSEWHERE: Mapping[str, str] = {"post ai/run/{model}": "/ai/batches", "post ai/run": "/ai/batches"}
_ACCOUNT = "/client/v4/accounts/{account_id}"


def add(document: dict[str, Any]) -> None:
    """Give each create its links."""
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            if pointer := _IDS.get(operations.name(method, path)):
                elsewhere = _ELSEWHERE.get(operations.name(method, path))
                below = _ACCOUNT + elsewhere if elsewhere else path
                operation["responses"]["200"]["links"] = _links(document, below, pointer)


def _links(document: dict[str, Any], below: str, pointer: str) -> dict[str, Any]:
    """To every operation whose path goes on from here with the id."""
    found = {}
    for path, methods in document["paths"].items():
        if not path.startswith(f"{below}/{{"):
            continue
        parameter = path.removeprefix(f"{below}/{{").partition("}")[0]
        given = {parameter: f"$response.body#{pointer}"}
        if path.startswith(_ACCOUNT):
            given["account_id"] = "$request.path.account_id"
        for operation in methods.values():
            found[operation["operationId"]] = {"operationId": operation["operationId"], "parameters": given}
    return found
