"""Every page of the console opens in a browser, and none complains: no error of a script, no report of the policy."""

from collections.abc import Iterator

import pytest

from tests.console import browser
from tests.console.walk import EACH, Addresses, opened, work
from tests.system.stack import Account, Stack

MANY = 60  # items of the batch that runs while all is looked at


@pytest.fixture
def ids(installation: Stack, account: Account) -> Iterator[Addresses]:
    """Work in every state, which ends with the test."""
    browser.require()
    found = work(installation, account, MANY)
    yield found
    installation.script()
    for name in ("claims-extract", "contracts-ner"):
        account.client.post(f"/v1/batches/batch_{found[name].replace('-', '')}/cancel")
    account.client.post(f"/v1/pipelines/{found['tickets']}/cancel")


def test_every_page_opens_without_a_complaint(installation: Stack, account: Account, ids: Addresses) -> None:
    complaints = []
    with browser.launched() as chromium:
        for page, reader in opened(chromium, installation, ids, account.name, pages=EACH):
            reader.page.wait_for_load_state("load")
            complaints += [f"{page.name}: {said}" for said in reader.complaints]
            reader.complaints.clear()
    assert complaints == []
