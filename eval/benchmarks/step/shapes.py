"""The published shapes of Qwen2.5-VL, without their weights: for benchmarks on random weights."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from transformers import Qwen2_5_VLConfig

_NAMES = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")
_NAMES += ("intermediate_size", "max_window_layers", "vocab_size")
_TEXT: dict[str, dict[str, Any]] = {
    "3b": dict(zip(_NAMES, (2048, 36, 16, 2, 11008, 70, 151936), strict=True)),
    "7b": dict(zip(_NAMES, (3584, 28, 28, 4, 18944, 28, 152064), strict=True)),
}


def qwen2_5_vl_config(size: str) -> "Qwen2_5_VLConfig":
    """Return the configuration of Qwen2.5-VL-3B-Instruct (`"3b"`) or Qwen2.5-VL-7B-Instruct (`"7b"`).

    The values are those of the `config.json` on the Hub.
    """
    from transformers import Qwen2_5_VLConfig

    text = _TEXT[size]
    return Qwen2_5_VLConfig(
        architectures=["Qwen2_5_VLForConditionalGeneration"],
        dtype="bfloat16",
        tie_word_embeddings=size == "3b",
        # All other values of both models are the defaults of transformers.
        text_config={
            **text,
            "tie_word_embeddings": size == "3b",
            "rms_norm_eps": 1e-6,
            "max_position_embeddings": 128000,
            "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [16, 24, 24]},
        },
        vision_config={"hidden_size": 1280, "out_hidden_size": text["hidden_size"], "tokens_per_second": 2},
    )
