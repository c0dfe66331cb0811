"""Rows with images, on a real Qwen2.5-VL of the testbed's size."""

import datasets
import numpy as np
from datasets import Dataset
from PIL import Image

from tests.support.as_stock import Situation
from tests.support.rows import text_of
from tests.support.runs import odd_length

MODEL = {"model": "vision_model_path"}


def picture(number):
    return Image.fromarray(np.full((56, 56, 3), 20 * number, dtype=np.uint8))


def asked(number):
    return [{"role": "user", "content": f"What is {number}?"}]


def one_image():
    rows = [{"prompt": asked(i), "image": picture(i)} for i in range(12)]
    return Dataset.from_list(rows).cast_column("image", datasets.Image())


def lists_of_images():
    rows = [{"prompt": asked(i), "images": [picture(i)] * (1 + i % 2)} for i in range(12)]
    return Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


def opened_by_a_transform():
    def open_them(batch):
        return {"prompt": batch["prompt"], "image": [picture(number) for number in batch["number"]]}

    return Dataset.from_list([{"prompt": asked(i), "number": i} for i in range(12)]).with_transform(open_them)


def blocks_in_the_content():
    def into_blocks(batch):
        blocks = [
            [{"type": "image", "image": picture(number)}, {"type": "text", "text": prompt[0]["content"]}]
            for prompt, number in zip(batch["prompt"], batch["number"], strict=True)
        ]
        return {"prompt": [[{"role": "user", "content": content}] for content in blocks]}

    return Dataset.from_list([{"prompt": asked(i), "number": i} for i in range(12)]).with_transform(into_blocks)


def given(side):
    def reward(completions, **columns):
        side.seen.append([text_of(each) for each in completions])
        return odd_length(completions)

    return {"reward_funcs": reward}


def drawing(side):
    def reward(completions, image, **columns):
        for number, each in enumerate(image):
            assert not (np.asarray(each) == (1, 2, 3)).all(-1).any()
            each.load()[number, 0] = (1, 2, 3)
        return given(side)["reward_funcs"](completions)

    return {"reward_funcs": reward}


def with_lora(side):
    from peft import LoraConfig

    return given(side) | {"peft_config": LoraConfig(r=2, target_modules=["q_proj", "v_proj"])}


def evaluated(side):
    return given(side) | {"eval_dataset": one_image().select(range(4))}


VISION = {
    "an image": Situation({}, given, one_image, **MODEL),
    "lists of images": Situation({}, given, lists_of_images, **MODEL),
    "images that a transform opens": Situation({}, given, opened_by_a_transform, **MODEL),
    "images in the content": Situation({}, given, blocks_in_the_content, **MODEL),
    "a reward that draws into the pictures": Situation({}, drawing, one_image, **MODEL),
    "LoRA on images": Situation({}, with_lora, one_image, **MODEL),
    "images evaluated": Situation(
        {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8},
        evaluated,
        one_image,
        logs="eval_reward",
        **MODEL,
    ),
    "images in the table of completions": Situation({"log_completions": True}, given, one_image, **MODEL),
}
