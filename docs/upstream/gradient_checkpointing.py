"""TRL 1.16.0: gradient checkpointing stays off after an error while generating.

`unwrap_model_for_generation` switches it on again at its end, which an exception skips. An evaluation that is
interrupted leaves the training without it: the next step may run out of memory.

Expected:
    gradient checkpointing is on again: True

Printed:
    gradient checkpointing is on again: False
"""

from accelerate import Accelerator
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl.models import unwrap_model_for_generation

sizes = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=8, num_key_value_heads=1, **sizes))
model.gradient_checkpointing_enable()
accelerator = Accelerator(cpu=True)
try:
    with unwrap_model_for_generation(accelerator.prepare(model), accelerator):
        raise KeyboardInterrupt
except KeyboardInterrupt:
    pass
print("gradient checkpointing is on again:", model.is_gradient_checkpointing)
