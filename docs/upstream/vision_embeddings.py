"""TRL 1.16.0, vLLM 0.31: new weights leave the vision embeddings of old weights in the engine.

vLLM keeps the embeddings of an image by its hash. An image that comes again is answered by new weights that
look through old ones.

Expected:
    emptied after new weights: ['reset_encoder_cache', 'reset_prefix_cache']

Printed:
    emptied after new weights: ['reset_prefix_cache']
"""

import os

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")

if __name__ == "__main__":  # vLLM may start processes
    args = GRPOConfig(
        "out",
        per_device_train_batch_size=2,
        num_generations=2,
        max_completion_length=4,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_max_model_length=128,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    rows = Dataset.from_list([{"prompt": [{"role": "user", "content": "What is it?"}]}] * 2)
    trainer = GRPOTrainer(MODEL, lambda completions, **kwargs: [0.0] * len(completions), args, rows)
    engine, emptied = trainer.vllm_generation.llm.llm_engine, []
    for name in ("reset_prefix_cache", "reset_encoder_cache"):
        setattr(engine, name, lambda *given, name=name, **named: emptied.append(name))
    trainer.vllm_generation.sync_weights()
    print("emptied after new weights:", sorted(emptied))
