"""An engine that prepares images as the trainer's processor does: told so where it is made here, else compared."""

import functools
import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from transformers import AutoImageProcessor
from trl.generation import vllm_generation

from trl_vade.errors import EngineError


@contextmanager
def engine_with_trainers_processor(trainer: Any, args: Any) -> Iterator[None]:
    """Hand the image settings of `trainer`'s processor to the vLLM engine that TRL makes inside this block.

    TRL 1.16 (`VLLMGeneration._init_vllm`) names only the model's folder to the engine, which loads the processor that
    it finds there. With another picture size (`max_pixels`, `size`) the answers would be to other images than those
    trained on. The engine must have the settings as it starts: it measures by them how much memory an image takes.
    """
    if not (args.use_vllm and args.vllm_mode == "colocate"):
        yield
        return
    make = getattr(vllm_generation, "LLM", None)  # TRL says it where vLLM is not installed

    def make_with_settings(model: str, **options: Any) -> Any:
        settings = image_settings(trainer.processing_class, model, trust_remote_code=args.trust_remote_code)
        return make(model=model, **({"mm_processor_kwargs": settings} if settings else {}), **options)

    vllm_generation.LLM = make_with_settings
    try:
        yield
    finally:
        vllm_generation.LLM = make


def image_settings(processing_class: Any, folder: str, **loading: Any) -> dict[str, Any]:
    """The settings of the image processor in `processing_class` that the one in the model `folder` has otherwise."""
    if getattr(processing_class, "image_processor", None) is None:
        return {}
    ours = processing_class.image_processor.to_dict()
    folders = AutoImageProcessor.from_pretrained(folder, **loading).to_dict()
    return {name: ours[name] for name in folders.keys() & ours.keys() if ours[name] != folders[name]}


def refuse_other_processor_of_server(trainer: Any) -> None:
    """Refuse, at the first image, a server that makes another number of tokens of it than `trainer`'s processor.

    TRL 1.16 (`VLLMGeneration._place_features`) pairs the server's images with the trainer's ids and compares nothing.
    The engine of vLLM 0.31 then dies, and the trainer is told of a refused connection. For models of the Qwen-VL kind,
    whose images are runs of one token.
    """
    engine = trainer.vllm_generation
    place = engine._place_features

    @functools.wraps(place)
    def compared(features, prompt_ids):
        placed = place(features, prompt_ids)
        theirs, ours = (_tokens_of_images(side) for side in (features, placed))
        if theirs != ours:
            size = json.dumps({"size": trainer.processing_class.image_processor.to_dict()["size"]})
            raise EngineError(
                f"The vLLM server makes {theirs} tokens of the images of a prompt and the trainer's processor {ours}: "
                "the server has another processor, such as another picture size. Start it with "
                f"--mm-processor-kwargs '{size}', or give the trainer the processor of the server's model."
            )
        return placed

    engine._place_features = compared


def _tokens_of_images(features: dict[str, Any] | None) -> list[int]:
    return [place["length"] for place in features["mm_placeholders"]["image"]] if features else []
