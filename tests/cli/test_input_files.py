"""Claims about the files that `slackwater submit` reads."""

from pathlib import Path

import pytest

from app.cli import input_files
from app.cli.submit import Prompts
from app.user_errors import Failure
from tests import needs


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text)
    return file


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.jsonl", '{"prompt": "x"}\n', "items"),
        ("a.jsonl", '\n{"custom_id": "1", "method": "POST", "url": "/v1/completions", "body": {}}\n', "openai"),
        ("a.txt", '{"not": "looked at"}\n', "prompts"),
        ("a", "What is this?\n", "prompts"),
        ("a", "17\n", "prompts"),
        ("a.CSV", "text\nx\n", "csv"),
        ("a.tsv", "text\nx\n", "tsv"),
    ],
)
def test_a_file_is_known_by_its_name_or_its_first_line(tmp_path: Path, name: str, text: str, kind: str) -> None:
    assert input_files.kind_of(written(tmp_path, name, text)) == kind


@pytest.mark.parametrize(("name", "text"), [("a.jsonl", "hello\n"), ("a", '{"cut": \n'), ("a.json", "[1]x\n")])
def test_what_claims_to_be_json_and_is_not_is_refused(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(Failure, match="line 1: not a JSON object"):
        input_files.kind_of(written(tmp_path, name, text))


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="is empty"):
        input_files.kind_of(written(tmp_path, "a.jsonl", " \n"))


def test_prompts_are_the_lines_that_are_not_empty(tmp_path: Path) -> None:
    file = written(tmp_path, "a.txt", "\ufeffone\r\n\n two \n")
    assert list(input_files.rows(file, "prompts")) == [{"text": "one"}, {"text": " two "}]


def test_a_cell_may_hold_line_breaks_and_quotes(tmp_path: Path) -> None:
    file = written(tmp_path, "a.csv", 'id,text\n1,"two\nlines, ""quoted"""\n')
    assert list(input_files.rows(file, "csv")) == [{"id": "1", "text": 'two\nlines, "quoted"'}]


@pytest.mark.parametrize("row", ["1", "1,2,3"])
def test_a_row_of_other_width_than_the_header_is_named(tmp_path: Path, row: str) -> None:
    with pytest.raises(Failure, match=r"line 3: the header has 2 columns"):
        list(input_files.rows(written(tmp_path, "a.csv", f"id,text\n1,x\n{row}\n"), "csv"))


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="line 2"):
        list(input_files.rows(written(tmp_path, "a.jsonl", '{"a": 1}\n{"a": \n'), "items"))


def test_text_in_another_encoding_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("text\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(Failure, match="is not UTF-8"):
        list(input_files.rows(file, "csv"))


def test_parquet_rows_keep_their_columns(tmp_path: Path) -> None:
    pyarrow = needs.module("pyarrow", "parquet")
    parquet = needs.module("pyarrow.parquet", "parquet")
    file = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"n": [1, 2], "text": ["a", None]}), file)
    assert list(input_files.rows(file, "parquet")) == [{"n": 1, "text": "a"}, {"n": 2, "text": None}]
    assert Prompts("{n}: {text}").item({"n": 2, "text": None}) == {"prompt": "2: "}
    with pytest.raises(Failure, match="not a Parquet file"):
        list(input_files.rows(written(tmp_path, "b.parquet", "text"), "parquet"))


def test_a_template_takes_columns_and_doubled_braces() -> None:
    assert input_files.filled('{{"of": "{a column}"}}', {"a column": "x{y}"}) == '{"of": "x{y}"}'


@pytest.mark.parametrize("template", ["{missing}", "{", "a } b", "{text.__class__}"])
def test_a_template_that_cannot_be_filled_is_refused(template: str) -> None:
    with pytest.raises(Failure, match="--prompt"):
        input_files.filled(template, {"text": "x"})


def test_a_row_becomes_an_item_with_the_options_of_the_command() -> None:
    prompts = Prompts("Say {text}", system="Be short.", max_tokens=5, temperature=0, reference="id")
    assert prompts.item({"id": 7, "text": "hi"}) == {
        "messages": [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Say hi"}],
        "external_reference": "7",
        "max_tokens": 5,
        "temperature": 0,
    }
    assert Prompts().item({"text": "hi"}) == {"prompt": "hi"}
    with pytest.raises(Failure, match="no column"):
        Prompts("{c}").item({"a": 1, "b": 2})


@pytest.mark.parametrize(("name", "text"), [("a.json", '[{"prompt": "a"}]'), ("a", "[1, 2]\n"), ("a.jsonl", "17\n")])
def test_json_that_is_no_object_is_not_submitted_as_a_prompt(tmp_path: Path, name: str, text: str) -> None:
    with pytest.raises(Failure, match="line 1"):
        input_files.kind_of(written(tmp_path, name, text))


def test_bytes_that_are_no_text_are_refused_before_anything_is_guessed(tmp_path: Path) -> None:
    file = tmp_path / "a.dat"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Failure, match="is not UTF-8"):
        input_files.kind(file, None)


def test_a_missing_column_is_named_by_its_option() -> None:
    with pytest.raises(Failure, match="--reference: there is no column 'nope'"):
        Prompts("{a}", reference="nope").item({"a": 1})
