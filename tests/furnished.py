"""The folder that README and handbook speak of: `model`, `gpt2` and `vit`, all tiny, and a text."""

import json
from pathlib import Path


def furnish(folder):
    """Write the checkpoints and book.txt into ``folder``."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, ViTConfig, ViTModel

    from milepost.checkpoints.migration.folder import byte_tokenizer

    torch.manual_seed(0)
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "vocab_size": 256,
    }
    LlamaForCausalLM(LlamaConfig(**sizes, initializer_range=0.3)).save_pretrained(folder / "model")
    small = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_attention_heads": 2,
        "num_hidden_layers": 1,
        "image_size": 32,
        "patch_size": 8,
    }
    ViTModel(ViTConfig(**small)).save_pretrained(folder / "vit")
    tiny = {
        "n_embd": 32,
        "n_head": 2,
        "n_layer": 1,
        "n_positions": 32,
        "vocab_size": 256,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    GPT2LMHeadModel(GPT2Config(**tiny)).save_pretrained(folder / "gpt2")
    for name in ("gpt2", "model"):
        (folder / name / "tokenizer.json").write_text(json.dumps(byte_tokenizer()), encoding="utf-8")
        (folder / name / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": chr(256)}), encoding="utf-8"
        )
    sources = sorted((Path(__file__).parent.parent / "milepost").rglob("*.py"))[:40]
    (folder / "book.txt").write_text("\n".join(path.read_text(encoding="utf-8") for path in sources))
    return folder
