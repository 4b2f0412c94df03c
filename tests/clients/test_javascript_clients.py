"""The JavaScript clients, unmodified: each test of the `.mjs` files runs as one test here."""

import pytest

from tests.clients import node
from tests.clients.batches import EMBEDDER
from tests.system.stack import ACCOUNT, MODEL, Stack

FILES = ["cloudflare.mjs", "ai-sdk.mjs"]
TESTS = [pytest.param(file, test, id=f"{file}: {test}") for file in FILES for test in node.tests_of(file)]


@pytest.mark.parametrize(("file", "test"), TESTS)
def test_in_javascript(
    stack: Stack, base_url: str, api_key: str, chat_model: str, node_packages: None, file: str, test: str
) -> None:
    variables = {
        "BASE_URL": base_url,
        "API_KEY": api_key,
        "ACCOUNT": ACCOUNT,
        "MODEL": MODEL,
        "CHAT_MODEL": chat_model,
        "EMBEDDER": EMBEDDER,
        "ENGINE_URL": f"http://127.0.0.1:{stack.engine_port}",
    }
    node.run(file, test, variables)
