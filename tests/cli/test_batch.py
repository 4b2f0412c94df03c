"""Claims about `slackwater batch …`: over HTTP alone, on a terminal of 80 columns and in a pipe."""

import asyncio
import json
import re
import threading
import uuid
from collections.abc import Callable

import pytest

from app.cli import account, batch_ids, tables
from app.cli.client import Client, ListPage, response_json
from app.db.pool import Database
from app.settings import Settings
from app.user_errors import Failure
from tests.api.support import run_all
from tests.cli.support import TERMINAL, Run

MODEL = "smollm2-135m-instruct"
NO_DATABASE = {"SLACKWATER_DATABASE_URL": "postgresql://nobody@127.0.0.1:1/none"}
Submit = Callable[..., str]


@pytest.fixture
def submit(api: Settings, key: str) -> Submit:
    """Makes a batch of so many items; returns its id."""

    def call(items: int = 1, **headers: str) -> str:
        body, params = {"requests": [{"prompt": "hello"}] * items}, {"queueRequest": "true", "tags": "nightly"}
        with Client(f"http://{api.host}:{api.port}", key) as client:
            made = client.call("POST", f"/ai/run/{MODEL}", json=body, params=params, headers=headers)
            return str(made["request_id"])

    return call


def run_items(settings: Settings, fail: set[int]) -> None:
    """What a worker does with all that waits."""

    async def call() -> None:
        async with Database.of(settings, "test") as database:
            await run_all(database, fail)

    asyncio.run(call())


def test_callers_commands_need_no_database(run: Run, submit: Submit) -> None:
    made = submit()
    for arguments in (["batch", "list"], ["batch", "show", made], ["why", made], ["subscription", "list"], ["events"]):
        shown = run(*arguments, env=NO_DATABASE)
        assert shown.exit_code == 0, shown.output


def test_a_batch_is_paused_resumed_cancelled_and_retried(run: Run, submit: Submit) -> None:
    made = submit(40)
    for verb, message, state in (
        ("pause", f"{made} is paused; `slackwater batch resume` continues it.", "paused"),
        ("resume", f"{made} continues.", "queued"),
        ("cancel", f"{made} is cancelled; running items are aborted within one heartbeat.", "cancelled"),
        ("retry", f"{made} runs again, with 40 items that had no answer.", "queued, run 2"),
    ):
        assert run("batch", verb, made).output.strip() == message
        assert f"state      {state}\n" in run("batch", "show", made).output
    shown = run("batch", "show", made).output
    assert "items      0 of 40 done; 40 queued\n" in shown
    assert re.search(r"submitted  \d{4}-\d\d-\d\d [\d:]{8} [A-Z+-]\S*\n", shown)  # and the zone
    assert f"waits      no engine serves {MODEL} now; the batch is kept until one does\n" in shown


def test_a_verb_that_changes_nothing_says_so(run: Run, submit: Submit, api: Settings) -> None:
    made = submit()
    assert run("batch", "resume", made).output.strip() == f"{made} was not paused: it is queued."
    run("batch", "cancel", made)
    again = run("batch", "cancel", made).output.strip()
    assert re.fullmatch(rf"{made} had ended before, at [\d: -]+ \S+: it is cancelled. Nothing has changed.", again)
    done = submit()
    run_items(api, set())
    for verb in ("cancel", "pause", "resume"):
        assert "The batch is completed: only one that is" in run("batch", verb, done).output
    assert "Every item was answered; nothing to retry" in run("batch", "retry", done).output


def test_a_batch_shows_why_its_items_failed(run: Run, submit: Submit, api: Settings) -> None:
    made = submit(3)
    run_items(api, {1, 2})
    lines = run("batch", "show", made).output.splitlines()
    assert "items      3 of 3 done, 2 of them failed" in lines
    assert lines[-2:] == ["items\twhy they failed", "2\tno"]


def test_a_batch_shows_why_it_was_refused(run: Run, api: Settings, key: str) -> None:
    wish = {"endpoint": "/v1/chat/completions", "completion_window": "24h", "requests": [{"custom_id": "a"}]}
    with (
        Client(f"http://{api.host}:{api.port}", key) as client,
        client.stream("POST", "/v1/batches", json=wish) as made,
    ):
        batch = response_json(made)["id"]
    shown = run("batch", "show", batch).output
    assert "state      refused\n" in shown
    assert "line\twhy the batch was refused\n1\t" in shown
    assert "\trefused\t0/0\t0\t" in run("batch", "list").output
    assert run("why", batch).output.startswith("The batch is refused; it waits for nothing.\n")
    results = run("results", batch)
    said = " ".join(results.output.split())
    assert (results.exit_code, "The batch was refused, and none of its items ran: Missing required" in said) == (
        1,
        True,
    )


