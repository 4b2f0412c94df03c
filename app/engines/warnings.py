"""What is not known about an engine that works, and protection that could be closer. Pure.

Each can be a choice, so it is a warning. An error with the same subject replaces it.
"""

from collections.abc import Iterable, Mapping, Sequence

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


def reported(
    problems: Iterable[Mapping[str, str]], *, alive: bool, free: bool
) -> tuple[list[EngineProblem], list[EngineProblem]]:
    """The problems of an engine that a worker has reported: the errors, and those that only say what is not known. Those that a
    silent worker reported are not known to last. `alive`, `free`: as in `told_state.Reported`.
    """
    found = [EngineProblem(**each) for each in problems] if alive or free else []
    return [each for each in found if each.code != SLOTS], [each for each in found if each.code == SLOTS]


def of_engine(
    *, mode: str, dialect: str, scheduling_policy: str | None, protection: str, errors: Sequence[str]
) -> list[EngineProblem]:
    """The warnings about an engine that is ready. `errors`: the codes of those that it has."""
    if mode != "attached" or dialect != VLLM.name or protection == "inside":
        return []
    found = [_POLICY] if scheduling_policy is None else []
    return found if CODES.intersection(errors) else [*found, _NO_PLUGIN]
