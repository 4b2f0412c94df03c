"""Requests generated from the OpenAPI document, from a caller who knows every id of another account: it learns nothing by them.

Operators are fuzzed in the same way. Their routes show no prompt and no answer, and answer as the document says.
"""

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from typing import Any, NamedTuple
from unittest import SkipTest

import pytest
import schemathesis
from hypothesis import given
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.core.failures import FailureGroup
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from app.api.app import create_app
from app.cli.key import create_key
from app.db import embedded
from app.db.pool import Database
from app.environment import child_environment
from app.settings import Settings
from testing.waiting import LIMIT_SECONDS, wait_for
from tests.api.belongings import fingerprint
from tests.system import two_accounts
from tests.system.fuzzing import quietly
from tests.system.stack import MODEL, Stack, running
from tests.system.two_accounts import OWNER, STRANGER, WORDS, Belongings
from tests.system.unsayable import is_known
from tests.timing import note

DATA_CHECKS = [negative_data_rejection, positive_data_acceptance]  # of test_openapi.py, which knows the exceptions
SIZES = [pytest.param(2, id="few"), pytest.param(15, id="many", marks=pytest.mark.slow)]
ALIASES = "/ai/v1/"  # the same routes as those under /v1
ALONE = {"account_id", "account", "model", "verb", "seq", "name"}  # what names nothing of an account, or by its words
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
# What the installation's own parts write meanwhile: deliveries to a receiver that is away, and what they cost.
BUSY = frozenset({"delivery", "delivery_attempt", "endpoint", "event", "api_key"})
SPARE, DOOMED = "spare", "doomed"  # accounts of which an operator may change everything
POLICY = '[[rule]]\nid = "spare"\nwhen = { account = "spare" }\nsensitive = "report"\n'


class World(NamedTuple):
    """An installation in which the owner has something of everything. `stranger`, `operator`: their credentials."""

    stack: Stack
    belongings: Belongings
    stranger: str
    operator: str


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running() as stack:
        wait_for(lambda: stack.query("select from engine where state = 'ready'"), "the engine ready")
        for account in (SPARE, DOOMED):
            create_key(stack.settings, account, "test", 1)
        belongings, stranger = two_accounts.fill(stack), two_accounts.key_of(stack, STRANGER)
        command = [sys.executable, "-m", "app.cli.main", "operator", "create", "ann", "--json"]
        made = subprocess.run(command, env=child_environment(stack.settings, {}), check=True, capture_output=True)
        yield World(stack, belongings, stranger, json.loads(made.stdout)["token"])


@pytest.mark.parametrize("account", [STRANGER, OWNER])
@pytest.mark.parametrize("examples", SIZES)
def test_whoever_knows_all_ids_of_an_account_sees_and_changes_nothing_of_it(
    world: World, account: str, examples: int
) -> None:
    before, answers, leaks = owned(world), Counter[int](), []

    def look(case: Any) -> None:
        response = send(world, case, world.stranger)
        answers[response.status_code] += 1
        asked = str([case.path_parameters, case.query, case.body, case.headers, case.cookies])
        shown = world.belongings.shown_by(f"{response.text} {response.headers}", asked)
        if shown or response.status_code >= 500 or opened(case, account, response.status_code):
            leaks.append((case.operation.label, response.status_code, shown, response.text[:300]))

    document = schemathesis.openapi.from_dict(two_accounts.document(world.belongings, account))
    fuzz(document, examples, look, lambda path: account == STRANGER or "{account_id}" in path)
    note(f"fuzzed below the account {account}: {dict(sorted(answers.items()))}")
    assert leaks == []
    assert {403} <= answers.keys() if account == OWNER else {200, 400, 401, 404} <= answers.keys()
    assert owned(world) == before


def opened(case: Any, account: str, status: int) -> bool:
    """Whether an answer of this status treats the owner's things as the stranger's."""
    named = set(re.findall(r"{(\w+)}", case.operation.path))
    if case.operation.path.startswith(("/admin/", "/operator/")):
        return status < 400
    if account == OWNER:
        return status < 400
    return bool(named - ALONE) and status < 400 and case.meta.generation.mode is GenerationMode.POSITIVE


@pytest.mark.parametrize("examples", SIZES)
def test_an_operator_is_answered_as_the_document_says_and_sees_no_prompt(world: World, examples: int) -> None:
    answers, wrong = Counter[int](), []
    document = schemathesis.openapi.from_dict(of_operators(world))
    document.hook(filter_failure)

    def look(case: Any) -> None:
        response = send(world, case, world.operator)
        answers[response.status_code] += 1
        headers = {"Authorization": f"Bearer {world.operator}"}
        if WORDS in response.text:
            wrong.append((case.operation.label, response.text[:300]))
        try:
            case.validate_response(response, headers=headers, excluded_checks=DATA_CHECKS)
        except FailureGroup as failures:
            messages = " ".join(str(each) for each in failures.exceptions)
            wrong.append((case.operation.label, messages[:1000], response.text[:300]))

    fuzz(document, examples, look, lambda path: path.startswith(("/admin/", "/operator/")))
    note(f"fuzzed as an operator: {dict(sorted(answers.items()))}")
    assert wrong == []
    assert {200, 400, 404} <= answers.keys()


def filter_failure(context: Any, failure: Any, case: Any, response: Any) -> bool:
    """Whether a failed check of schemathesis counts."""
    return not is_known(failure, case, response)


def of_operators(world: World) -> dict[str, Any]:
    """The document for an operator, who may change two accounts and read all."""
    found = deepcopy(create_app(Settings()).openapi())
    [(key_id,)] = world.stack.query(
        "select min(key_id) from api_key join tenant using (tenant_id) where account_id = %s", SPARE
    )
    for path, methods in found["paths"].items():
        for method, operation in methods.items():
            accounts = [SPARE, OWNER, "nobody"] if method == "get" else [DOOMED] if method == "delete" else [SPARE]
            known = {"account": {"enum": accounts}, "key_id": {"enum": [key_id, "0" * 12]}}
            for parameter in operation.get("parameters", []):
                if path.startswith("/admin/") and parameter["in"] == "path" and parameter["name"] in known:
                    parameter["schema"] = known[parameter["name"]]
    for name, values in {"account": [SPARE, "a-new-one"], "policy": ["", POLICY], "model": [MODEL]}.items():
        two_accounts.fix(found, name, {"enum": values})
    return found


def fuzz(document: Any, examples: int, look: Callable[[Any], None], wanted: Callable[[str], bool]) -> None:
    """Let `look` send generated cases of the operations with a wanted path: what the document allows, and what it does not."""
    document.config.generation.with_security_parameters = False
    for operation in (each.ok() for each in document.get_all_operations()):
        if not wanted(operation.path) or (examples < 10 and ALIASES in operation.path):
            continue
        for mode in MODES:
            with suppress(SkipTest, Unsatisfiable):  # where everything is allowed
                quietly(examples)(given(case=operation.as_strategy(generation_mode=mode))(look))()


def send(world: World, case: Any, token: str) -> Any:
    """The answer to a case with this credential."""
    headers = {"Authorization": f"Bearer {token}"}
    return case.call(base_url=str(world.stack.client.base_url).rstrip("/"), headers=headers, timeout=LIMIT_SECONDS)


def owned(world: World) -> dict[str, str]:
    """A hash of what the owner has."""

    async def read() -> dict[str, str]:
        async with Database(embedded.database_url(world.stack.settings), size=1) as database:
            return await fingerprint(database, OWNER, without=BUSY)

    return asyncio.run(read())
