"""On PYTHONPATH where torch is a CPU build and torchvision a CUDA one, whose compiled operators then do not load.

PyPI has only that torchvision. Its import asks for the schemas of two operators, which nothing here calls.
"""

import importlib.util

if importlib.util.find_spec("torch"):
    import torch

    if torch.version.cuda is None:
        _keep = torch.library.Library("torchvision", "DEF")
        _keep.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _keep.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
