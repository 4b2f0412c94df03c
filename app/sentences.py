"""Where messages become sentences. Pure: the one place that puts a full stop behind a text that was written elsewhere."""

_ENDS = ("…", "!", "?")


def bare(text: str) -> str:
    """The text without its full stop, to be gone on with."""
    return text.rstrip(". ")


def ended(text: str) -> str:
    """The text as a sentence, with one mark at its end: its own, else a full stop. Empty: stays so."""
    stem = bare(text)
    return stem if not stem or stem.endswith(_ENDS) else f"{stem}."
