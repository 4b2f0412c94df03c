"""Every operation of the OpenAPI document: who may call it, what it needs, and what it names of an account.

The list is the document's own, so a new route is walked as soon as it exists.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl

import httpx

from app.api import openapi_operations, permissions
from app.api.docs_page import QUERY
from app.tenants.key_scope import KeyRole
from tests.api import in_process
from tests.api.support import MODEL, line
from tests.installation import EMBEDDER
from tests.sets import examples

ALIASES = "/ai/v1/"  # the same routes as those under /v1
SPARE = "spare"  # an account of which operators may change everything
POLICY = '[[rule]]\nid = "spare"\nwhen = { account = "spare" }\nsensitive = "report"\n'
# Parameters of paths that name nothing of an account, or name it by the account's own words.
_WORDS = {"account_id", "account", "model", "verb", "seq", "name"}
# By what their paths have; the first that fits.
SUBJECTS: Mapping[str, str] = {
    "administration": "^/admin/",
    "operators": "^/operator/",
    "aliases": ALIASES,
    "runs": "/ai/run",
    "inference": "/v1/(chat|completions|embeddings|responses|models)",
    "conversations": "conversations",
    "files": "/v1/(files|uploads)",
    "batches": "batches",
    "pipelines": "pipelines",
    "subscriptions": "event_subscriptions|/events",
    "webhooks": "webhook",
    "installation and account": "",
}

# The examples of the document that name what is not there: what is sent instead. `{…}`: an id.
_INSTEAD: Mapping[str, Mapping[str, Any]] = {
    "get ai/models/schema": {"params": {"model": MODEL}},
    "get ai/usage/compare": {"params": {"a": "x", "b": "y"}},
    "post v1/embeddings": {"json": {"model": EMBEDDER, "input": ["What is the capital of France?"]}},
    "post v1/uploads/{upload_id}/complete": {"json": {"part_ids": ["{part_id}"]}},
    "post /admin/v1/accounts": {"json": {"account": "{account}-{key_id}"}},
    "post /admin/v1/keys": {"json": {"account": "{account}", "name": "ward 3", "role": "submitter", "models": [MODEL]}},
    "put /admin/v1/policy": {"json": {"policy": POLICY}},
    "post /admin/v1/policy/rollback": {"json": {"version": 1}},
}
# The examples that answer nothing good here, and why.
REFUSED: Mapping[str, str] = {
    "post v1/uploads/{upload_id}/parts": "the upload has all its bytes; Belongings has sent them",
}


@dataclass(frozen=True)
class Operation:
    """`body`: the document's example. `form`: it takes a file, in place of `@…`. `security`: which credential it takes: `key`,
    `operator`, `none`. `query`: the parameters that it needs, and those of the example. `free`: those that take any text.
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
        return openapi_operations.name(self.method, self.path)

    @property
    def label(self) -> str:
        """As schemathesis names it."""
        return f"{self.method.upper()} {self.path}"

    @property
    def subject(self) -> str:
        """What it is about; one of SUBJECTS."""
        return next(subject for subject, path in SUBJECTS.items() if re.search(path, self.path))

    @property
    def role(self) -> KeyRole:
        """The least role of a key that may call it."""
        return permissions.LEAST_ROLES[self.name]

    @cached_property
    def needs(self) -> tuple[str, ...]:
        """What of an account its path names: it must exist, and belong to who asks."""
        return tuple(name for name in re.findall(r"{(\w+)}", self.path) if name not in _WORDS)


def every_operation() -> Iterator[Operation]:
    """All of the document, in its order."""
    for path, methods in in_process.application().openapi()["paths"].items():
        for method, found in methods.items():
            content = found.get("requestBody", {}).get("content", {})
            body = next((each["example"] for each in content.values() if "example" in each), None)
            [kind] = [*found.get("security", [{"none": []}])[0]]
            asked = [each for each in found.get("parameters", []) if each["in"] == "query"]
            query: dict[str, str] = dict(parse_qsl(found.get(QUERY, "").removeprefix("?")))
            query |= {each["name"]: "x" * each["schema"].get("minLength", 1) for each in asked if each.get("required")}
            free = [each["name"] for each in asked if takes_any_text(each["schema"])]
            yield Operation(method, path, body, "multipart/form-data" in content, kind, query, free)


def walked() -> list[Operation]:
    """All of them; in `make test` without those that are the same routes under another prefix."""
    return [each for each in every_operation() if examples(0, 1) or each.subject != "aliases"]


def takes_any_text(schema: Any) -> bool:
    """Whether a schema lets any text through, also as one of several forms or in a list."""
    if not isinstance(schema, dict):
        return False
    if forms := schema.get("anyOf"):
        return any(takes_any_text(form) for form in forms)
    if schema.get("type") == "array":
        return takes_any_text(schema.get("items"))
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


def request(operation: Operation, path: str, token: str = "") -> dict[str, Any]:
    """The document's example of an operation as arguments of a client. `token`: `""`: with no credential."""
    sent: dict[str, Any] = {"method": operation.method, "url": path, "params": dict(operation.query)}
    sent["headers"] = {"authorization": f"Bearer {token}" if token else ""}
    if operation.form:
        sent["data"] = {name: value for name, value in (operation.body or {}).items() if value[0] != "@"}
        sent["files"] = {name: ("x.jsonl", line(1)) for name in operation.body or {} if name not in sent["data"]}
    elif operation.method in ("post", "put", "patch"):
        sent["json"] = operation.body or {}
    return sent


def example(operation: Operation, ids: Mapping[str, str], token: str) -> dict[str, Any]:
    """A request that is answered well, where there is all that these ids name."""
    instead = filled(json.dumps(_INSTEAD.get(operation.name, {})), ids)
    return request(operation, filled(operation.path, ids), token) | json.loads(instead)


def ask(client: httpx.Client, operation: Operation, path: str, token: str) -> httpx.Response:
    """Send the document's example with this token."""
    return client.request(**request(operation, path, token))


def filled(path: str, values: Mapping[str, str]) -> str:
    """A path with the values of its parameters. `name` is a budget's, an engine's or a model's."""
    return re.sub(r"{(\w+)}", lambda found: value(path, found[1], values), path)


def value(path: str, parameter: str, values: Mapping[str, str]) -> str:
    """Of a parameter of this path."""
    kind = {"engines": "engine", "models": "model"}.get(path.partition("/{name}")[0].rpartition("/")[2], "name")
    return values[kind if parameter == "name" and kind in values else parameter]


_GONE = "00000000-0000-0000-0000-000000000000"
NOTHING = {
    **{"account_id": "acme", "account": "acme", "model": MODEL, "name": MODEL, "verb": "pause", "seq": "0"},
    **dict.fromkeys(("request_id", "subscription_id", "endpoint_id"), _GONE),
    **{"file_id": "file-x", "batch_id": "batch_x", "response_id": "resp_x", "upload_id": "upload_x"},
    **{"pipeline_id": "pipe_x", "custom_id": "x", "stage": "x", "item": "0"},
    **{"conversation_id": "conv_x", "item_id": "msg_x"},
    **{"delivery_id": "1", "key_id": "000000000000"},
}
