"""What the engine is told of the trainer's processor. The real engine: tests/engines/test_engines.py."""

from functools import partial
from types import SimpleNamespace

import pytest
from transformers import AutoProcessor, AutoTokenizer
from trl.generation import vllm_generation

from tests.support.refusals import refused
from trl_vade.errors import EngineError
from trl_vade.trainer.generation.colocated import engine_with_trainers_processor, refuse_other_processor_of_server


def engine_made_by_trl(processing_class, folder, mode="colocate", use_vllm=True, **options):
    """The arguments of the engine; a stand-in, since what is asked is only how it is called."""
    trainer = SimpleNamespace(processing_class=processing_class)
    args = SimpleNamespace(use_vllm=use_vllm, vllm_mode=mode, trust_remote_code=False)
    with engine_with_trainers_processor(trainer, args):
        return vllm_generation.LLM(model=folder, **options)


@pytest.fixture(autouse=True)
def engine(monkeypatch):
    monkeypatch.setattr(vllm_generation, "LLM", dict, raising=False)
    yield
    assert vllm_generation.LLM is dict


def test_an_engine_has_the_settings_of_images_that_the_trainer_was_given(vision_model_path):
    settings = {"size": {"shortest_edge": 784, "longest_edge": 12544}, "image_mean": (0.5, 0.5, 0.5)}
    processor = AutoProcessor.from_pretrained(vision_model_path, **settings)
    made = engine_made_by_trl(processor, vision_model_path, seed=0)
    assert made == {"model": vision_model_path, "seed": 0, "mm_processor_kwargs": settings}
    mended = engine_made_by_trl(processor, vision_model_path, mm_processor_kwargs="of TRL")
    assert mended["mm_processor_kwargs"] == "of TRL"


@pytest.mark.parametrize(
    ("loader", "other"),
    [
        (AutoProcessor.from_pretrained, {}),
        (AutoTokenizer.from_pretrained, {}),
        (partial(AutoProcessor.from_pretrained, max_pixels=12544), {"mode": "server"}),
        (partial(AutoProcessor.from_pretrained, max_pixels=12544), {"use_vllm": False}),
    ],
)
def test_the_folders_own_processor_a_tokenizer_and_other_engines_change_nothing(vision_model_path, loader, other):
    made = engine_made_by_trl(loader(vision_model_path), vision_model_path, **other)
    assert made == {"model": vision_model_path}


def test_an_engine_that_cannot_be_made_leaves_trl_as_it_was(monkeypatch):
    trainer, args = SimpleNamespace(), SimpleNamespace(use_vllm=True, vllm_mode="colocate")
    with pytest.raises(RuntimeError), engine_with_trainers_processor(trainer, args):
        raise RuntimeError


def features(*lengths):
    return {"mm_placeholders": {"image": [{"offset": 0, "length": length} for length in lengths]}}


def trainer_with_a_server(processor, *lengths):
    """One whose prompts have images of so many tokens, as TRL places them."""
    engine = SimpleNamespace(_place_features=lambda theirs, prompt_ids: theirs and features(*lengths))
    trainer = SimpleNamespace(vllm_generation=engine, processing_class=processor)
    refuse_other_processor_of_server(trainer)
    return trainer.vllm_generation


def test_a_server_that_makes_another_number_of_tokens_of_an_image_is_refused(vision_model_path):
    processor = AutoProcessor.from_pretrained(vision_model_path, max_pixels=12544)
    engine = trainer_with_a_server(processor, 4, 16)
    assert engine._place_features(features(4, 16), []) == features(4, 16)
    assert engine._place_features(None, []) is None
    with refused(EngineError, ["[4, 4]", "[4, 16]"], ["--mm-processor-kwargs", "12544"]):
        engine._place_features(features(4, 4), [])
