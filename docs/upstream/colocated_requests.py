"""TRL 1.16.0, vLLM 0.31: a colocated engine expands image tokens twice, and gets each prompt for each completion.

The ids that TRL sends have the tokens of an image already expanded. vLLM expands each of them again. The
answers belong to another prompt than the one trained on. Each prompt is sent, and its image processed, once for
each completion.

Expected:
    image tokens of a request with one image: 1
    requests for one prompt with four completions: 1

Printed:
    image tokens of a request with one image: 4
    requests for one prompt with four completions: 4
"""

import os

from datasets import Dataset
from PIL import Image
from trl import GRPOConfig, GRPOTrainer

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")


def reward(completions, **kwargs):
    return [float(number % 2) for number in range(len(completions))]


if __name__ == "__main__":  # vLLM may start processes
    row = {"prompt": [{"role": "user", "content": "What is it?"}], "images": [Image.new("RGB", (112, 112))]}
    args = GRPOConfig(
        "out",
        per_device_train_batch_size=4,
        num_generations=4,
        max_completion_length=4,
        max_steps=1,
        logging_steps=1,
        use_vllm=True,
        vllm_mode="colocate",
        vllm_max_model_length=128,
        report_to="none",
        use_cpu=True,
        bf16=False,
    )
    trainer = GRPOTrainer(MODEL, reward, args, Dataset.from_list([row] * 4))
    generate, sent = trainer.vllm_generation.llm.generate, []
    trainer.vllm_generation.llm.generate = lambda prompts, **options: (
        sent.extend(prompts) or generate(prompts, **options)
    )
    trainer.train()
    image_token = trainer.model.config.image_token_id
    print("image tokens of a request with one image:", sent[0]["prompt_token_ids"].count(image_token))
    print("requests for one prompt with four completions:", len(sent))
