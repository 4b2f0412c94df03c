"""Every operation of the OpenAPI document as a request: its path, its body and its security are those of the document."""

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import httpx

from app.access import operator_tokens
from app.access.roles import Role
from app.api import openapi_operations as operations
from app.crypto import secret_key
from app.db.pool import Database
from app.settings import Settings
from app.tenants import service as tenants
from app.tenants.key_scope import KeyRole, KeyScope
from tests.api import in_process
from tests.api.support import MODEL, line

_GONE = "00000000-0000-0000-0000-000000000000"


@dataclass(frozen=True)
class Operation:
    """`body`: the document's example. `form`: it takes a file. `security`: which credential it takes: `key`, `operator`, `none`.
    `query`: the parameters that it needs. `free`: those that take any text.
    """

    method: str
    path: str
    body: dict[str, Any] | None
    form: bool
    security: str
    query: Mapping[str, str]
    free: Sequence[str]

    @property
    def name(self) -> str:
        """As the tables of the API know it."""
        return operations.name(self.method, self.path)


def every_operation() -> Iterator[Operation]:
    """All of the document, in its order."""
    for path, methods in in_process.application().openapi()["paths"].items():
        for method, found in methods.items():
            content = found.get("requestBody", {}).get("content", {})
            body = content.get("application/json", {}).get("example")
            [kind] = [*found.get("security", [{"none": []}])[0]]
            asked = [each for each in found.get("parameters", []) if each["in"] == "query"]
            query = {each["name"]: "x" * each["schema"].get("minLength", 1) for each in asked if each.get("required")}
            free = [each["name"] for each in asked if _is_free(each["schema"])]
            yield Operation(method, path, body, "multipart/form-data" in content, kind, query, free)


def _is_free(schema: Mapping[str, Any]) -> bool:
    """Whether a schema lets any text through, also as one of several forms or in a list."""
    if forms := schema.get("anyOf"):
        return any(_is_free(form) for form in forms)
    if schema.get("type") == "array":
        return _is_free(schema["items"])
    return schema.get("type") == "string" and not schema.keys() & {"enum", "const", "format"}


def bodies_with(body: Any, value: str) -> Iterator[Any]:
    """The body with this value in place of each of its texts, one at a time."""
    if isinstance(body, str):
        yield value
    for key, part in body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ():
        for other in bodies_with(part, value):
            whole = copy(body)
            whole[key] = other
            yield whole


async def make_key(settings: Settings, database: Database, account: str, scope: KeyRole | KeyScope) -> str:
    """A key with this scope, or with this role and no other limit."""
    scope = KeyScope(scope) if isinstance(scope, KeyRole) else scope
    async with database.transaction() as conn:
        return str(await tenants.create_key(conn, secret_key(settings), account, "test", scope=scope))


async def make_operator(settings: Settings, database: Database, role: Role) -> str:
    """A token of an operator."""
    async with database.transaction() as conn:
        made = operator_tokens.create(conn, secret_key(settings), "ann", role, timedelta(days=1), "test")
        return (await made)[1]


async def ask(client: httpx.AsyncClient, operation: Operation, path: str, token: str) -> httpx.Response:
    """Send it with this token; `""`: with no credential."""
    sent: dict[str, Any] = {"headers": {"authorization": f"Bearer {token}" if token else ""}}
    sent["params"] = dict(operation.query)
    if operation.form:
        sent |= {"data": {"purpose": "batch"}, "files": {"file": ("x.jsonl", io.BytesIO(line(1)))}}
    elif operation.method in ("post", "put", "patch"):
        sent["json"] = operation.body or {}
    return await client.request(operation.method, path, **sent)


def filled(path: str, values: Mapping[str, str]) -> str:
    """A path with the values of its parameters."""
    return re.sub(r"{(\w+)}", lambda found: values[found[1]], path)


NOTHING = {
    **{"account_id": "acme", "account": "acme", "model": MODEL, "name": MODEL, "verb": "pause", "seq": "0"},
    **dict.fromkeys(("request_id", "subscription_id", "endpoint_id"), _GONE),
    **{"file_id": "file-x", "batch_id": "batch_x", "response_id": "resp_x", "upload_id": "upload_x"},
    **{"pipeline_id": "pipe_x", "custom_id": "x", "stage": "x", "item": "0"},
    **{"conversation_id": "conv_x", "item_id": "msg_x"},
    **{"delivery_id": "1", "key_id": "000000000000"},
}
