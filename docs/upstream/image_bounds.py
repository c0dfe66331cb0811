"""lmms-eval 0.7.3: images are enlarged to bounds that are not the model's.

The class loads the processor with 256 x 28 x 28 and 1605632 pixels. The model of this script was trained on
pictures of 56 x 56.

Expected:
    patches of a picture of 56 x 56, the model - [1, 4, 4]
    patches of a picture of 56 x 56, lmms-eval - [1, 4, 4]

Printed:
    patches of a picture of 56 x 56, the model - [1, 4, 4]
    patches of a picture of 56 x 56, lmms-eval - [1, 32, 32]
"""

import os

from lmms_eval.models.chat.qwen2_5_vl import Qwen2_5_VL
from PIL import Image
from transformers import AutoProcessor

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")
picture = Image.new("RGB", (56, 56))
for whose, processor in (
    ("the model", AutoProcessor.from_pretrained(MODEL)),
    ("lmms-eval", Qwen2_5_VL(MODEL, device="cpu", device_map="cpu").processor),
):
    grid = processor.image_processor(picture, return_tensors="pt")["image_grid_thw"][0]
    print("patches of a picture of 56 x 56,", whose, "-", grid.tolist())
