"""TRL 1.16.0: a micro-batch without an image gets empty pixels.

Other rows of the generation batch have images. Qwen2.5-VL refuses the empty tensor with "expected a non-empty
list of Tensors". Idefics3 fails with "cannot reshape tensor of 0 elements".

Expected:
    False

Printed:
    (0, 1176)
"""

import torch
from trl.trainer.utils import split_pixel_values_by_grid, split_tensor_dict, unsplit_pixel_values_by_grid

batch = {  # a row with an image of 4 x 4 patches, and a row without
    "prompt_ids": torch.zeros(2, 8, dtype=torch.long),
    "pixel_values": torch.zeros(16, 1176),
    "image_grid_thw": torch.tensor([[1, 4, 4]]),
    "num_images": [1, 0],
}
parts = split_tensor_dict(split_pixel_values_by_grid(batch), 2)
without = unsplit_pixel_values_by_grid(parts[1])
print("pixel_values" in without and tuple(without["pixel_values"].shape))
