"""lmms-eval 0.7.3: settings of a generation are not passed on to transformers.

The class does not pass the repetition penalty on. That of the model's `generation_config.json` is taken, 1.05
for Qwen2.5-VL. With vLLM the setting is passed on, so the two give other answers.

Expected:
    repetition penalty: 1.0

Printed:
    repetition penalty: 1.05
"""

import os
import tempfile

from lmms_eval.api.instance import Instance
from lmms_eval.models.chat.qwen2_5_vl import Qwen2_5_VL
from transformers import AutoProcessor, GenerationConfig, Qwen2_5_VLForConditionalGeneration

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")
with tempfile.TemporaryDirectory() as folder:
    saved = Qwen2_5_VLForConditionalGeneration.from_pretrained(MODEL)
    ends = {name: getattr(saved.generation_config, name) for name in ("eos_token_id", "pad_token_id")}
    saved.generation_config = GenerationConfig(**ends, repetition_penalty=1.05)  # as Qwen2.5-VL has it
    saved.save_pretrained(folder)
    AutoProcessor.from_pretrained(MODEL).save_pretrained(folder)
    model = Qwen2_5_VL(folder, device="cpu", device_map="cpu")
model.task_dict = {"mine": {"test": [{}]}}
generate = model.model.generate


def shown(**named):
    config = model.model.generation_config
    print("repetition penalty:", named.get("repetition_penalty", config.repetition_penalty))
    return generate(**named)


model.model.generate = shown
messages = [{"role": "user", "content": [{"type": "text", "text": "What is 1 + 1?"}]}]
settings = {"max_new_tokens": 1, "repetition_penalty": 1.0}
arguments = ("", lambda row: messages, settings, 0, "mine", "test")
request = Instance("generate_until", arguments, 0, metadata={"task": "mine", "doc_id": 0, "repeats": 1})
model.generate_until([request])
