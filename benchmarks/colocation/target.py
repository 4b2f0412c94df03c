"""Where the callers of a benchmark send their requests."""

from dataclasses import dataclass

CHAT, COMPLETIONS = "chat/completions", "completions"


@dataclass(frozen=True, slots=True)
class Target:
    """A route of an OpenAI server. `base` ends in `/v1`; `model` is the name there; without a `key`, none is sent."""

    base: str
    route: str
    model: str
    key: str = ""

    @property
    def url(self) -> str:
        """The address of the route."""
        return f"{self.base}/{self.route}"

    @property
    def headers(self) -> dict[str, str]:
        """The headers of each request."""
        return {"authorization": f"Bearer {self.key}"} if self.key else {}
