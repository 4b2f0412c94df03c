"""Every operation of the OpenAPI document with every role: what a role may not do is refused.

Operations, bodies and the security of each are read from the document, so a new route is tested as soon as it exists.
"""

import httpx
import pytest

from app.access.roles import Role
from app.api import permissions
from app.db.pool import Database
from app.settings import Settings
from app.tenants.key_scope import KeyRole
from tests.api.operations import NOTHING, ask, every_operation, filled, make_key, make_operator


@pytest.fixture
def settings(settings: Settings) -> Settings:
    return settings.model_copy(update={"line_seconds": 0.0})


def test_each_operation_that_takes_a_key_names_the_role_that_it_needs() -> None:
    keyed = {operation.name for operation in every_operation() if operation.security == "key"}
    assert keyed == set(permissions.LEAST_ROLES)
    assert {operation.path for operation in every_operation() if operation.security == "none"} == {
        *("/health", "/ready", "/status", "/version", "/metrics", "/scale/{model}")
    }


async def test_a_role_may_do_what_its_operations_say_and_nothing_else(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    keys = {role: await make_key(settings, database, "acme", role) for role in KeyRole}
    wrong = []
    for operation in every_operation():
        if operation.security != "key":
            continue
        path, least = filled(operation.path, NOTHING), permissions.LEAST_ROLES[operation.name]
        for role, key in keys.items():
            answer = await ask(client, operation, path, key)
            refused = answer.status_code == 403 and f"takes the role {least}" in answer.text
            if refused == role.includes(least):
                wrong.append((operation.method, path, role, answer.status_code))
            if refused and ("/v1/" in path.replace("/client/v4", "")) and "/ai/batches" not in path:
                code = answer.json().get("error", {}).get("code")
                wrong += [(operation.method, path, code)] if code != permissions.NOT_PERMITTED else []
    assert wrong == []


async def test_keys_open_no_route_of_operators_and_operators_open_no_route_of_accounts(
    client: httpx.AsyncClient, settings: Settings, database: Database
) -> None:
    keys = [await make_key(settings, database, "acme", role) for role in KeyRole]
    made = [await make_operator(settings, database, role) for role in (Role.OPERATOR, Role.AUDITOR)]
    wrong = []
    for operation in every_operation():
        strangers = {"key": made, "operator": keys, "none": []}[operation.security]
        for token in strangers:
            answer = await ask(client, operation, filled(operation.path, NOTHING), token)
            if answer.status_code != 401:
                wrong.append((operation.method, operation.path, answer.status_code))
    assert wrong == []


async def test_an_auditor_only_looks(client: httpx.AsyncClient, settings: Settings, database: Database) -> None:
    auditor = await make_operator(settings, database, Role.AUDITOR)
    found = {}
    for operation in every_operation():
        if operation.security == "operator":
            answer = await ask(client, operation, filled(operation.path, NOTHING), auditor)
            found[operation.method, operation.path] = answer.status_code
    assert len(found) > 15
    assert {status for (method, _), status in found.items() if method == "get"} <= {200, 404}
    assert {status for (method, _), status in found.items() if method != "get"} == {403}
