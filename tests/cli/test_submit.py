"""Claims about `submit`, `results` and the watching of a batch, against a whole installation on a fake engine."""

import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app import settings as configuration
from app.cli import submit
from app.cli.client import Client
from tests import needs
from tests.cli.support import Run, command_line, serving
from tests.installation import EMBEDDER
from tests.system.stack import MODEL, Account, Stack

OPENAI = {"method": "POST", "url": "/v1/chat/completions"}


@pytest.fixture
def run(installation: Stack, account: Account, monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    yield command_line(installation.settings, account.key, monkeypatch)
    configuration.load.cache_clear()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    file = tmp_path / "reviews.csv"
    file.write_text("id,text\na,first review\nb,second review\nc,third review\n")
    return file


def submitted(run: Run, *arguments: str) -> str:
    """The id of a batch that has ended."""
    shown = run("submit", "--watch", "--json", *arguments)
    assert shown.exit_code == 0, shown.output
    return str(json.loads(shown.output[shown.output.index("\n{") :])["request_id"])


def test_a_table_comes_back_with_its_answers_beside_its_rows(run: Run, table: Path, tmp_path: Path) -> None:
    request_id = submitted(run, str(table), "--prompt", "Repeat: {text}", "-m", MODEL, "--reference", "id")
    out = tmp_path / "answers.csv"
    assert run("results", request_id, "--join", str(table), "-o", str(out)).exit_code == 0
    rows = list(csv.DictReader(out.open()))
    assert [row["id"] for row in rows] == ["a", "b", "c"]
    assert all(row["answer"] and not row["error"] for row in rows)
    flat = list(csv.DictReader(io.StringIO(run("results", request_id, "-o", str(tmp_path / "f.csv")).output)))
    assert flat == []  # a file was written, nothing was printed
    assert [row["reference"] for row in csv.DictReader((tmp_path / "f.csv").open())] == ["a", "b", "c"]


def test_results_are_ndjson_when_printed(run: Run, table: Path) -> None:
    request_id = submitted(run, str(table), "-m", MODEL)
    lines = [json.loads(line) for line in run("results", request_id).output.splitlines() if line.startswith("{")]
    assert [line["id"] for line in lines] == [0, 1, 2]
    assert all(line["success"] for line in lines)


def test_prompts_come_on_standard_input(run: Run) -> None:
    shown = run("submit", "-", "--format", "prompts", "-m", MODEL, "--watch", text="one\ntwo\n")
    assert shown.exit_code == 0, shown.output
    assert "2 of 2 succeeded" in shown.output


@pytest.mark.parametrize("code", ["no_engine", "closed_slots"])
def test_a_model_that_no_engine_serves_is_warned_of(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    submit.warn_without_engine({"waiting": {"code": code, "message": "no engine serves m now"}})
    assert capsys.readouterr().err == ("Warning: no engine serves m now.\n" if code == "no_engine" else "")


def test_a_model_is_named_where_engines_serve_several(run: Run) -> None:
    refused = run("submit", "-", "--format", "prompts", text="one\n")
    assert refused.exit_code == 1
    assert f"Engines serve {EMBEDDER}, {MODEL}." in refused.output
    engines = {"engines": [{"model": MODEL}, {"model": None}, {"model": MODEL}]}
    with serving({"/status": json.dumps(engines)}) as url, Client(url, "none") as client:
        assert submit.default_model(client) == MODEL


def test_openai_requests_are_submitted_as_a_file(run: Run, tmp_path: Path) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    file = tmp_path / "input.jsonl"
    file.write_text("\n".join(json.dumps({"custom_id": name, "body": body, **OPENAI}) for name in "xy"))
    request_id = submitted(run, str(file))
    out = tmp_path / "answers.jsonl"
    assert run("results", request_id, "--join", str(file), "-o", str(out)).exit_code == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row["custom_id"] for row in rows] == ["x", "y"]
    assert all(row["answer"] for row in rows)


def test_a_bad_line_is_named_and_nothing_is_queued(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "input.jsonl"
    file.write_text('{"prompt": "fine"}\n{"prompt": "hot", "temperature": "very"}\n')
    refused = run("submit", str(file), "-m", MODEL)
    assert refused.exit_code == 1
    assert "temperature" in refused.output


@pytest.mark.parametrize(
    ("name", "said"),
    [("p.txt", "p.txt has no prompts."), ("p.csv", "p.csv has no prompts."), ("p.jsonl", "p.jsonl is empty.")],
)
def test_an_empty_file_is_named(run: Run, tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / name).write_text("")
    refused = run("submit", str(tmp_path / name), "--model", MODEL)
    assert (refused.exit_code, said in " ".join(refused.output.split())) == (1, True), refused.output


def test_another_file_than_the_submitted_one_is_not_joined(run: Run, table: Path, tmp_path: Path) -> None:
    request_id = submitted(run, str(table), "-m", MODEL)
    other, out = tmp_path / "other.csv", tmp_path / "answers.csv"
    other.write_text("text\nonly one\n")
    refused = run("results", request_id, "--join", str(other), "-o", str(out))
    assert refused.exit_code == 1
    assert "1 rows, the batch has 3 items" in refused.output
    assert not out.exists()


def test_a_taken_column_and_an_unknown_ending_are_refused(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "asked.csv"
    file.write_text("text,answer\nhi,mine\n")
    request_id = submitted(run, str(file), "-m", MODEL)
    assert "--column" in run("results", request_id, "--join", str(file)).output
    assert run("results", request_id, "--join", str(file), "--column", "theirs").exit_code == 0
    assert ".parquet" in run("results", request_id, "-o", str(tmp_path / "x.docx")).output


def test_parquet_goes_in_and_out(run: Run, tmp_path: Path) -> None:
    pyarrow, parquet = needs.module("pyarrow", "parquet"), needs.module("pyarrow.parquet", "parquet")
    file, out = tmp_path / "in.parquet", tmp_path / "out.parquet"
    parquet.write_table(pyarrow.table({"n": [1, 2], "text": ["a", "b"]}), file)
    request_id = submitted(run, str(file), "--prompt", "Repeat: {text}", "-m", MODEL)
    assert run("results", request_id, "--join", str(file), "-o", str(out)).exit_code == 0
    found = parquet.read_table(out).to_pydict()
    assert found["n"] == [1, 2]
    assert found["error"] == [None, None]


def test_options_of_prompts_are_refused_beside_whole_requests(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "input.jsonl"
    file.write_text('{"prompt": "x"}\n')
    assert "--max-tokens" in run("submit", str(file), "-m", MODEL, "--max-tokens", "5").output
    assert "no such file" in run("submit", str(tmp_path / "none.csv")).output


def test_an_answer_may_hold_every_kind_of_line_separator(run: Run, tmp_path: Path) -> None:
    file, out = tmp_path / "p.txt", tmp_path / "x.csv"
    file.write_text("one\u2028two\x0bthree\x85four\n")
    request_id = submitted(run, str(file), "-m", MODEL)
    assert run("results", request_id, "--join", str(file), "-o", str(out)).exit_code == 0
    [row] = csv.DictReader(out.open(newline=""))
    assert "\u2028two\x0bthree\x85four" in row["answer"]


def test_a_table_on_standard_input_is_not_taken_for_prompts(run: Run) -> None:
    refused = run("submit", "-", "--prompt", "Say {text}", "-m", MODEL, text="id,text\n1,hi\n")
    assert refused.exit_code == 1
    assert "--format" in refused.output


def test_metadata_may_be_in_any_script_and_a_byte_order_mark_is_no_request(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "items.jsonl"
    file.write_bytes(b'\xef\xbb\xbf{"prompt": "hi"}\n')
    request_id = submitted(run, str(file), "-m", MODEL, "--metadata", "team=\u65e5\u672c")
    assert json.loads(run("batch", "show", request_id, "--json").output)["metadata"] == {"team": "\u65e5\u672c"}


def test_a_key_with_a_stray_end_works_and_no_message_shows_a_key(run: Run, account: Account) -> None:
    key = account.key
    assert run("batch", "list", env={"SLACKWATER_API_KEY": f"{key} \n"}).exit_code == 0
    for bad in (f"{key} x", f"{key}\u00e9"):
        refused = run("batch", "list", env={"SLACKWATER_API_KEY": bad})
        assert refused.exit_code == 1
        assert key not in refused.output


def test_results_need_a_folder_that_exists_before_anything_is_read(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "p.txt"
    file.write_text("hi\n")
    request_id = submitted(run, str(file), "-m", MODEL)
    assert "there is no folder" in run("results", request_id, "-o", str(tmp_path / "no" / "x.csv")).output
