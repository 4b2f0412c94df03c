"""The playground's outcomes to words and figures. Pure."""

from collections.abc import Sequence
from typing import Any

from app.console.playground import KEY_LIFETIME, PATIENCE_SECONDS, Ask, Outcome
from app.console.views import text, times
from app.engines.catalogue import Catalogue
from app.metering import money
from app.metering.money import TokenPrice
from app.sentences import ended

_PROMPT = "Explain in two sentences why the sea has tides."


def empty(models: Catalogue, served: Sequence[str]) -> dict[str, Any]:
    """The page before a prompt. `served`: the models that an engine serves now. Those that no engine answers come last."""
    return {
        "title": "Ask once, both ways",
        "rest": "One prompt goes to the model at once, as a caller's, and through the queue, as a batch of one."
        if (names := _models(models, served))
        else "No engine has served a model that generates text yet.",
        "models": names,
        "given": {"model": "", "prompt": _PROMPT, "max_tokens": 128},
        "outcomes": [],
        "minutes": int(KEY_LIFETIME.total_seconds() // 60),
    }


def answered(models: Catalogue, served: Sequence[str], ask: Ask, at_once: Outcome, queued: Outcome) -> dict[str, Any]:
    """The page with both answers."""
    both = not (at_once.error or queued.error) and queued.seconds is not None
    rest = "The queued one waited for a step that no caller needed; the one at once was served before all batch work."
    return empty(models, served) | {
        "title": headline(at_once, queued),
        "rest": rest if both else "",
        "given": {"model": ask.model, "prompt": ask.prompt, "max_tokens": ask.max_tokens},
        "outcomes": [_outcome("At once", at_once, models, ask), _outcome("Queued", queued, models, ask)],
    }


def headline(at_once: Outcome, queued: Outcome) -> str:
    """Which was how long."""
    if at_once.error and queued.error:
        return "Neither was answered"
    if queued.seconds is None and not queued.error:
        return f"The queued prompt still waits after {PATIENCE_SECONDS:.0f}{text.NBSP}s"
    if at_once.error or queued.error:
        return "One of the two was answered"
    return f"{times.span(at_once.seconds)} at once, {times.span(queued.seconds)} through the queue"


def _models(models: Catalogue, served: Sequence[str]) -> list[tuple[str, str]]:
    """Name and words of each model that generates text: served under its own name, then by another model's engine, then not."""
    found = [model for model in models.models.values() if model.task == "text-generation"]
    found.sort(key=lambda model: (model.served not in served, model.name != model.served, model.name))
    away = " (no engine serves it now)"
    return [(model.name, model.name if model.served in served else f"{model.name}{away}") for model in found]


def _outcome(name: str, found: Outcome, models: Catalogue, ask: Ask) -> dict[str, Any]:
    again = f" Try again in {times.span(found.retry_after)}." if found.retry_after else ""
    return {
        "name": name,
        "text": found.text,
        "error": f"{ended(found.error)}{again}" if found.error else "",
        "waits": found.seconds is None and not found.error,
        "waits_for": ended(f"It still waits: {found.waits_for}" if found.waits_for else "It still waits"),
        "batch_id": found.batch_id,
        "facts": _facts(found, models, ask),
    }


def _facts(found: Outcome, models: Catalogue, ask: Ask) -> list[tuple[str, str]]:
    """What is known of it. A refused request has used nothing, and no answer came."""
    facts = [("First token", times.span(found.first_token))] if found.first_token is not None else []
    if found.seconds is not None and not found.error:
        facts.append(("Answered in", times.span(found.seconds)))
    if found.prompt:
        model = models.resolve(ask.model)
        price = TokenPrice.of(model.price, ask.model) if model and model.price else None
        cost = price and money.shown(money.cost(found.prompt, found.cached, found.output, price), price.currency)
        facts.append(("Tokens", f"{text.count(found.prompt)} in, {text.count(found.output)} out"))
        facts.append(("Cost", cost or "no price"))
    return facts
