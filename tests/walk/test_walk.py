"""The walk over all operations of the OpenAPI document.

Whatever is sent is answered as the document says. Who sends the ids of another account is answered as if they did not exist, and
sees and changes nothing of it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest
import requests
from requests.adapters import HTTPAdapter
from schemathesis.specs.openapi.checks import positive_data_acceptance
from urllib3.util import Retry

from app.api.openapi_operations import SUMMARIES
from tests.system.stack import Stack
from tests.timing import note
from tests.walk import cases
from tests.walk.belongings import Belongings
from tests.walk.cases import Cases
from tests.walk.operations import REFUSED, SUBJECTS, Operation, every_operation, example, filled

ALIASES, ADMINISTRATION, OPERATORS = "aliases", "administration", "operators"


class Walk:
    """Asks with one token about what the caller has, and, if it is no operator, about what the owner has and what nobody has."""

    def __init__(self, url: str, token: str, owner: Belongings, own: Belongings) -> None:
        self.url, self.token, self.owner, self.own = url, token, owner, own
        self.wrong: list[Any] = []
        self.statuses: Counter[int] = Counter()
        self.session = requests.Session()
        self.session.trust_env = False
        # A server may close an idle connection while the next request is on its way.
        self.session.mount("http://", HTTPAdapter(max_retries=Retry(1, allowed_methods=None)))
        self.of_operators = token.startswith("sk_op_")
        # The ids that are sent, in place of the owner's. The account in the path is the caller's.
        ids, account = owner.named, {owner.account: own.account}
        self.owns = {value: own.ids.get(name, value) for name, value in ids.items()} | account
        self.nobodys = {value: altered(value) for value in ids.values()} | account
        self.theirs = {value: value for value in ids.values()} | account

    def send(self, arguments: dict[str, Any]) -> requests.Response:
        answer = self.session.request(**arguments | {"url": self.url + arguments["url"]}, timeout=60)
        self.statuses[answer.status_code] += 1
        return answer

    def look(
        self, operation: Operation, case: Any, names: Mapping[str, str], arguments: dict[str, Any]
    ) -> requests.Response:
        """Send it, and note what is wrong with the answer."""
        answer = self.send(arguments)
        elsewhere = str([arguments.get(part) for part in ("params", "json", "data", "files", "headers", "cookies")])
        tries_ids = any(names[each] in elsewhere for each in self.owner.named.values())
        found = cases.problems(case, answer, *([positive_data_acceptance] if tries_ids else []))
        shown = self.shown(f"{answer.text} {answer.headers}", f"{answer.request.url} {elsewhere}")
        if found or shown:
            self.wrong.append(
                (operation.label, answer.status_code, found, shown, str(arguments)[:1500], answer.text[:500])
            )
        return answer

    def shown(self, text: str, asked: str) -> list[str]:
        if self.of_operators:  # names and ids, but no prompt
            return [self.owner.words] if self.owner.words in text else []
        return self.owner.shown_by(text, asked)

    def walk(self, operation: Operation, generated: Cases) -> None:
        """Send the example, and what is generated."""
        self.example(operation, generated)
        for case in generated.of(operation):
            arguments = cases.sent(case, self.token)
            self.look(operation, case, self.owns, cases.renamed(arguments, self.owns))
            if not self.of_operators and cases.renamed(arguments, self.theirs) != cases.renamed(
                arguments, self.nobodys
            ):
                self.compare(operation, case, arguments)

    def compare(self, operation: Operation, case: Any, arguments: dict[str, Any]) -> None:
        """What the owner has must read as what nobody has."""
        told = []
        for names in (self.theirs, self.nobodys):
            answer = self.look(operation, case, names, cases.renamed(arguments, names))
            text = answer.text if answer.status_code >= 400 else ""
            undone = {new: old for old, new in reversed(names.items())}  # an account's name is also part of other names
            told.append((answer.status_code, cases.renamed(text, undone)))
        if told[0] != told[1]:
            self.wrong.append((operation.label, "is told apart", *told, str(arguments)[:1500]))

    def example(self, operation: Operation, generated: Cases) -> None:
        """Every operation answers well once."""
        if not self.of_operators:
            self.own.ready_for(operation)
        arguments = example(operation, self.own.ids, self.token)
        answer = self.send(arguments)
        found = generated.answered(operation, answer)
        if found or not (answer.ok or operation.name in REFUSED):
            told = (answer.status_code, found, str(arguments)[:500], answer.text[:500])
            self.wrong.append((operation.label, "the example", *told))


def altered(value: str) -> str:
    """A value of the same form."""
    return value[:-1] + ("1" if value[-1] != "1" else "2")


def in_order(operations: Iterable[Operation]) -> list[Operation]:
    """What removes comes last, from the inside outwards."""
    reads, writes, removes = ([each for each in operations if _step(each) == step] for step in range(3))
    return reads + writes + sorted(removes, key=lambda each: (each.path.count("/"), each.path), reverse=True)


def _step(operation: Operation) -> int:
    return 2 if operation.method == "delete" else operation.method != "get"


@pytest.mark.parametrize(
    "subject", [pytest.param(each, marks=[pytest.mark.slow] if each == ALIASES else []) for each in SUBJECTS]
)
def test_whatever_is_sent_is_answered_as_documented_and_what_others_have_reads_as_what_is_not_there(
    installation: Stack,
    owner: Belongings,
    stranger: Belongings,
    spare: Belongings,
    operator: str,
    generated: Cases,
    subject: str,
) -> None:
    operations = in_order([each for each in every_operation() if each.subject == subject])
    own = {OPERATORS: owner, ADMINISTRATION: spare}.get(subject, stranger)
    walk = Walk(installation.url, operator if own in (owner, spare) else own.key, owner, own)
    before = owner.fingerprint()
    for operation in operations:
        walk.walk(operation, generated)
    note(f"walked {subject}: {len(operations)} operations, {dict(sorted(walk.statuses.items()))}")
    assert walk.wrong == [], "\n".join(map(str, walk.wrong))
    assert owner.fingerprint() == before


def test_what_was_made_is_there_and_what_was_deleted_is_gone(stranger: Belongings) -> None:
    """Every operation that deletes, where the same path can be read. Who deletes the contents of something keeps the rest."""
    wrong = []
    operations = list(every_operation())
    read = {each.path for each in operations if each.method == "get" and each.security == "key"}
    for operation in operations:
        if operation.method != "delete" or operation.path not in read or operation.subject == ALIASES:
            continue
        stranger.ready_for(operation)
        path = filled(operation.path, stranger.ids)
        statuses = [stranger.client.request(method, path).status_code for method in ("GET", "DELETE", "GET")]
        kept = "contents" in SUMMARIES[operation.name]
        if statuses != [200, 200, 200 if kept else 404]:
            wrong.append((operation.label, statuses))
    assert wrong == []
