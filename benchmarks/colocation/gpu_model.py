"""A model without weights, made on the spot: configuration, tokenizer and catalogue. It needs no hub.

Each word of a benchmark prompt and each digit is one token, and every token of the model has a text.
"""

import json
from pathlib import Path

from benchmarks.colocation.gpu_sizes import GpuSize
from benchmarks.prompts import WORDS

MODEL = "dummy-llama"
_SPECIAL = ("<unk>", "<s>", "</s>")
_TEMPLATE = "{% for message in messages %}{{ message['content'] }}{% endfor %}"


def make(folder: Path, size: GpuSize) -> Path:
    """Write the model's folder and a catalogue with `MODEL`. Returns the catalogue."""
    model = folder / MODEL
    model.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "max_position_embeddings": max(8192, size.context),
        "rms_norm_eps": 1e-5,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "torch_dtype": "bfloat16",
        **size.shape,
    }
    (model / "config.json").write_text(json.dumps(config, indent=1))
    _tokenizer(model, size.shape["vocab_size"], size.context)
    catalogue = folder / "models.toml"
    catalogue.write_text(_catalogue(model, size))
    return catalogue


def vocabulary(count: int) -> dict[str, int]:
    """`count` words and their ids."""
    words = [*_SPECIAL, *"0123456789", *sorted(WORDS)]
    return {word: number for number, word in enumerate([*words, *(f"t{n}" for n in range(len(words), count))])}


def _tokenizer(folder: Path, count: int, context: int) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel(vocabulary(count), unk_token=_SPECIAL[0]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=True)]
    )
    tokenizer.add_special_tokens(list(_SPECIAL))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "unk_token": _SPECIAL[0],
        "bos_token": _SPECIAL[1],
        "eos_token": _SPECIAL[2],
        "model_max_length": context,
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=1))


def _catalogue(model: Path, size: GpuSize) -> str:
    flags = ["--load-format", "dummy", *size.flags]
    env = {"HF_HUB_OFFLINE": "1", **size.env}
    pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
    return f"""[models."{MODEL}"]
context_window = {size.context}
capabilities = ["async_queue"]

[models."{MODEL}".launch]
model_path = {json.dumps(str(model.resolve()))}
max_num_seqs = {size.slots}
max_num_batched_tokens = {size.step_tokens}
flags = {json.dumps(flags)}
env = {{ {pairs} }}
"""
