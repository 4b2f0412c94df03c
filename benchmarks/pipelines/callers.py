"""Two callers who want the same work of several stages: one submits a pipeline; the other submits a batch for each stage.

Both upload the lines, poll at the same interval, and have the answers of the last stage in the end. The one who chains batches by
hand downloads the answers of each stage, joins them with the lines on `custom_id`, and uploads the requests of the next.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import httpx
from openai import OpenAI

from benchmarks.openai_batch.lines import CHAT
from benchmarks.openai_batch.slot_engine import FINAL, submit

Line = Mapping[str, str]  # `custom_id` and `text`
Message = Mapping[str, str]
LIMIT_SECONDS = 3600.0
MAX_TOKENS = 8


@dataclass(frozen=True)
class Step:
    """One stage: its model, and its messages as templates, in which `item.custom_id`, `item.text` and `text` may stand."""

    name: str
    model: str
    messages: Sequence[Message]

    def filled(self, line: Line, before: str) -> list[Message]:
        """The messages for a line. `before`: the answer of the stage above."""
        values = {"{{item.custom_id}}": line["custom_id"], "{{item.text}}": line["text"], "{{text}}": before}
        return [{**message, "content": _replaced(message["content"], values)} for message in self.messages]


@dataclass(frozen=True)
class Work:
    """What is to be done, how often callers look whether it is (in seconds), and a folder for files."""

    lines: Sequence[Line]
    steps: Sequence[Step]
    poll_seconds: float
    folder: Path


@dataclass(frozen=True)
class Outcome:
    """The answers of the last stage by `custom_id`, and the seconds from the first upload until they were read."""

    seconds: float
    answers: Mapping[str, Mapping[str, Any]]

    @property
    def texts(self) -> dict[str, str]:
        """What the answers say."""
        return {name: text_of(answer) for name, answer in self.answers.items()}

    @property
    def cached_share(self) -> float:
        """The share of the prompt tokens of the last stage that were in the engine's prefix cache."""
        usages = [answer["usage"] for answer in self.answers.values()]
        cached = sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0 for usage in usages)
        return cached / sum(int(usage["prompt_tokens"]) for usage in usages)


def text_of(answer: Mapping[str, Any]) -> str:
    """The text of a chat completion."""
    return answer["choices"][0]["message"]["content"] or ""


def _replaced(text: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        text = text.replace(name, value)
    return text


# ---------------------------------------------------------------- by hand


def by_hand(client: OpenAI, work: Work) -> Outcome:
    """Chain batches."""
    began, answers = monotonic(), dict[str, Mapping[str, Any]]()
    for step in work.steps:
        before = {name: text_of(answer) for name, answer in answers.items()}
        file = _written(work.folder / "requests.jsonl", [_request(step, line, before) for line in work.lines])
        batch_id = submit(client, file).id
        while (batch := client.batches.retrieve(batch_id)).status not in FINAL:
            _pause(began, work)
        if batch.status != "completed" or not batch.output_file_id:
            raise SystemExit(f"the batch of stage {step.name} is {batch.status}")
        content = client.files.content(batch.output_file_id).read()
        found = map(json.loads, content.splitlines())
        answers = {one["custom_id"]: one["response"]["body"] for one in found}
    return _checked(work, monotonic() - began, answers)


def _request(step: Step, line: Line, before: Mapping[str, str]) -> Mapping[str, Any]:
    messages = step.filled(line, before.get(line["custom_id"], ""))
    body = {"model": step.model, "max_tokens": MAX_TOKENS, "messages": messages}
    return {"custom_id": line["custom_id"], "method": "POST", "url": CHAT, "body": body}


# ---------------------------------------------------------------- a pipeline


def as_pipeline(client: OpenAI, work: Work) -> Outcome:
    """Submit a pipeline."""
    began = monotonic()
    path = f"/pipelines/{create(client, work)}"
    while (state := client.get(path, cast_to=httpx.Response).json()["status"]) not in FINAL:
        _pause(began, work)
    if state != "completed":
        raise SystemExit(f"the pipeline is {state}")
    content = client.get(f"{path}/results", cast_to=httpx.Response).content
    answers = {one["custom_id"]: one["answer"] for one in map(json.loads, content.splitlines())}
    return _checked(work, monotonic() - began, answers)


def create(client: OpenAI, work: Work) -> str:
    """Upload the lines and create a pipeline. Returns its id."""
    with _written(work.folder / "lines.jsonl", work.lines).open("rb") as content:
        file = client.files.create(file=content, purpose="batch")
    stages = [
        {"id": step.name, "model": step.model, "body": {"max_tokens": MAX_TOKENS, "messages": step.messages}}
        for step in work.steps
    ]
    definition = {"input": {"file_id": file.id}, "stages": stages}
    return str(client.post("/pipelines", body=definition, cast_to=httpx.Response).json()["id"])


# ---------------------------------------------------------------- both


def _written(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _pause(began: float, work: Work) -> None:
    if monotonic() - began > LIMIT_SECONDS:
        raise SystemExit(f"the work was not done within {LIMIT_SECONDS:.0f} s")
    sleep(work.poll_seconds)


def _checked(work: Work, seconds: float, answers: Mapping[str, Mapping[str, Any] | None]) -> Outcome:
    """The outcome, if every line has an answer."""
    found = {name: answer for name, answer in answers.items() if answer is not None}
    if found.keys() != {line["custom_id"] for line in work.lines}:
        raise SystemExit(f"{len(found)} of {len(work.lines)} lines have an answer")
    return Outcome(seconds, found)
