"""Reads the action `sensitive` of a rule: one mode for all kinds, or a table. Pure.

sensitive = "tokenize"
sensitive = { default = "tokenize", card = "refuse", ssn = "off", patterns = { patient = 'P-[0-9]{6}' } }
"""

from collections.abc import Mapping
from typing import Any, get_args

from app.detection import detectors
from app.detection.detectors import BUILT_IN_KINDS, LITERAL, NAME, DetectorsDown, PatternError
from app.policy.rules import Mode, Sensitive

_FIELD, _DEFAULT, _PATTERNS = "sensitive", "default", "patterns"
_MOST_PATTERNS = 50
_MODES = get_args(Mode)
Problems = list[tuple[str, str]]  # field and message


def read(given: Any, *, lenient: bool = False) -> tuple[Sensitive, Problems]:
    """The action, which is only of use without problems. `lenient`: patterns are not compiled; another process has done it."""
    if isinstance(given, str) and given in _MODES:
        given = {_DEFAULT: given}
    if not isinstance(given, Mapping):
        form = f"must be one of {', '.join(_MODES)}, or a table of modes by kind, not {str(given)[:40]!r}"
        return Sensitive("off", {}, {}), [(_FIELD, form)]
    problems: Problems = []
    patterns = _patterns(given.get(_PATTERNS, {}), problems, lenient=lenient)
    kinds = (*BUILT_IN_KINDS, *patterns)
    modes: dict[str, Mode] = {}
    for name, mode in given.items():
        if name == _PATTERNS:
            continue
        if name != _DEFAULT and name not in kinds:
            problems.append((f"{_FIELD}.{name}", f"is no kind; choose from {', '.join(kinds)}, or name a pattern so"))
        elif mode not in _MODES:
            problems.append((f"{_FIELD}.{name}", f"must be one of {', '.join(_MODES)}, not {str(mode)[:40]!r}"))
        else:
            modes[name] = mode
    return Sensitive(modes.pop(_DEFAULT, "off"), modes, patterns), problems


def _patterns(given: Any, problems: Problems, *, lenient: bool) -> dict[str, str]:
    field = f"{_FIELD}.{_PATTERNS}"
    if not isinstance(given, Mapping) or len(given) > _MOST_PATTERNS:
        problems.append((field, f"must be a table of at most {_MOST_PATTERNS} patterns by name"))
        return {}
    found = {}
    for name, pattern in given.items():
        if not NAME.fullmatch(name) or name in (*BUILT_IN_KINDS, LITERAL, _DEFAULT, _PATTERNS):
            problems.append(
                (f"{field}.{name}", "must have a name of 1 to 12 of a-z, 0-9 and _, that no other kind has")
            )
        elif not isinstance(pattern, str):
            problems.append((f"{field}.{name}", "must be a string in RE2's syntax"))
        else:
            found[name] = pattern
            if not lenient:
                _check(f"{field}.{name}", pattern, problems)
    return found


def _check(field: str, pattern: str, problems: Problems) -> None:
    try:
        detectors.check_pattern(pattern)
    except PatternError as error:
        problems.append((field, f"is no pattern of RE2: {error}"))
    except DetectorsDown as error:
        problems.append((field, f"cannot be checked: {error}"))
