"""vLLM 0.31: an engine loads every safetensors file beside a model.

`save_pretrained` writes no index for a single file. vLLM then takes every `*.safetensors` in the folder for
weights of the model, and fails.

Expected:
    loaded

Printed:
    RuntimeError
"""

import os
import shutil

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import save_file
from vllm import LLM

MODEL = os.environ.get("MODEL", "trl-internal-testing/tiny-Qwen2_5_VLForConditionalGeneration")

if __name__ == "__main__":  # vLLM may start processes
    shutil.copytree(MODEL if os.path.isdir(MODEL) else snapshot_download(MODEL), "model")
    save_file({"counts": torch.zeros(4)}, "model/my_own_numbers.safetensors")
    try:
        LLM("model", max_model_len=128, enforce_eager=True)
        print("loaded")
    except Exception as error:
        print(type(error).__name__)
