"""What the OpenAPI document says about the routes of operators: summaries and bodies."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from app.api import openapi_schemas as schemas
from app.api.admin.accounts import NewAccount, QuotaChange
from app.api.admin.keys import NewKey, Rotation
from app.api.admin.policy import Rollback
from app.policy.language import MOST_BYTES

PREFIX = "/admin/v1"
SECURITY = {"type": "http", "scheme": "bearer", "description": "an operator's token, sk_op_…"}
SUMMARIES: Mapping[str, str] = {
    "get /admin/v1/accounts": "List accounts",
    "post /admin/v1/accounts": "Create an account",
    "get /admin/v1/accounts/{account}": "Get an account",
    "delete /admin/v1/accounts/{account}": "Delete an account",
    "get /admin/v1/quotas/{account}": "Get the quotas of an account",
    "put /admin/v1/quotas/{account}": "Update the quotas of an account",
    "get /admin/v1/keys": "List API keys",
    "post /admin/v1/keys": "Create an API key",
    "post /admin/v1/keys/{key_id}/rotate": "Rotate an API key",
    "delete /admin/v1/keys/{key_id}": "Delete an API key: revoke it",
    "get /admin/v1/budgets/{account}": "List the budgets of an account",
    "put /admin/v1/budgets/{account}/{name}": "Create or update a budget of an account",
    "delete /admin/v1/budgets/{account}/{name}": "Delete a budget of an account",
    "get /admin/v1/policy": "Get the policy in force with its text",
    "get /admin/v1/policy/versions": "List the versions of the policy",
    "put /admin/v1/policy": "Update the policy",
    "post /admin/v1/policy/rollback": "Update the policy to an earlier version",
    "get /admin/v1/audit": "List what operators and admins did",
}


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    found = model.model_json_schema()
    found.pop("title", None)
    return found


_POLICY = {
    "type": "object",
    "properties": {"policy": {"type": "string", "maxLength": MOST_BYTES, "description": "TOML"}},
    "required": ["policy"],
    "additionalProperties": False,
}
_BODIES: Mapping[str, dict[str, Any]] = {
    "post /admin/v1/accounts": _schema(NewAccount),
    "put /admin/v1/quotas/{account}": _schema(QuotaChange),
    "post /admin/v1/keys": _schema(NewKey),
    "post /admin/v1/keys/{key_id}/rotate": _schema(Rotation),
    "put /admin/v1/budgets/{account}/{name}": schemas.BUDGET,
    "put /admin/v1/policy": _POLICY,
    "post /admin/v1/policy/rollback": _schema(Rollback),
}


_EXAMPLES: Mapping[str, Any] = {
    "post /admin/v1/accounts": {"account": "clinic"},
    "put /admin/v1/quotas/{account}": {"open_items": 100_000, "stored_bytes": None},
    "post /admin/v1/keys": {
        "account": "clinic",
        "name": "ward 3",
        "role": "submitter",
        "models": ["llama-8b"],
        "networks": ["10.1.0.0/16"],
        "expires": "90d",
    },
    "post /admin/v1/keys/{key_id}/rotate": {"overlap": "24h"},
    "put /admin/v1/budgets/{account}/{name}": {"max_cost": "500 USD", "period": "month"},
    "put /admin/v1/policy": {"policy": '[[rule]]\nid = "short"\nwhen = { task = "extract" }\nmax_tokens = 200\n'},
    "post /admin/v1/policy/rollback": {"version": 11},
}


def describe(method: str, path: str, operation: dict[str, Any]) -> None:
    """Add who may call an operation, its body and its answer."""
    operation["security"] = [{"operator": []}]
    operation["responses"]["200"]["content"] = {"application/json": {"schema": schemas.ref("Success")}}
    name = f"{method} {path}"
    if (body := _BODIES.get(name)) is not None:
        content = {"application/json": {"schema": body, "example": _EXAMPLES[name]}}
        operation["requestBody"] = {"required": True, "content": content}
