"""The output of the demo: answers, webhooks, and the duration of each stage."""

import shutil
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from app import clock
from app.cli import ready_message
from app.cli.receiver import Received
from app.cli.text import plain
from app.engines.native_response import answer_in
from app.engines.outcome import usage_of
from app.quantities import duration
from app.settings import Settings, masked
from app.user_errors import Failure

Object = dict[str, Any]
TELL_SECONDS = 15.0
_SHOWN = 5  # answers of a demo


class StageTimes:
    """The duration of each stage, in seconds."""

    def __init__(self) -> None:
        self.seconds: list[tuple[str, float]] = []
        self._since = clock.monotonic()

    def done(self, name: str) -> None:
        """End the current stage under this name."""
        now = clock.monotonic()
        self.seconds.append((name, now - self._since))
        self._since = now


class Waiting:
    """Says every `TELL_SECONDS` what the demo waits for, where no terminal shows it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = self._told = clock.monotonic()

    def tell(self, text: str) -> None:
        """What it waits for now."""
        now = clock.monotonic()
        if not self._console.is_terminal and now - self._told >= TELL_SECONDS:
            self._told = now
            line = f"{duration(now - self._began)}: {text}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def answers(console: Console, items: list[Object], result: Object, *, show_all: bool) -> None:
    """Print prompts with their answers, `show_all` or a few and those that failed, and the batch's usage.

    Raises Failure if a request failed.
    """
    responses = result["responses"]
    shown = [each for number, each in enumerate(responses) if show_all or number < _SHOWN or not each["success"]]
    title = "Answers" if show_all else f"{len(shown)} of {len(responses)} answers; --all shows them all"
    table = Table("id", "prompt", "answer", "tokens", title=title, show_lines=True, expand=True)
    for response in shown:
        answer, tokens = _answer(response)
        prompt = plain(_short(_prompt(items[response["id"]]), 160))
        table.add_row(str(response["id"]), prompt, answer, tokens)
    console.print(table)
    usage = result["usage"]
    failed = sum(not response["success"] for response in responses)
    console.print(
        f"{len(responses) - failed} succeeded, {failed} failed. Tokens: {usage['prompt_tokens']} prompt "
        f"(of which {usage['prompt_tokens_details']['cached_tokens']} cached), {usage['completion_tokens']} completion."
    )
    if failed:
        raise Failure(f"{failed} of the demo's requests failed.")


def webhook(console: Console, got: Received, *, whole: bool) -> None:
    """Print one webhook, if `whole` with its body. Raises Failure if its signature is wrong."""
    if not got.verified:
        raise Failure(f"The webhook {got.headers.get('webhook-id')} has a wrong signature.")
    number, kind = escape(got.headers["webhook-id"]), escape(got.body["type"])
    console.print(f"Webhook {number}: [bold]{kind}[/], signature [green]verified[/]", highlight=False, soft_wrap=True)
    if whole:
        console.print_json(data=got.body)


def times(console: Console, stages: StageTimes, log_file: Path) -> None:
    """Print the duration of each stage and the path of the log."""
    table = Table("stage", "seconds", title="Where the time went")
    for name, seconds in stages.seconds:
        table.add_row(name, f"{seconds:.1f}")
    table.add_row("together", f"{sum(seconds for _, seconds in stages.seconds):.1f}", style="bold")
    console.print(table)
    text = f"Everything has stopped. The log of all parts is {log_file}."
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def next_steps(console: Console, settings: Settings) -> None:
    """Print how to go on."""
    command = ready_message.program()
    attach = f" --attach {masked(settings.attached_to)}" if settings.attached_to else ""
    console.print("\nTo go on:", highlight=False)
    for line, meaning in (
        ("up", "run until Ctrl-C, and say how to send requests"),
        ("demo --all", "show every answer"),
    ):
        text = f"  {command} {line}{attach}   # {meaning}"
        console.print(text, markup=False, highlight=False, soft_wrap=True)


def _answer(response: Object) -> tuple[Text, str]:
    """The text and the token count of one response, in any response shape of the Workers AI routes."""
    if not response["success"]:
        refusal = plain(_short(response["error"]["message"], 400))
        refusal.stylize("red")
        return refusal, "–"
    result = response["result"]
    usage = usage_of(result)
    return plain(_short(_text(answer_in(result)), 400)), str(usage.completion_tokens if usage else "–")


def _prompt(item: Object) -> str:
    messages = item.get("messages") or [{}]
    return _text(item.get("prompt") or item.get("input") or messages[-1].get("content"))


def _text(content: object) -> str:
    """Content as text. Null (the model called a tool) is empty; parts and JSON are shown as they are."""
    return "" if content is None else str(content)


def _short(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= min(most, shutil.get_terminal_size().columns * 4) else text[: most - 1] + "…"
