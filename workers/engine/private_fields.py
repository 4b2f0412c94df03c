"""Fields of the engines' APIs that callers may not set, because they belong to the operator.

They are from the chat and completion requests of vLLM 0.32, SGLang 0.5.23 and TensorRT-LLM. Only Slackwater sets `priority`
and `cache_salt`. The gateway relays no header of a caller to an engine; the door of an engine removes those of
`ENGINE_PRIVATE_HEADERS`.
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
        # SGLang: identity, placement, code and other people's prompts
        "rid",
        "extra_key",
        "input_ids",
        "session_params",
        "lora_path",
        "custom_logit_processor",
        "custom_params",
        "custom_labels",
        "watermark",
        "bootstrap_host",
        "bootstrap_port",
        "bootstrap_room",
        "routed_dp_rank",
        "disagg_prefill_dp_rank",
        "return_hidden_states",
        "return_routed_experts",
        "return_meta_info",
        "return_input_ids_in_sglext",
        "return_output_ids_in_sglext",
        # TensorRT-LLM
        "prompt_token_ids",
        "prompt_token_ids_b64",
        "lora_request",
        "disaggregated_params",
        "conversation_params",
        "agent_hierarchy",
        "return_context_logits",
    }
)

# Fields of a field. vLLM's `/inference/v1/generate` takes whole sampling parameters, and a KV connector reads those here.
ENGINE_PRIVATE_INSIDE = ("sampling_params", frozenset({"extra_args"}))

# Headers that set the same. vLLM 0.32 prefers the priority of the header to that of the body.
PRIORITY_HEADER = b"x-vllm-priority"
ENGINE_PRIVATE_HEADERS = frozenset({PRIORITY_HEADER, b"x-data-parallel-rank"})
