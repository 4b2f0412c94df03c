"""Claims about the files that `slackwater submit` reads."""

import gzip
import re
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


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.jsonl", "hello\n", " is plain text, such as CSV; put a JSON object on each line"),
        ("a", '{"cut": ', ", line 1: not valid JSON: it ends before it is complete"),
        ("a.jsonl", '{"a": None}\n', "None is not JSON; send null"),
        ("a.jsonl", "17\n", ", line 1: not a JSON object, but a number"),
        ("a.json", "[1]x\n", " is one JSON array; put each of its elements on a line"),
        ("a", "[1, 2]\n", " is one JSON array; put each of its elements on a line"),
        ("a.json", '{\n  "a": 1\n}\n', " is JSON over several lines; put each request on one line"),
    ],
)
def test_what_claims_to_be_json_and_is_not_is_refused_in_the_words_of_the_api(
    tmp_path: Path, name: str, text: str, problem: str
) -> None:
    with pytest.raises(Failure, match=problem):
        input_files.kind_of(written(tmp_path, name, text))


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (gzip.compress(b'{"prompt": "x"}\n', mtime=0), "compressed with gzip; send it uncompressed"),
        (b"\xff\xd8", "a JPEG image; send JSON"),
        (b"%PDF-1.4\n", "a PDF; send JSON"),
        ('{"prompt": "x"}\n'.encode("utf-16"), "text in UTF-16; send it as UTF-8"),
        ('{"prompt": "x"}\n'.encode("utf-16-le"), "text in UTF-16, or binary; send it as UTF-8"),
        (b"\xff\xfe\x00", "text in UTF-16; send it as UTF-8"),
    ],
)
def test_what_a_file_is_that_is_no_text_is_said_as_the_api_says_it(tmp_path: Path, content: bytes, what: str) -> None:
    file = tmp_path / "a.jsonl"
    file.write_bytes(content)
    with pytest.raises(Failure, match=re.escape(f"{file} is {what}.")):
        input_files.kind_of(file)


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
    with pytest.raises(Failure, match="line 2: not valid JSON: it ends before it is complete"):
        list(input_files.rows(written(tmp_path, "a.jsonl", '{"a": 1}\n{"a": \n'), "items"))


def test_text_in_another_encoding_is_refused_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes("text\ncaf\xe9\n".encode("latin-1"))
    with pytest.raises(Failure, match="line 2: the byte 0xe9 at column 4 is not UTF-8"):
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


def test_a_missing_column_is_named_by_its_option() -> None:
    with pytest.raises(Failure, match="--reference: there is no column 'nope'"):
        Prompts("{a}", reference="nope").item({"a": 1})
