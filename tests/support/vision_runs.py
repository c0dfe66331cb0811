"""Short real runs on pictures: their gradients, and how many images the processor and the vision tower see."""

from contextlib import contextmanager

from tests.support.runs import SMALL_RUN

SIZES = ((56, 56), (84, 56), (56, 112))


def coloured(number):
    """A picture of one of three sizes."""
    import numpy as np
    from PIL import Image

    width, height = SIZES[number % 3]
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8))


def picture_rows(images_of_row=lambda row: [coloured(row)], count=12):
    import datasets

    rows = [
        {"prompt": [{"role": "user", "content": f"What is {i}?"}], "images": images_of_row(i), "id": f"row-{i}"}
        for i in range(count)
    ]
    return datasets.Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


def is_even(completions, **kwargs):
    """Whether the answer has an even number of letters."""
    return [1.0 - len(completion[0]["content"]) % 2 for completion in completions]


class Counts:
    """Images that the processor and the vision tower see."""

    def __init__(self):
        self.processed = self.encoded = 0

    def watch_tower(self, trainer):
        def count(module, positional, named):
            self.encoded += len(named["grid_thw"])

        for name, module in trainer.model.named_modules():
            if name.endswith(".visual"):
                module.register_forward_pre_hook(count, with_kwargs=True)

    @contextmanager
    def processor(self):
        from transformers import Qwen2VLImageProcessor
        from transformers.image_utils import make_flat_list_of_images

        preprocess = Qwen2VLImageProcessor.preprocess

        def counting(processor, images, *positional, **named):
            self.processed += len(make_flat_list_of_images(images))
            return preprocess(processor, images, *positional, **named)

        Qwen2VLImageProcessor.preprocess = counting
        try:
            yield
        finally:
            Qwen2VLImageProcessor.preprocess = preprocess


def gradients_kept():
    """A callback whose `found` has the gradient of each optimiser step, as one vector."""
    import torch
    from transformers import TrainerCallback

    class Gradients(TrainerCallback):
        found = None

        def on_pre_optimizer_step(self, args, state, control, model=None, **kwargs):
            parts = [p.grad.flatten().double() for p in model.parameters() if p.grad is not None]
            self.found = [*(self.found or []), torch.cat(parts)]

    return Gradients()


def images(tower_once, grouped=False):
    """A function that lets a trainer run the tower once an image, or put its completions side by side, or not."""

    def prepare(trainer):
        trainer._images.tower_once, trainer._images.grouped = tower_once, grouped

    return prepare


def play(
    model, folder, *, rows=None, reward=is_even, resume=None, prepare=lambda trainer: None, given=None, **settings
):
    """Train on pictures, and return the trainer, its gradients and the `Counts`. Four micro-batches are a step."""
    from trl_vade import VADEConsoleCallback, VADEGRPOConfig, VADEGRPOTrainer, VADEReportCallback

    base = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "max_steps": 2}
    base |= {"output_dir": str(folder), "vade_down_sampling": "none"}
    args = VADEGRPOConfig(**SMALL_RUN | base | settings)
    counts, gradients = Counts(), gradients_kept()
    with counts.processor():
        trainer = VADEGRPOTrainer(model, is_even, args, rows or picture_rows(), **(given or {}))
        trainer.remove_callback(VADEReportCallback)
        trainer.remove_callback(VADEConsoleCallback)
        trainer.add_callback(gradients)
        counts.watch_tower(trainer)
        prepare(trainer)
        trainer.train(resume_from_checkpoint=resume)
    return trainer, gradients.found, counts
