"""Writes a BERT of two layers without weights (vLLM makes random ones), and a tokenizer of a few words."""

import json
from pathlib import Path

WORDS = ["a", "an", "the", "tide", "cloud", "llama", "orange", "is", "in", "of", "and"]
DIMENSIONS = 64
LONGEST = 64
LAUNCH = """
[models."@cf/test/embedder".launch]
model_path = "{data_dir}/models/tiny-bert"
max_num_seqs = 8
max_num_batched_tokens = 128
flags = ["--dtype", "float32", "--enforce-eager", "--runner", "pooling", "--load-format", "dummy",
         "--pooler-config", '{"seq_pooling_type": "MEAN"}']
env = { VLLM_CPU_KVCACHE_SPACE = "1" }
"""
_CONFIG = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "hidden_size": DIMENSIONS,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "max_position_embeddings": LONGEST,
    "type_vocab_size": 2,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
    "torch_dtype": "float32",
}


def write(folder: Path) -> None:
    """Everything vLLM reads from a model's folder, weights aside."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]")
    fast.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(_CONFIG | {"vocab_size": len(vocabulary)}))
