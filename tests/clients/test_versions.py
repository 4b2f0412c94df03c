"""The tests of clients in Python also pass with older versions of them. Those in JavaScript are in package.json."""

from pathlib import Path

import pytest

from tests import timing
from tests.clients import environments
from tests.clients.batches import NATIVE
from tests.installation import lent
from tests.needs import missing
from tests.system.stack import Stack

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parent
# What differs between OpenAI's clients does not depend on the base URL, so one of them will do.
OPENAI = (sorted(FOLDER.glob("test_openai_batches*.py")), f"not {NATIVE}")
VERSIONS = {
    ("openai", "1.109.1"): OPENAI,
    ("openai", "2.30.0"): OPENAI,
    ("cloudflare", "4.3.1"): ([FOLDER / "test_python_cloudflare.py"], ""),
    ("standardwebhooks", "1.0.1"): ([FOLDER / "test_verifiers.py"], "standardwebhooks"),
}


@pytest.mark.parametrize(("package", "version"), VERSIONS)
def test_the_tests_pass_with_an_older_client(package: str, version: str, installation: Stack) -> None:
    try:
        folder = environments.made(package, version)
    except environments.Unreachable as error:
        missing(str(error))
    files, only = VERSIONS[package, version]
    ran = environments.run(folder, files, lent(installation), only=only)
    assert (ran.code, ran.failed) == (0, 0), ran.tail
    assert ran.clients[package] == (version, (folder / package).resolve())
    assert ran.passed > 10 * ran.skipped, ran.tail
    timing.note(f"{package} {version}: {ran.passed} tests passed, {ran.skipped} skipped")
