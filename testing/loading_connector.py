"""A KV connector that has the prompt of every request named `remote…`. Its loads take as long as a test says."""

from typing import Any

from vllm.distributed.kv_transfer.kv_connector.v1.base import KVConnectorBase_V1, KVConnectorMetadata


class LoadingConnector(KVConnectorBase_V1):
    """The scheduler's side. There is no worker: a test reports the finished loads itself."""

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int, bool]:
        """All of the prompt but its last token, loaded asynchronously, the first time that it is asked for."""
        if not request.request_id.startswith("remote") or request.num_preemptions:
            return 0, False
        return request.num_prompt_tokens - 1 - num_computed_tokens, True

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """Nothing to note."""

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """Nothing to send."""
        return KVConnectorMetadata()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Of the worker's side."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Of the worker's side."""

    def save_kv_layer(self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any) -> None:
        """Of the worker's side."""

    def wait_for_save(self) -> None:
        """Of the worker's side."""
