"""Claims about `slackwater shadow`: one file to two batch APIs, the answers of both side by side."""

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from app import processes
from app.cli import shadow_answers
from app.cli.shadow_answers import PerMillion, Side
from tests.cli.support import Run, command_line
from tests.system.stack import MODEL, Account, Stack


def line(n: int, text: str, model: str = MODEL, **body: Any) -> str:
    """A request in OpenAI's batch format."""
    asked = {"model": model, "messages": [{"role": "user", "content": text}], "max_tokens": 8, **body}
    return json.dumps({"custom_id": f"r{n}", "method": "POST", "url": "/v1/chat/completions", "body": asked})


@pytest.fixture
def other(new_account: Callable[[], Account]) -> Account:
    """Whose batch API plays the other side."""
    return new_account()


@pytest.fixture
def run(installation: Stack, account: Account, other: Account, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line of our account, which knows the other side."""
    monkeypatch.setenv("OPENAI_BASE_URL", f"{other.url}/v1")
    monkeypatch.setenv("OPENAI_API_KEY", other.key)
    return command_line(installation.settings, account.key, monkeypatch)


def batches(account: Account) -> list[dict[str, Any]]:
    """What the account has submitted."""
    found: list[dict[str, Any]] = account.client.get("/v1/batches").json()["data"]
    return found


def test_both_get_the_file_and_answers_tokens_and_cost_stand_side_by_side(
    run: Run, account: Account, other: Account, tmp_path: Path
) -> None:
    file, saved = tmp_path / "requests.jsonl", tmp_path / "answers.jsonl"
    file.write_text("".join(f"{line(n, f'Say {n}', 'HuggingFaceTB/SmolLM2-135M-Instruct')}\n" for n in range(7)))
    done = run("shadow", str(file), "--model", MODEL, "--price", "1,2", "-o", str(saved))
    assert done.exit_code == 0, done.output
    assert "answered\t7 of 7\t7 of 7" in done.output
    assert "7 answers of 7 that both gave are the same" in done.output
    assert "r0\techo: Say 0\techo: Say 0" in done.output
    assert str(saved) in done.output
    kept = [json.loads(each) for each in saved.read_text().splitlines()]
    assert [each["here"]["answer"] for each in kept] == [f"echo: Say {n}" for n in range(7)]
    [ours], [theirs] = batches(account), batches(other)
    again = run("shadow", str(file), "--here", ours["id"], "--there", theirs["id"], "--price", "1,2", "--json")
    found = json.loads(again.output[again.output.index("{") :])
    there = found[other.url.removeprefix("http://")]
    assert (found["requests"], found["same"], found["here"]["answered"], there["answered"]) == (7, 7, 7, 7)
    assert there["cost"] == (there["prompt_tokens"] + 2 * there["completion_tokens"]) / 1e6
    assert (len(batches(account)), len(batches(other))) == (1, 1)


def test_what_is_refused_here_is_not_sent_to_the_other(run: Run, other: Account, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(line(1, "Hello", "gpt-nobody") + "\n")
    done = run("shadow", str(file))
    assert done.exit_code == 1
    assert "not sent to the other" in done.output
    assert "gpt-nobody" in done.output
    assert batches(other) == []


def test_nothing_starts_here_without_the_other_side(
    run: Run, account: Account, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(line(1, "Hello") + "\n")
    nobody = f"http://127.0.0.1:{processes.free_port()}/v1"
    for key, url, said in (
        ("", None, "Set OPENAI_API_KEY"),
        ("wrong", None, "Correct the key"),
        ("x", nobody, "does not answer"),
        ("x", "ftp://x", "begins with http"),
        ("x", account.url, "ends in /v1"),
    ):
        monkeypatch.setenv("OPENAI_API_KEY", key)
        done = run("shadow", str(file), *(["--beside", url] if url else []))
        assert (done.exit_code, said in " ".join(done.output.split())) == (1, True), done.output
    assert batches(account) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"prompt": "Hello"}', "not in OpenAI's batch format"),
        (line(1, "a") + "\n" + line(2, "b").replace("chat/completions", "completions"), "request 2: its url is not"),
        (line(1, "a").replace("custom_id", "custom"), "request 1: has no custom_id"),
    ],
)
def test_a_file_that_cannot_be_compared_is_refused(run: Run, tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(content)
    done = run("shadow", str(file))
    assert (done.exit_code, said in " ".join(done.output.split())) == (1, True), done.output


def test_where_answers_cannot_be_written_is_told_before_anything_is_sent(
    run: Run, account: Account, tmp_path: Path
) -> None:
    file = tmp_path / "requests.jsonl"
    file.write_text(line(1, "Hello") + "\n")
    for place in (tmp_path, tmp_path / "missing" / "answers.jsonl"):
        done = run("shadow", str(file), "-o", str(place))
        assert (done.exit_code, "cannot be written" in done.output) == (1, True), done.output
    assert batches(account) == []


def test_a_price_is_two_numbers(run: Run, tmp_path: Path) -> None:
    for wrong in ("1", "a,b", "1,2,USD,3", "nan,1", "-1,1", "1,inf"):
        done = run("shadow", str(tmp_path / "x.jsonl"), "--price", wrong)
        assert (done.exit_code, "--price: must be two numbers" in done.output) == (1, True), done.output


def result(each: str, body: dict[str, Any] | None, status: int = 200, error: Any = None) -> dict[str, Any]:
    return {"custom_id": each, "response": {"status_code": status, "body": body}, "error": error}


def test_answers_of_every_shape_are_read_and_none_that_cannot_be_ends_the_comparison() -> None:
    chat = {"choices": [{"message": {"content": "yes  sir"}}], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}
    call = {"choices": [{"message": {"content": None, "tool_calls": [{"id": "1", "function": {"name": "look"}}]}}]}
    response = {
        "output": [{"type": "message", "content": [{"text": "yes"}]}],
        "usage": {"input_tokens": 1, "output_tokens": 1},
    }
    side = Side("there", {"id": "b"}, price=PerMillion(Decimal(1), Decimal(10))).take(
        [
            result("chat", chat),
            result("call", call),
            result("response", response),
            result("text", {"choices": [{"text": "yes"}]}),
            result("vector", {"data": [{"embedding": [0.5]}, {"embedding": [1]}]}),
            result("odd", {"choices": []}),
            result("no", {"error": {"message": "too long"}}, 400),
            result("late", None, 0, {"message": "expired"}),
            {"custom_id": "none", "response": None, "error": None},
        ]
    )
    assert {each: answer.text or answer.error for each, answer in side.answers.items()} == {
        "chat": "yes  sir",
        "call": '[{"name": "look"}]',
        "response": "yes",
        "text": "yes",
        "vector": "2 embeddings (fcaf48b4)",
        "odd": "the answer cannot be read",
        "no": "too long",
        "late": "expired",
        "none": "status None",
    }
    assert (side.answered, side.prompt_tokens, side.output_tokens) == (5, 4, 3)
    assert side.cost == (Decimal("0.000034"), "USD")


def test_embeddings_are_the_same_by_their_numbers_and_calls_whatever_their_ids() -> None:
    def of(number: float, call: str) -> Side:
        message = {"content": None, "tool_calls": [{"id": call, "function": {"name": "look"}}]}
        lines = {"e": {"data": [{"embedding": [number]}]}, "c": {"choices": [{"message": message}]}}
        return Side("x", {}).take([result(each, body) for each, body in lines.items()])

    found = {
        each: shadow_answers.same((each, a, b)) for each, a, b in shadow_answers.pairs("ec", of(1, "1"), of(2, "2"))
    }
    assert found == {"e": False, "c": True}


def test_answers_that_differ_come_first_and_white_space_is_no_difference() -> None:
    def of(**texts: str) -> Side:
        bodies = {each: {"choices": [{"message": {"content": text}}]} for each, text in texts.items()}
        return Side("x", {}).take([result(each, body) for each, body in bodies.items()])

    found = shadow_answers.pairs(["a", "b", "c"], of(a="one two", b="x", c="z"), of(a="one  two", b="y"))
    assert [each for each, *_ in found] == ["b", "c", "a"]
