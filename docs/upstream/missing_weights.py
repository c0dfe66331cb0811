"""transformers 5.24.0: a checkpoint that lacks weights is loaded with random ones.

An evaluation of such a checkpoint scores a mixture of saved and random weights. The warning is lost in a log.

Expected:
    OSError

Printed:
    loaded without an error; the same weights twice: False
"""

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, Qwen2Config, Qwen2ForCausalLM

sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
Qwen2ForCausalLM(Qwen2Config(vocab_size=8, num_key_value_heads=1, **sizes)).save_pretrained("model")
weights = load_file("model/model.safetensors")
del weights["model.layers.0.mlp.up_proj.weight"]
save_file(weights, "model/model.safetensors", metadata={"format": "pt"})
try:
    first, second = (
        AutoModelForCausalLM.from_pretrained("model").model.layers[0].mlp.up_proj.weight for _ in range(2)
    )
    print("loaded without an error; the same weights twice:", torch.equal(first, second))
except Exception as error:
    print(type(error).__name__)
