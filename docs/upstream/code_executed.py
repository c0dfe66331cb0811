"""lmms-eval 0.7.3: vLLM executes the code of a model's repository unasked.

vLLM and transformers ask for this setting, because the code of a repository can do anything.

Expected:
    trust_remote_code, where nobody set it: False

Printed:
    trust_remote_code, where nobody set it: True
"""

import inspect

from lmms_eval.models.chat.vllm import VLLM

print("trust_remote_code, where nobody set it:", inspect.signature(VLLM).parameters["trust_remote_code"].default)
