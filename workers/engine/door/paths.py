"""What a request at vLLM's server is, by its method and path. Pure. The paths are those of vLLM 0.32."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

# Like vLLM's own key, and the paths that compute although vLLM leaves them open.
_PREFIXES = ("/v1", "/v2", "/inference", "/cohere")
_OPEN_IN_VLLM = frozenset(
    {
        "/invocations",
        "/pooling",
        "/classify",
        "/score",
        "/rerank",
        "/generative_scoring",
        "/tokenize",
        "/detokenize",
    }
)
_OPERATORS = frozenset({"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/inference/v1/abort_requests"})
_LIGHT = ("/tokenize", "/detokenize", "/render", "/derender", "/count_tokens", "/cancel")
_UPLOADS = ("/v1/audio/", "/v1/realtime")


class Kind(Enum):
    """PASS: not about inference, so the door does nothing. OPERATOR: changes the engine. LIGHT: uses no GPU. WORK: computes."""

    PASS = 0
    OPERATOR = 1
    LIGHT = 2
    WORK = 3


def path_of(scope: Mapping[str, Any]) -> str:
    """The path of a request, without the path under which the server is mounted."""
    path: str = scope["path"]
    return path.removeprefix(scope.get("root_path", ""))


def kind_of(method: str, path: str) -> Kind:
    """What the request asks for. A path that vLLM does not have may be any of them."""
    if not (path.startswith(_PREFIXES) or path in _OPEN_IN_VLLM) or method == "OPTIONS":
        return Kind.PASS
    if path in _OPERATORS:
        return Kind.OPERATOR
    if method != "POST" or path.endswith(_LIGHT):
        return Kind.LIGHT
    return Kind.WORK


def is_upload(path: str, content_type: bytes) -> bool:
    """Whether the body is a form with a recording, which cannot set a priority and is passed on as it arrives."""
    return path.startswith(_UPLOADS) and content_type.lower().startswith(b"multipart/")
