"""An account of the installation (tests/installation.py) for each file, and a client on each base URL."""

import os
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from openai import OpenAI

from tests.clients import node
from tests.clients.batches import BASES, ENDLESS, REFUSAL, REFUSED, SLOW
from tests.system.stack import Account, Stack

RULES = [
    {"match": ENDLESS, "mode": "hang"},
    {"match": REFUSED, "mode": "status", "status": 400, "message": REFUSAL},
    {"match": SLOW, "mode": "answer", "pause": 0.2},
]


@pytest.fixture(scope="module")
def account(new_account: Callable[[], Account], installation: Stack) -> Account:
    """An account of this file's tests, and the engine's rules for their prompts."""
    installation.script(*RULES)
    return new_account()


@pytest.fixture(scope="module", params=[BASES[0], *(pytest.param(base, marks=pytest.mark.slow) for base in BASES[1:])])
def client(request: pytest.FixtureRequest, account: Account) -> Iterator[OpenAI]:
    """OpenAI's client on each base URL, without retries."""
    base_url = account.url + request.param.format(account.name)
    with OpenAI(api_key=account.key, base_url=base_url, max_retries=0) as client:
        yield client


@pytest.fixture(scope="package")
def chat_model() -> str:
    """A name, with slashes, of a model that answers whole chat completions."""
    return "@cf/moonshotai/kimi-k2.6"


@pytest.fixture(scope="package")
def node_packages() -> None:
    """The JavaScript clients are installed. Skips where there is no Node."""
    node.install()


@pytest.fixture(scope="package", autouse=True)
def nothing_inherited() -> Iterator[None]:
    """Clients read keys, addresses and proxies from the environment; here they get them from the tests alone."""
    names = [name for name in os.environ if name.startswith(("OPENAI_", "CLOUDFLARE_"))]
    with pytest.MonkeyPatch.context() as patch:
        for name in names:
            patch.delenv(name)
        patch.setenv("NO_PROXY", "*")
        yield


@pytest.fixture(scope="session", autouse=True)
def noted_clients(record_testsuite_property: Any) -> None:
    """A report in XML says which clients these tests import."""
    for client in ("openai", "cloudflare", "standardwebhooks"):
        found = metadata.distribution(client)
        record_testsuite_property(client, found.version)
        record_testsuite_property(f"{client} location", str(Path(str(found.locate_file(client))).resolve()))
