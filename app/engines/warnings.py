"""What is not known about an engine that works, and protection that could be closer. Pure.

Each can be a choice, so it is a warning. An error with the same subject replaces it.
"""

from collections.abc import Sequence

from app.engines.adoption import SLOTS, EngineProblem
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


def is_warning(code: str) -> bool:
    """Whether a problem that a worker reports only says what is not known of its engine; else it is an error."""
    return code == SLOTS


def of_engine(
    *, mode: str, dialect: str, scheduling_policy: str | None, protection: str, errors: Sequence[str]
) -> list[EngineProblem]:
    """The warnings about an engine that is ready. `errors`: the codes of those that it has."""
    if mode != "attached" or dialect != VLLM.name or protection == "inside":
        return []
    found = [_POLICY] if scheduling_policy is None else []
    return found if CODES.intersection(errors) else [*found, _NO_PLUGIN]
