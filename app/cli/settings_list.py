"""`slackwater settings`: list every setting with its current value."""

from app.cli import tables
from app.cli.options import Json, console
from app.cli.options import settings as configured
from app.cli.text import plain
from app.settings import Settings, masked

_COLUMNS = ("variable", "value", "meaning")


def show(as_json: Json = False) -> None:
    """List every setting with its current value and its meaning."""
    found = described(configured())
    if as_json:
        tables.document(console, found)
    elif not console.is_terminal:
        tables.show(console, _COLUMNS, [tuple(setting.values()) for setting in found])
    else:
        for setting in found:
            tables.sentence(console, f"{setting['variable']}={setting['value']}", "bold")
            tables.lines(console, [(" ", plain(setting["meaning"]))])


def described(settings: Settings) -> list[dict[str, str]]:
    """Every setting as `--json` prints it. Passwords are hidden."""
    return [
        {
            "variable": f"SLACKWATER_{name.upper()}",
            "value": masked(value) if _is_known(settings, name) else "not set",
            "meaning": Settings.model_fields[name].description or "",
        }
        for name, value in settings
    ]


def _is_known(settings: Settings, name: str) -> bool:
    """Whether the value holds. An attached engine says its slots and its model itself, where nobody has set them."""
    left_to_engine = name == "engine_slots" or (name == "engine_model" and bool(settings.attached_to))
    return name in settings.model_fields_set or not left_to_engine
