"""Fields of vLLM's API that callers may not set, because they belong to the operator.

They are from vLLM 0.32's chat and completion requests. Only Slackwater sets `priority` and `cache_salt`. No header of a
caller is relayed to an engine.
"""

ENGINE_PRIVATE_FIELDS = frozenset(
    {
        # scheduling and identity
        "priority",
        "request_id",
        "data_parallel_rank",
        # caches, and where their blocks come from or go to
        "cache_salt",
        "kv_transfer_params",
        "ec_transfer_params",
        # extensions of the engine, and code run inside it: a caller's chat template is a Jinja program
        "vllm_xargs",
        "chat_template",
        "mm_processor_kwargs",
        "media_io_kwargs",
        # tensors deserialised by the engine
        "prompt_embeds",
        # the engine's internals in the answer
        "return_tokens_as_token_ids",
        "return_token_offsets",
        "return_prompt_text",
        "return_mm_kwargs",
        "mm_payload",
        "routed_experts_prompt_start",
        "stream_interval",
    }
)
