"""The JavaScript clients, unmodified: the tests are in the `.mjs` files."""

import pytest

from tests.clients import node
from tests.installation import EMBEDDER
from tests.system.stack import MODEL, Account, Stack


@pytest.mark.parametrize("file", ["ai-sdk.mjs", pytest.param("cloudflare.mjs", marks=pytest.mark.slow)])
def test_in_javascript(installation: Stack, account: Account, chat_model: str, file: str) -> None:
    node.install(cloudflare=file == "cloudflare.mjs")
    variables = {
        "BASE_URL": account.url,
        "API_KEY": account.key,
        "ACCOUNT": account.name,
        "MODEL": MODEL,
        "CHAT_MODEL": chat_model,
        "EMBEDDER": EMBEDDER,
        "ENGINE_URL": f"http://127.0.0.1:{installation.engine_port}",
    }
    node.run(file, variables)
