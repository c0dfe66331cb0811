"""Pictures, rows with them, and what a run makes of them: the first gradients, and which parts work once."""

import datasets
import numpy as np
import torch
from PIL import Image
from transformers import TrainerCallback

SIZES = ((40, 40), (90, 50), (30, 60), (70, 70))  # width, height


def picture(number):
    """Noise: no two pictures, and no two tiles of one, are the same."""
    width, height = SIZES[number % len(SIZES)]
    return Image.fromarray(np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8))


def picture_rows(count=12, first=0, pictures=(1,), number=lambda place: place):
    """Rows with as many pictures as `pictures` says, over and over; the pictures' numbers begin at `first`."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"say a digit above {row % 10}"}],
            "limit": row % 10,
            "images": [picture(first + number(row) + count * i) for i in range(pictures[row % len(pictures)])],
        }
        for row in range(count)
    ]
    return datasets.Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


class FirstGradients(TrainerCallback):
    """Keeps the gradients of the first optimiser step, by the names of their parameters."""

    found: dict[str, torch.Tensor] | None = None

    def on_pre_optimizer_step(self, args, state, control, model, **kwargs):
        if self.found is None:
            named = model.named_parameters()
            self.found = {name: value.grad.clone() for name, value in named if value.grad is not None}


def assert_same_but_for_rounding(left, right):
    """Compare gradients, by the norm of their difference."""
    assert left.keys() == right.keys()
    difference = torch.stack([(left[name] - right[name]).norm() for name in left]).norm()
    size = torch.stack([gradient.norm() for gradient in right.values()]).norm()
    assert size > 0
    assert difference < 1e-5 * size


def images(tower_once, grouped=False):
    """A function that lets a trainer run the tower once an image, or put its completions side by side, or not."""

    def prepare(trainer):
        trainer._images.tower_once, trainer._images.grouped = tower_once, grouped

    return prepare
