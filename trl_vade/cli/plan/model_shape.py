"""The sizes of a model that memory depends on, from its configuration alone: no weight is loaded or made."""

from dataclasses import dataclass
from typing import Any

import torch
import transformers

from trl_vade.errors import ConfigurationError


@dataclass(frozen=True)
class Tower:
    """A stack of equal transformer blocks."""

    layers: int
    hidden: int
    intermediate: int


@dataclass(frozen=True)
class ModelShape:
    """Sizes of a dense decoder, with or without a vision tower. Parameters are counted once where they are tied."""

    parameters: int
    block_parameters: int  # those inside transformer blocks, which FSDP2 and ZeRO-3 gather block by block
    largest_block: int  # parameters
    text: Tower
    kv_heads: int
    head_dim: int
    vocabulary: int
    dtype: torch.dtype  # the one of the saved weights, float32 where the configuration names none
    vision: Tower | None
    patches_per_token: int  # of the vision tower, merged into one image token
    patch_values: int  # float32 numbers of one patch in `pixel_values`


def read_model_shape(name_or_path: str, **kwargs: Any) -> ModelShape:
    """Return the shape of a model on the Hub or in a folder; only its `config.json` is read.

    The arguments are those of `AutoConfig.from_pretrained`. A `ConfigurationError` says that there is no configuration
    to read, or that it is of a kind that is not known here.
    """
    try:
        config = transformers.AutoConfig.from_pretrained(name_or_path, **kwargs)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"model_name_or_path={name_or_path!r}: its config.json cannot be read ({str(error).splitlines()[0]}). "
            "The memory estimate needs that file and nothing else of the model. Give the name of a model that can be "
            "reached, or --model_name_or_path with a folder that holds its config.json."
        ) from error
    return model_shape(config)


def model_shape(config: Any) -> ModelShape:
    """Count the parameters of a `PretrainedConfig`'s model on the meta device, where it takes no memory."""
    text = config.get_text_config()
    architecture = getattr(transformers, (getattr(config, "architectures", None) or [""])[0], None)
    needed = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "vocab_size")
    lacking = [name for name in needed if not isinstance(getattr(text, name, None), int)]
    if architecture is None or lacking or getattr(text, "num_experts", None):
        raise ConfigurationError(
            f"The model's configuration ({type(config).__name__}, architectures "
            f"{getattr(config, 'architectures', None)}) is none of a dense decoder of transformers"
            f"{': it has no ' + ', '.join(lacking) if lacking else ''}. The memory estimate knows only these."
        )
    with torch.device("meta"):
        model = architecture(config)
    kinds = set(getattr(model, "_no_split_modules", None) or ())
    blocks = [
        sum(weight.numel() for weight in module.parameters())
        for module in model.modules()
        if type(module).__name__ in kinds
    ]
    heads = text.num_attention_heads
    dtype = getattr(config, "dtype", None) or getattr(text, "dtype", None)
    vision, merge, patch_values = _vision(getattr(config, "vision_config", None))
    return ModelShape(
        parameters=sum(weight.numel() for weight in model.parameters()),
        block_parameters=sum(blocks),
        largest_block=max(blocks, default=0),
        text=Tower(text.num_hidden_layers, text.hidden_size, text.intermediate_size),
        kv_heads=getattr(text, "num_key_value_heads", None) or heads,
        head_dim=getattr(text, "head_dim", None) or text.hidden_size // heads,
        vocabulary=text.vocab_size,
        dtype=dtype if isinstance(dtype, torch.dtype) else torch.float32,
        vision=vision,
        patches_per_token=merge,
        patch_values=patch_values,
    )


def _vision(config: Any) -> tuple[Tower | None, int, int]:
    """Return the vision tower, patches of an image token, and numbers of a patch; None for other kinds of towers."""
    if config is None:
        return None, 0, 0
    try:
        tower = Tower(config.depth, config.hidden_size, config.intermediate_size)
        values = config.in_channels * config.temporal_patch_size * config.patch_size**2
        return tower, config.spatial_merge_size**2, values
    except AttributeError as error:
        raise ConfigurationError(
            f"The model's vision tower is not of Qwen2.5-VL's kind ({error}), and the memory estimate knows no other."
        ) from error
