"""Every operation of the OpenAPI document with every credential: what its role does not say is refused.

Also who may not read prompts and answers finds none on any route.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import cycle, islice

import httpx

from app.api import permissions
from app.engines.requests import CHAT
from app.openai_codes import OpenAICode
from app.tenants.key_scope import KeyRole, KeyScope, networks_of
from tests.api.support import MODEL
from tests.sets import examples
from tests.system.stack import Account, Stack
from tests.walk import people
from tests.walk.belongings import Belongings
from tests.walk.operations import NOTHING, Operation, ask, bodies_with, every_operation, filled, walked

TOKENS = examples(1, 20)  # for each operation, of all that it must refuse; in turn
IDS = examples(1, 20)  # for each text of a body and each parameter, of all ids of the other account; in turn


def dealt(values: Mapping[str, str], count: int) -> Callable[[], list[tuple[str, str]]]:
    """Gives the next so many, in turn."""
    turn = cycle(values.items())
    return lambda: list(islice(turn, min(count, len(values))))


def scopes() -> dict[str, KeyScope]:
    """What a key may do, each of its limits for itself."""
    return {
        **{str(role): KeyScope(role) for role in KeyRole},
        "restore": KeyScope(KeyRole.ADMIN, restore=True),
        "models": KeyScope(KeyRole.ADMIN, models=frozenset({MODEL})),
        "no models": KeyScope(KeyRole.ADMIN, models=frozenset()),
        "endpoints": KeyScope(KeyRole.ADMIN, endpoints=frozenset({CHAT})),
        "networks": KeyScope(KeyRole.ADMIN, networks=networks_of(["127.0.0.0/8"])),
    }


def test_each_operation_that_takes_a_key_names_the_role_that_it_needs() -> None:
    keyed = {operation.name for operation in every_operation() if operation.security == "key"}
    assert keyed == set(permissions.LEAST_ROLES)
    assert {operation.path for operation in every_operation() if operation.security == "none"} == {
        *("/health", "/ready", "/status", "/version", "/metrics", "/scale/{model}")
    }


# What docs/access.md says of the roles: admins also change webhooks and budgets, and see deliveries and audit rows; viewers only
# look, and not at what shows a prompt or an answer.
_ADMINS = r"(?!get).*(webhook|subscriptions|budgets)|.*deliveries|get ai/audit"
_BODIES = r"get (.*(results|content|estimate|waiting|events)$|.*(v1/responses|v1/conversations/|v1/pipelines/.*/items))"


def test_the_role_that_an_operation_needs_is_the_one_that_the_documentation_says() -> None:
    expected = {}
    for name in (operation.name for operation in every_operation() if operation.security == "key"):
        looks = name.startswith("get ") or name == "post ai/policy/test"
        submits = not looks or re.match(_BODIES, name)
        least = KeyRole.SUBMITTER if submits else KeyRole.VIEWER
        expected[name] = KeyRole.ADMIN if re.match(_ADMINS, name) else least
    assert expected == permissions.LEAST_ROLES
    assert [*KeyRole] == ["viewer", "submitter", "admin"]
    assert [role.reads_bodies for role in map(KeyScope, KeyRole)] == [False, True, True]


def test_a_role_may_do_what_its_operations_say_and_nothing_else(installation: Stack, owner: Belongings) -> None:
    keys = {role: people.key(installation, owner.account, role) for role in KeyRole}
    nothing, wrong = NOTHING | {"account_id": owner.account}, []
    for operation in walked():
        if operation.security != "key":
            continue
        path = filled(operation.path, nothing)
        for role, key in keys.items():
            answer = ask(owner.client, operation, path, key)
            refused = answer.status_code == 403 and f"takes the role {operation.role}" in answer.text
            if refused == role.includes(operation.role):
                wrong.append((operation.method, path, role, answer.status_code))
            if refused and ("/v1/" in path.replace("/client/v4", "")) and "/ai/batches" not in path:
                code = answer.json().get("error", {}).get("code")
                wrong += [(operation.method, path, code)] if code != OpenAICode.NOT_PERMITTED else []
    assert wrong == []


def test_an_auditor_only_looks(installation: Stack, owner: Belongings, auditor: str) -> None:
    found = {}
    for operation in walked():
        if operation.security == "operator":
            answer = ask(owner.client, operation, filled(operation.path, NOTHING), auditor)
            found[operation.method, operation.path] = answer.status_code
    assert len(found) > 15
    assert {status for (method, _), status in found.items() if method == "get"} <= {200, 404}
    assert {status for (method, _), status in found.items() if method != "get"} == {403}


def test_no_role_of_another_account_sees_or_changes_anything(
    installation: Stack, new_account: Callable[[], Account], owner: Belongings
) -> None:
    other = new_account().name
    tokens = dealt({name: people.key(installation, other, scope) for name, scope in scopes().items()}, TOKENS)
    before, wrong = owner.fingerprint(), []
    assert len(before) > 15
    for operation in walked():
        for account in (owner.account, other) if "{account_id}" in operation.path else (owner.account,):
            path = filled(operation.path, owner.ids | {"account_id": account})
            for name, key in tokens():
                answer = ask(owner.client, operation, path, key)
                if _opened(operation, answer, account != other) or owner.shown_by(answer.text, path):
                    wrong.append((name, operation.method, path, answer.status_code, answer.text[:200]))
    assert wrong == []
    assert owner.fingerprint() == before


def _opened(operation: Operation, answer: httpx.Response, below_the_owner: bool) -> bool:
    """Whether a key of another account got something that it may not have."""
    if operation.security == "operator":
        return answer.status_code != 401
    if "{account_id}" in operation.path and below_the_owner:
        return answer.status_code != 403
    return answer.status_code >= 500 or (bool(operation.needs) and answer.status_code < 400)


def test_what_is_no_live_credential_opens_no_route(
    installation: Stack, owner: Belongings, operator: str, auditor: str
) -> None:
    """A live one of the other kind is none."""
    dead = people.dead(installation, owner.account)
    tokens = {"key": dealt(dead | {"operator": operator, "auditor": auditor}, TOKENS)}
    tokens["operator"] = dealt(dead | {role: people.key(installation, owner.account, role) for role in KeyRole}, TOKENS)
    tokens["none"] = dealt(dead, 1)
    before, wrong = owner.fingerprint(), []
    for operation in walked():
        path = filled(operation.path, owner.ids)
        for name, token in tokens[operation.security]():
            answer = ask(owner.client, operation, path, token)
            refused = 403 if name == people.ELSEWHERE and operation.security == "key" else 401
            expected = 200 if operation.security == "none" else refused
            if answer.status_code != expected or owner.shown_by(answer.text, path):
                wrong.append((name, operation.method, path, answer.status_code, answer.text[:200]))
    assert wrong == []
    assert owner.fingerprint() == before


def test_ids_of_another_account_open_nothing_in_a_query_or_a_body(
    new_account: Callable[[], Account], owner: Belongings
) -> None:
    other = new_account()
    ids, before, wrong, asked = dealt(owner.named, IDS), owner.fingerprint(), [], 0
    for operation in walked():
        if operation.security != "key":
            continue
        path = filled(operation.path, owner.ids | {"account_id": other.name})
        for case, value in _cases_with(operation, ids):
            answer = ask(owner.client, case, path, other.key)
            asked += 1
            if set(owner.shown_by(answer.text, path)) - {value} or answer.status_code >= 500:
                wrong.append((case.method, path, case.query, case.body, answer.status_code, answer.text[:300]))
    assert wrong == []
    assert asked > 100
    assert owner.fingerprint() == before


def _cases_with(operation: Operation, ids: Callable[[], list[tuple[str, str]]]) -> Iterator[tuple[Operation, str]]:
    """The operation with an id in place of each text, one at a time."""
    for name in operation.free:
        for _, value in ids():
            yield replace(operation, query={**operation.query, name: value}), value
    for place, _ in enumerate(bodies_with(operation.body, "")):
        for _, value in ids():
            yield replace(operation, body=[*bodies_with(operation.body, value)][place]), value


def test_a_delivery_of_another_account_is_not_found_below_ones_own_subscription(
    new_account: Callable[[], Account], owner: Belongings
) -> None:
    other = new_account()
    below = f"/client/v4/accounts/{other.name}/event_subscriptions/subscriptions"
    webhook = {"type": "webhook", "url": "http://127.0.0.1:9/hook"}
    wanted = {"name": "mine", "source": {"type": "workersAi.model"}, "destination": webhook, "events": ["batch.queued"]}
    own = other.client.post(below, json=wanted).json()["result"]["id"]
    address, unknown = (f"{below}/{own}/deliveries/{each}" for each in (owner.ids["delivery_id"], 12345678))
    assert other.client.get(address).status_code == 404
    again, never = [other.client.post(f"{each}/redeliver") for each in (address, unknown)]
    assert (again.status_code, again.text) == (never.status_code, never.text)
    assert again.status_code >= 400


def test_who_may_not_read_bodies_finds_no_word_of_one_on_any_route(
    installation: Stack, owner: Belongings, operator: str, auditor: str
) -> None:
    viewer = people.key(installation, owner.account, KeyRole.VIEWER)
    shown, seen = [], 0
    for operation in walked():
        path = filled(operation.path, owner.ids)
        readers = {"key": [viewer], "operator": [operator, auditor] if operation.method == "get" else []}
        for token in readers.get(operation.security, [""]):
            answer = ask(owner.client, operation, path, token)
            seen += answer.status_code == 200
            if owner.words in answer.text:
                shown.append((operation.method, path, answer.text[:300]))
    assert shown == []
    assert seen > 60
