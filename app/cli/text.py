"""Makes text from other systems safe for the terminal."""

from rich.text import Text


def plain(value: object) -> Text:
    """The value as text without markup. Control characters are replaced, so that they cannot change the terminal."""
    shown = (char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in str(value))
    return Text("".join(shown), overflow="fold")
