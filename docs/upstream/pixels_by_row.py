"""TRL 1.16.0: pixels of Idefics3 are given to other rows.

An entry of Idefics3's `pixel_values` holds all images of a row. If there are as many images as entries, TRL
takes each entry for an image. It then slices the entries by the images of each row.

Expected:
    1 row, 1 entries of pixel_values
    1 row, 1 entries of pixel_values
    1 row, 1 entries of pixel_values
    1 row, 1 entries of pixel_values

Printed:
    1 row, 2 entries of pixel_values
    1 row, 1 entries of pixel_values
    1 row, 0 entries of pixel_values
    1 row, 1 entries of pixel_values
"""

from types import SimpleNamespace

import torch
from accelerate import Accelerator
from trl import GRPOTrainer


class Model:
    def __call__(self, input_ids, pixel_values, **inputs):
        print(len(input_ids), "row,", len(pixel_values), "entries of pixel_values")
        return SimpleNamespace(log_probs=torch.zeros(input_ids.shape))


# Idefics3: an entry of pixel_values holds all images of a row. Here are rows of 2, 1, 0 and 1 images.
GRPOTrainer._get_per_token_logps_and_entropies.__wrapped__(
    SimpleNamespace(accelerator=Accelerator(cpu=True)),
    Model(),
    input_ids=torch.ones(4, 8, dtype=torch.long),
    attention_mask=torch.ones(4, 8, dtype=torch.long),
    logits_to_keep=4,
    batch_size=1,
    pixel_values=torch.zeros(4, 2, 3, 4, 4),
    pixel_attention_mask=torch.ones(4, 2, 4, 4),
    num_images=[2, 1, 0, 1],
)
