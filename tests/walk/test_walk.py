"""The walk over all operations of the OpenAPI document.

Whatever is sent is answered as the document says. Who sends the ids of another account is answered as if they did not exist, and
sees and changes nothing of it.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pytest
import requests
from schemathesis.specs.openapi.checks import positive_data_acceptance

from app.api.openapi_operations import SUMMARIES
from tests.api.support import MODEL
from tests.system.stack import Stack
from tests.timing import note
from tests.walk import cases
from tests.walk.belongings import SPARE, Account, Belongings
from tests.walk.cases import POLICY, Cases
from tests.walk.operations import SUBJECTS, Operation, every_operation, filled, request

ALIASES, ADMINISTRATION, OPERATORS = "aliases", "administration", "operators"
# The document's examples, where they name what is not there: what is sent instead. `{…}`: an id.
INSTEAD: Mapping[str, Mapping[str, Any]] = {
    "get ai/models/schema": {"params": {"model": MODEL}},
    "get ai/usage/compare": {"params": {"a": "x", "b": "y"}},
    "post v1/uploads/{upload_id}/complete": {"json": {"part_ids": ["{part_id}"]}},
    "post /admin/v1/accounts": {"json": {"account": "{account}-{key_id}"}},
    "post /admin/v1/keys": {"json": {"account": SPARE, "name": "ward 3", "role": "submitter", "models": [MODEL]}},
    "put /admin/v1/policy": {"json": {"policy": POLICY}},
    "post /admin/v1/policy/rollback": {"json": {"version": 1}},
}
# What an operation needs in another state than that in which Belongings makes it.
BEFORE: Mapping[str, Callable[[Belongings], None]] = {
    "post ai/batches/{request_id}/{verb}": Belongings.open_batches,
    "post v1/batches/{batch_id}/{verb}": Belongings.open_batches,
    "post v1/responses/{response_id}/cancel": Belongings.open_response,
    "get ai/usage/compare": Belongings.used_variants,
    "post v1/pipelines/{pipeline_id}/retry": Belongings.ended_pipeline,
    "delete v1/pipelines/{pipeline_id}": Belongings.ended_pipeline,
}
# What answers nothing good here, and why.
REFUSED: Mapping[str, str] = {
    "post v1/embeddings": "no model for embeddings runs",
    "post v1/uploads/{upload_id}/parts": "the upload has all its bytes; Belongings has sent them",
}


class Walk:
    """Asks with one token about what the owner has (`theirs`), what the caller has (`own`) and what nobody has (`nobodys`).

    Each maps the owner's ids to those that are sent.
    """

    def __init__(self, url: str, token: str, owner: Belongings, own: Belongings | None) -> None:
        self.url, self.token, self.owner, self.own = url, token, owner, own
        self.sees_all = token.startswith("sk_op_")
        self.wrong: list[Any] = []
        self.statuses: Counter[int] = Counter()
        self.session = requests.Session()
        self.session.trust_env = False

    def mappings(self) -> list[dict[str, str]]:
        """Own, theirs, nobody's. The account in the path is always the caller's."""
        if self.own is None:
            return [{}]
        account = {self.owner.account: self.own.account}
        ids = self.owner.named
        own = {ids[name]: self.own.ids[name] for name in ids if name in self.own.ids}
        nobodys = {value: altered(value) for value in ids.values()}
        return [mapping | account for mapping in ((own,) if self.sees_all else (own, {}, nobodys))]

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
        tries_ids = any(each in elsewhere for each in (*names, *names.values()))
        found = cases.problems(case, answer, *([positive_data_acceptance] if tries_ids else []))
        shown = self.shown(f"{answer.text} {answer.headers}", f"{answer.request.url} {elsewhere}")
        if found or shown:
            self.wrong.append(
                (operation.label, answer.status_code, found, shown, str(arguments)[:1500], answer.text[:500])
            )
        return answer

    def shown(self, text: str, asked: str) -> list[str]:
        if self.sees_all:  # names and ids, but no prompt
            return [self.owner.words] if self.owner.words in text else []
        return self.owner.shown_by(text, asked)

    def walk(self, operation: Operation, generated: Cases) -> None:
        """Send the example, and what is generated."""
        own, *others = self.mappings()
        self.example(operation, generated)
        for case in generated.of(operation):
            arguments = cases.sent(case, self.token)
            self.look(operation, case, own, cases.renamed(arguments, own))
            asked = [cases.renamed(arguments, names) for names in others]
            if asked and asked[0] != asked[1]:
                self.compare(operation, case, asked)

    def compare(self, operation: Operation, case: Any, asked: list[dict[str, Any]]) -> None:
        """What the owner has must read as what nobody has."""
        _, *others = self.mappings()
        told = []
        for names, arguments in zip(others, asked, strict=True):
            answer = self.look(operation, case, names, arguments)
            text = answer.text if answer.status_code >= 400 else ""
            told.append((answer.status_code, cases.renamed(text, {new: old for old, new in names.items()})))
        if told[0] != told[1]:
            self.wrong.append((operation.label, "is told apart", *told, str(asked[0])[:1500]))

    def example(self, operation: Operation, generated: Cases) -> None:
        """Every operation answers well once."""
        ids = (self.own or self.owner).ids
        if self.own and operation.method != "get" and operation.needs and not self.sees_all:
            self.own.renew(operation.needs[-1])
        if self.own:
            BEFORE.get(operation.name, _nothing)(self.own)
        arguments = request(operation, filled(operation.path, ids), self.token)
        instead = INSTEAD.get(operation.name, {})
        arguments |= cases.renamed(dict(instead), {f"{{{name}}}": value for name, value in ids.items()})
        answer = self.send(arguments)
        if not answer.ok and operation.name not in REFUSED:
            self.wrong.append(
                (operation.label, "the example", answer.status_code, str(arguments)[:500], answer.text[:500])
            )
        if found := generated.answered(operation, answer):
            self.wrong.append((operation.label, "the example", answer.status_code, found, answer.text[:500]))


def _nothing(own: Belongings) -> None:
    pass


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
    new_account: Callable[[], Account],
    having: Callable[[Account], Belongings],
    owner: Belongings,
    spare: Belongings,
    operator: str,
    generated: Cases,
    subject: str,
) -> None:
    operations = in_order([each for each in every_operation() if each.subject == subject])
    url = str(installation.client.base_url).rstrip("/")
    own = None if subject == OPERATORS else spare if subject == ADMINISTRATION else having(new_account())
    token = operator if own in (None, spare) else own.key
    walk = Walk(url, token, owner, own)
    before = owner.fingerprint()
    for operation in operations:
        walk.walk(operation, generated)
    note(f"walked {subject}: {len(operations)} operations, {dict(sorted(walk.statuses.items()))}")
    assert walk.wrong == [], "\n".join(map(str, walk.wrong))
    assert owner.fingerprint() == before


def test_what_was_made_is_there_and_what_was_deleted_is_gone(
    having: Callable[[Account], Belongings], new_account: Callable[[], Account]
) -> None:
    """Every operation that deletes, where the same path can be read. Who deletes the contents of something keeps the rest."""
    own, wrong = having(new_account()), []
    operations = list(every_operation())
    read = {each.path for each in operations if each.method == "get" and each.security == "key"}
    for operation in operations:
        if operation.method != "delete" or operation.path not in read or operation.subject == ALIASES:
            continue
        own.renew(operation.needs[-1])
        BEFORE.get(operation.name, _nothing)(own)
        path = filled(operation.path, own.ids)
        statuses = [own.client.request(method, path).status_code for method in ("GET", "DELETE", "GET")]
        kept = "contents" in SUMMARIES[operation.name]
        if statuses != [200, 200, 200 if kept else 404]:
            wrong.append((operation.label, statuses))
    assert wrong == []
