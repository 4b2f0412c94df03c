"""The problems of the installation, as `GET /status` and `slackwater status` have them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.console.views import signs, text
from app.console.views.batches import few
from app.console.views.signs import Sign

Problems = Sequence[Mapping[str, str]]


def shown(problems: Problems) -> list[dict[str, Any]]:
    """Each problem with its sign, of which engine it is, and what to do."""
    return [
        {
            "sign": sign([each]),
            "words": text.inert(f"{each['engine']}: {each['message']}" if "engine" in each else each["message"], 600)[
                0
            ],
            "remedy": text.inert(each["remedy"], 600)[0],
        }
        for each in problems
    ]


def title(problems: Problems) -> str:
    """How many there are, and whether they are only warnings."""
    word = "warning" if all(each["severity"] == "warning" for each in problems) else "problem"
    return f"{text.sentence(few(len(problems)))} {word}{'' if len(problems) == 1 else 's'}"


def sign(problems: Problems) -> Sign:
    """The sign of the worst of them."""
    return signs.BROKEN if any(each["severity"] == "error" for each in problems) else signs.LOOK
