"""The JavaScript clients, unmodified: the tests are in the `.mjs` files."""

import pytest

from tests.clients import node
from tests.installation import EMBEDDER
from tests.system.stack import MODEL, Account, Stack


@pytest.mark.parametrize(
    ("file", "before"),
    [
        ("ai-sdk.mjs", ""),
        *(
            pytest.param(f"{name}.mjs", before, marks=pytest.mark.slow)
            for name in ("cloudflare", "openai")
            for before in ("", "a year")
        ),
    ],
)
def test_in_javascript(installation: Stack, account: Account, chat_model: str, file: str, before: str) -> None:
    node.install(optional=file != "ai-sdk.mjs")
    variables = {
        "BASE_URL": account.url,
        "API_KEY": account.key,
        "ACCOUNT": account.name,
        "MODEL": MODEL,
        "CHAT_MODEL": chat_model,
        "EMBEDDER": EMBEDDER,
        "BEFORE": before,
        "ENGINE_URL": f"http://127.0.0.1:{installation.engine_port}",
    }
    node.run(file, variables)
