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
            "value": masked(value),
            "meaning": Settings.model_fields[name].description or "",
        }
        for name, value in settings
    ]