def test_the_list_is_filtered_by_the_api(run: Run, submit: Submit) -> None:
    mine = submit(**{"cf-aig-metadata": '{"team":"search"}'})
    paused = submit()
    run("batch", "pause", paused)

    def ids(*options: str) -> list[str]:
        return [batch["request_id"] for batch in json.loads(run("batch", "list", "--json", *options).output)]

    assert ids() == [paused, mine]
    assert ids("--limit", "1") == [paused]
    assert ids("--state", "queued") == [mine]
    assert ids("--state", "queued", "--state", "paused", "--tag", "nightly", "--model", MODEL) == [paused, mine]
    assert ids("--metadata", "team=search") == [mine]
    assert ids("--created-before", "2000-01-01") == []
    assert ids("--created-after", "2000-01-01") == [paused, mine]
    refused = run("batch", "list", "--state", "done")
    assert (refused.exit_code, "state: must be one of queued" in refused.output) == (1, True)
    assert run("batch", "list", "--metadata", "team").exit_code == 2


def test_a_pipe_gets_one_line_a_batch_with_tabs(run: Run, submit: Submit) -> None:
    made = submit(2)
    head, row = run("batch", "list").output.splitlines()
    assert head.split("\t") == ["batch", "state", "done", "failed", "submitted", "model", "ended", "tags"]
    cells = row.split("\t")
    assert cells[:4] == [made, "queued", "0/2", "0"]
    assert cells[5:] == [MODEL, "", "nightly"]


@pytest.mark.parametrize("width", [80, 120])
def test_a_terminal_shows_whole_ids_within_its_width(run: Run, submit: Submit, width: int) -> None:
    made = submit(2)
    lines = run("batch", "list", env=TERMINAL | {"COLUMNS": str(width)}).output.splitlines()
    assert max(map(len, lines)) <= width
    assert any(re.sub(r"\x1b\[[0-9;]*m", "", line).startswith(made) for line in lines)
    assert (MODEL in "\n".join(lines)) == (width == 120)
    assert not set("│┃━─") & set("".join(lines))


def test_json_is_the_result_of_the_api(run: Run, submit: Submit, api: Settings, key: str) -> None:
    made = submit()
    run("batch", "cancel", made)
    with Client(f"http://{api.host}:{api.port}", key) as client:
        assert json.loads(run("batch", "show", made, "--json").output) == client.get(f"/ai/batches/{made}")
    assert json.loads(run("batch", "retry", made, "--json").output)["run"] == 2


@pytest.mark.parametrize("spell", [str, lambda made: f"batch_{uuid.UUID(made).hex}", lambda made: made[:8].upper()])
def test_a_batch_is_named_by_either_id_or_its_first_digits(
    run: Run, submit: Submit, spell: Callable[[str], str]
) -> None:
    made = submit()
    submit()
    assert made in run("batch", "show", spell(made)).output


def test_an_id_that_names_no_batch_is_refused(run: Run, submit: Submit) -> None:
    submit()
    for text, message in (
        ("nonsense!", "nonsense! is not the id of a batch."),
        ("1234567", "1234567 is not the id of a batch."),
        ("00000000", "No batch among the newest 10,000 begins with 00000000."),
        (str(uuid.uuid4()), "No batch with this request_id in this account"),
    ):
        refused = run("batch", "cancel", text)
        assert refused.exit_code == 1
        assert message in refused.output


class Listing:
    """A client whose account has batches with these ids, in pages of two."""

    def __init__(self, *ids: str) -> None:
        self.ids = ids

    def page(self, path: str, *, limit: int, after: str | None) -> ListPage:
        begin = self.ids.index(after) + 1 if after else 0
        found = self.ids[begin : begin + min(limit, 2)]
        more = begin + len(found) < len(self.ids)
        return ListPage([{"request_id": each} for each in found], found[-1] if more else "")


def test_first_digits_that_several_batches_share_are_refused_with_their_ids() -> None:
    ids = [f"abcdef01-0000-4000-8000-{n:012}" for n in range(3)]
    client: Client = Listing("11111111-0000-4000-8000-000000000000", *ids)  # type: ignore[assignment]
    assert batch_ids.resolve(client, "11111111-0") == "11111111-0000-4000-8000-000000000000"
    with pytest.raises(Failure, match="3 batches begin with ABCDEF01") as caught:
        batch_ids.resolve(client, "ABCDEF01")
    assert all(each in caught.value.problem for each in ids)
    assert batch_ids.resolve(client, f"batch_{ids[1].replace('-', '')}"[:-2] + "01") == ids[1]


class AtOnce:
    """A timer whose time is over."""

    def __init__(self, _: float, function: Callable[[], None]) -> None:
        self.start = function

    def cancel(self) -> None:
        pass

    def join(self) -> None:
        pass


def test_a_long_wait_is_announced_and_a_short_one_is_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with tables.patience("Looking …"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(threading, "Timer", AtOnce)
    with tables.patience("Looking …"):
        pass
    assert "Looking …" in capsys.readouterr().err


def test_an_accounts_share_is_set_and_shown(run: Run, settings: Settings) -> None:
    assert account.set_share(settings, "acme", 2.5, None) == (2.5, 1_000_000_000)
    assert account.set_share(settings, "acme", None, 5000) == (2.5, 5000)
    shown = run("account", "share", "acme").output
    assert shown.strip() == "acme has weight 2.5 and at most 5000 tokens in flight."
    assert run("account", "share", "acme", "--weight", "0").exit_code == 2
