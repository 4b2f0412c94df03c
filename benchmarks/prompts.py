"""Prompts made of a few common words."""

WORDS = (
    "river stone window garden paper bridge orange winter music engine cloud table letter forest copper harbour".split()
)


def numbered_prompt(number: int, words: int) -> str:
    """A prompt of `words` words after its number. Prompts with different numbers share no prefix."""
    return f"{number} " + " ".join(WORDS[(number * 7 + k * (number % 5 + 1)) % len(WORDS)] for k in range(words))
