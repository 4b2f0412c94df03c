"""A file that was dropped: what its lines are, and what a batch of it would need. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

from app.batches.validation.openai_lines import LineProblem
from app.console.views import text, times
from app.files import ids
from app.files.service import File
from app.quantities import moment

PATH = "/console/batches/new"
MOST_PROBLEMS = 50
WINDOWS = (("24h", "24 hours"), ("1h", "1 hour"), ("6h", "6 hours"), ("7d", "7 days"), ("background", "no deadline"))


def view(file: File, estimate: Mapping[str, Any], now: datetime) -> dict[str, Any]:
    """What the template needs about a stored file and its estimate."""
    problems = file.problems or []
    unfit = int(estimate["unfit_lines"])
    fit = int(estimate["requests"])
    strong, rest = _sentences(file, fit, unfit)
    return {
        "file_id": ids.format_id(file.file_id),
        "filename": text.inert(file.filename, 200)[0],
        "size": text.size(file.bytes),
        "strong": strong,
        "rest": rest,
        "fit": fit,
        "fit_words": text.plural(fit, "request"),
        "unfit": unfit,
        "problems": [_problem(each) for each in problems[:MOST_PROBLEMS]],
        "more_problems": max(0, len(problems) - MOST_PROBLEMS),
        "models": [_model(each, now) for each in estimate["models"]],
        "total": _total(estimate, now),
        "budget": _budget(estimate.get("budget")),
        "windows": WINDOWS,
        "must_be_lenient": bool(unfit) and any(not each.get("alone") for each in problems),
    }


def report(lines: int, problems: Sequence[LineProblem]) -> dict[str, Any]:
    """What a page shows of a file that still arrives: the first problems, in the order of its lines."""
    many = text.plural(len(problems), "line")
    return {
        "words": f"{many} of {lines:,} so far",
        "problems": [_problem(asdict(each)) for each in problems[:MOST_PROBLEMS]],
    }


def _sentences(file: File, fit: int, unfit: int) -> tuple[str, str]:
    lines = text.plural(file.lines, "line")
    if not fit:
        return f"None of its {lines} can run.", "Correct the file and drop it again; each problem names its line."
    if unfit:
        return (
            f"{fit:,} of {lines} can run.",
            f"{text.plural(unfit, 'line')} cannot. Correct the file and drop it again, or queue the rest without them.",
        )
    return f"All {lines} can run.", "Nothing is queued yet."


def _problem(problem: Mapping[str, Any]) -> dict[str, str]:
    message, _ = text.inert(str(problem.get("message", "")), 600)
    line = problem.get("line")
    return {"line": "" if line is None else f"{line:,}", "words": message, "code": str(problem.get("code", ""))}


def _model(part: Mapping[str, Any], now: datetime) -> dict[str, str]:
    return {
        "model": str(part["model"]),
        "requests": text.count(part["requests"]),
        "input": text.count(part["input_tokens"]),
        "output": text.count(part["max_output_tokens"]),
        "cost": text.money(part["max_cost"], part["currency"]),
        "ends": _end(part["eta"], now),
        "engines": text.plural(int(part["engines"]), "engine"),
    }


def _end(eta: float | None, now: datetime) -> str:
    """The end of the minute, since it is done by then."""
    return times.clock_time(datetime.fromtimestamp(60 * math.ceil(eta / 60), UTC), now) if eta else "not known"


def _total(estimate: Mapping[str, Any], now: datetime) -> list[dict[str, str]]:
    models: Sequence[Mapping[str, Any]] = estimate["models"]
    costs = [each["max_cost"] for each in models]
    currencies = {each["currency"] for each in models}
    known = costs and None not in costs and len(currencies) == 1
    cost = text.money(sum(costs), currencies.pop()) if known else "–"
    tokens_in, tokens_out = text.si(estimate["input_tokens"]), text.si(estimate["max_output_tokens"])
    eta = estimate["eta"]
    span = times.span(eta - now.timestamp()) if eta else str(estimate["no_eta"] or "it has no requests")
    return [
        {
            "name": "Requests",
            "value": text.count(estimate["requests"]),
            "unit": "",
            "words": text.plural(len(models), "model"),
        },
        {"name": "Tokens in", "value": tokens_in[0], "unit": tokens_in[1], "words": "estimated"},
        {
            "name": "Tokens out, at most",
            "value": tokens_out[0],
            "unit": tokens_out[1],
            "words": "as the requests limit them",
        },
        {
            "name": "Cost, at most",
            "value": cost,
            "unit": "",
            "words": "with a token for each byte, and the longest answers" if known else "a model has no price",
        },
        {"name": "Done by", "value": _end(eta, now), "unit": "", "words": f"in {span}" if eta else span},
    ]


def _budget(ending: Mapping[str, Any] | None) -> str:
    if not ending:
        return ""
    renewed = ending.get("renewed_at")
    until = f" until it is renewed on {moment(datetime.fromtimestamp(renewed, UTC))}" if renewed else ""
    if ending["refused"]:
        return f"Budget {ending['name']} refuses new batches{until}."
    return (
        f"Budget {ending['name']} is enough for about {ending['ends_near_request']:,} requests; the rest waits{until}."
    )
