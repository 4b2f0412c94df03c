"""Text for the terminal."""

from rich.text import Text


def plain(value: object) -> Text:
    """What others wrote, as it is: no markup, nothing cut off, and without what would steer the terminal."""
    shown = (char if char.isprintable() or char == "\n" else "\N{REPLACEMENT CHARACTER}" for char in str(value))
    return Text("".join(shown), overflow="fold")
