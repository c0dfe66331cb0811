"""What a vLLM worker needs on a CPU to take new weights: named to the server by `--worker-extension-cls`."""

import sys

import torch


def keep_linear_weights() -> None:
    """Let linear layers keep their weights: the CPU backend packs them, and drops the parameters that a sync sets."""
    import vllm.model_executor.layers.utils as layers

    def keep(layer, remove_weight=False):
        layer.cpu_linear = torch.nn.functional.linear

    replaced = layers.dispatch_cpu_unquantized_gemm
    for module in [each for name, each in sys.modules.items() if name.startswith("vllm")]:
        if getattr(module, "dispatch_cpu_unquantized_gemm", None) is replaced:
            module.dispatch_cpu_unquantized_gemm = keep


class FileSync:
    """Methods that vLLM adds to its worker."""

    def load_file(self, path: str) -> None:
        """Load weights as vLLM's own NCCL engine does once it has received them."""
        from safetensors.torch import load_file

        self.model_runner.model.load_weights(load_file(path).items())


keep_linear_weights()
