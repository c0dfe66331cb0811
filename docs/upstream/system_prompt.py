"""lmms-eval 0.7.3: a system prompt does not reach models that take messages.

The class stores `system_prompt`. Its `generate_until` for messages does not read it.

Expected:
    the prompt has the system prompt: True

Printed:
    the prompt has the system prompt: False
"""

import os

from lmms_eval.api.instance import Instance
from lmms_eval.models.chat.qwen2_5_vl import Qwen2_5_VL

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")
model = Qwen2_5_VL(MODEL, device="cpu", device_map="cpu", system_prompt="Answer in one word.")
model.task_dict = {"mine": {"test": [{}]}}
template = model.processor.apply_chat_template


def shown(messages, **named):
    print("the prompt has the system prompt:", "one word" in template(messages, **named)[0])
    raise SystemExit


model.processor.apply_chat_template = shown
messages = [{"role": "user", "content": [{"type": "text", "text": "What is 1 + 1?"}]}]
arguments = ("", lambda row: messages, {"max_new_tokens": 1}, 0, "mine", "test")
request = Instance("generate_until", arguments, 0, metadata={"task": "mine", "doc_id": 0, "repeats": 1})
model.generate_until([request])
