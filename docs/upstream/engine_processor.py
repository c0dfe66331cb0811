"""TRL 1.16.0, vLLM 0.31: a colocated engine does not get the trainer's processor.

The engine loads the processor from the model's folder. With another picture size the answers belong to other
images than those trained on.

Expected:
    settings of the images in the engine: {'size': {'longest_edge': 12544, 'shortest_edge': 784}}

Printed:
    settings of the images in the engine: None
"""

import os

from datasets import Dataset
from transformers import AutoProcessor
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
    processor = AutoProcessor.from_pretrained(MODEL, min_pixels=784, max_pixels=12544)
    reward = lambda completions, **kwargs: [0.0] * len(completions)  # noqa: E731
    trainer = GRPOTrainer(MODEL, reward, args, rows, processing_class=processor)
    print(
        "settings of the images in the engine:",
        trainer.vllm_generation.llm.llm_engine.model_config.multimodal_config.mm_processor_kwargs,
    )
