"""Who has what in the installation."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from app.access.roles import Role
from app.tenants.key_scope import KeyRole
from tests.system.stack import Account, Stack
from tests.walk import people
from tests.walk.belongings import Belongings
from tests.walk.operations import SPARE
from tests.webhooks.support import receiving

if TYPE_CHECKING:
    from tests.walk.cases import Cases  # which imports schemathesis


@pytest.fixture(scope="session")
def new_account(installation: Stack) -> Callable[[], Account]:
    """Makes an account that nobody has used, also while there are operators."""
    return lambda: _account(installation, f"acme-{uuid.uuid4().hex[:12]}")


def _account(stack: Stack, name: str) -> Account:
    return Account(stack.url, name, people.key(stack, name, KeyRole.ADMIN))


@pytest.fixture(scope="session")
def having(installation: Stack) -> Iterator[Callable[[Account], Belongings]]:
    """Gives an account something of everything. One receiver accepts all events."""
    with receiving() as receiver:

        def fill(account: Account) -> Belongings:
            found = Belongings(installation, account, receiver.url)
            found.fill()
            return found

        yield fill


@pytest.fixture(scope="session")
def owner(having: Callable[[Account], Belongings], new_account: Callable[[], Account]) -> Belongings:
    """Something of everything, which nobody else may see or change."""
    return having(new_account())


@pytest.fixture(scope="session")
def stranger(having: Callable[[Account], Belongings], new_account: Callable[[], Account]) -> Belongings:
    """Something of everything too, which the walk changes and removes."""
    return having(new_account())


@pytest.fixture(scope="module")
def spare(installation: Stack) -> Belongings:
    """What an account has of which operators may change everything."""
    found = Belongings(installation, _account(installation, SPARE), "")
    found.renew("key_id", "name")
    return found


@pytest.fixture(scope="module")
def operator(installation: Stack) -> Iterator[str]:
    """A token of an operator. While there is one, changes on the database itself need a reason."""
    yield people.operator(installation, Role.OPERATOR)
    people.no_operators(installation)


@pytest.fixture(scope="module")
def auditor(installation: Stack, operator: str) -> str:
    """A token of an operator who only looks; it ends with the other one."""
    return people.operator(installation, Role.AUDITOR)


@pytest.fixture(scope="session")
def generated(owner: Belongings) -> Cases:
    """Requests about what the owner has."""
    from tests.walk.cases import Cases

    return Cases(owner.ids, owner.named.values())
