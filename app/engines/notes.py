"""What an operator should know about an engine that works: what it does not report, and protection that could be closer. Pure.

Notes are not problems: the status stays `ok`, because each can be a choice. A problem with the same subject replaces its note.
"""

from collections.abc import Sequence

from app.engines.adoption import EngineProblem
from app.engines.dialects import VLLM
from app.engines.page_problems import CODES

_POLICY = EngineProblem(
    "policy_unknown",
    "The engine does not report its scheduling policy. Without priority, batch requests in its queue delay synchronous ones.",
    "Make sure that it runs with --scheduling-policy priority.",
)
_NO_PLUGIN = EngineProblem(
    "no_plugin",
    "Synchronous requests are protected from outside the engine only (L1): our scheduler plug-in is not at work in it.",
    "Install and switch on the plug-in, as docs/attach.md says, if callers wait too long beside batch work.",
)


def of_engine(
    *, mode: str, dialect: str, scheduling_policy: str | None, protection: str, problems: Sequence[str]
) -> list[EngineProblem]:
    """The notes on an engine that is ready. `problems`: the codes of those that it has."""
    if mode != "attached" or dialect != VLLM.name or protection == "inside":
        return []
    found = [_POLICY] if scheduling_policy is None else []
    return found if CODES.intersection(problems) else [*found, _NO_PLUGIN]
