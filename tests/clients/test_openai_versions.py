"""The tests of batches also pass with older versions of OpenAI's client."""

from pathlib import Path

import pytest

from tests import timing
from tests.clients import environments
from tests.clients.batches import NATIVE
from tests.installation import lent
from tests.needs import missing
from tests.system.stack import Stack

pytestmark = pytest.mark.slow

SUITE = sorted(Path(__file__).parent.glob("test_openai_batches*.py"))


@pytest.mark.parametrize("version", environments.VERSIONS)
def test_the_suite_of_batches_passes_with_an_older_client(version: str, installation: Stack) -> None:
    try:
        folder = environments.made(version)
    except environments.Unreachable as error:
        missing(str(error))
    # What differs between clients does not depend on the base URL, so one of them will do.
    ran = environments.run(folder, SUITE, lent(installation), only=f"not {NATIVE}")
    assert (ran.code, ran.failed) == (0, 0), ran.tail
    assert ran.version == version
    assert ran.location.is_relative_to(folder)
    assert ran.passed > 10 * ran.skipped, ran.tail
    timing.note(f"openai {version}: {ran.passed} tests passed, {ran.skipped} skipped")
