"""A checkpoint's weights under the names that the model has for them, and the index beside them."""

import json

import pytest
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText

from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights, weights
from trl_vade.errors import VADEError
from trl_vade.testbed.model import build_model
from trl_vade.testbed.processor import build_processor
from trl_vade.trainer.checkpoint.resuming import index_weights, load_saved_weights

INDEX = "model.safetensors.index.json"


def fresh_model():
    return build_model(build_processor(), seed=1)


def test_a_qwen_takes_over_what_was_saved_under_its_old_names(vision_model_path):
    assert any(name.startswith("visual.") for name in load_file(f"{vision_model_path}/model.safetensors"))
    model = fresh_model()
    load_saved_weights(model, vision_model_path)
    expected = AutoModelForImageTextToText.from_pretrained(vision_model_path).state_dict()
    assert_equal_weights(model.state_dict(), expected)


def test_a_checkpoint_that_lacks_a_weight_is_refused_by_name_and_changes_nothing(vision_model_path, tmp_path):
    model = AutoModelForImageTextToText.from_pretrained(vision_model_path)
    model.save_pretrained(tmp_path)
    saved = load_file(tmp_path / "model.safetensors")
    del saved["visual.merger.ln_q.weight"]
    save_file(saved, tmp_path / "model.safetensors", metadata={"format": "pt"})
    target = fresh_model()
    before = {name: value.clone() for name, value in target.state_dict().items()}
    with refused(VADEError, names=["model.visual.merger.ln_q.weight"]):
        load_saved_weights(target, tmp_path)
    assert_equal_weights(target.state_dict(), before)


@pytest.mark.parametrize("place", ["", "checkpoint-2"])
def test_every_save_has_an_index_of_the_weights_alone_and_is_loaded_as_without_one(checkpointed_run, place):
    trainer, folder = checkpointed_run()
    if not place:
        trainer.save_model(str(folder))
    assert (folder / place / "vade_posterior.safetensors").exists()
    place_of = json.loads((folder / place / INDEX).read_text())["weight_map"]
    assert place_of.keys() == load_file(folder / place / "model.safetensors").keys()
    assert set(place_of.values()) == {"model.safetensors"}
    assert_equal_weights(AutoModelForCausalLM.from_pretrained(folder / place).state_dict(), weights(trainer))


def test_a_model_in_several_files_keeps_its_own_index(text_model_path, tmp_path):
    AutoModelForCausalLM.from_pretrained(text_model_path).save_pretrained(tmp_path, max_shard_size="4KB")
    before = (tmp_path / INDEX).read_bytes()
    index_weights(tmp_path)
    assert (tmp_path / INDEX).read_bytes() == before


def test_a_folder_with_an_adapter_alone_gets_none(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    index_weights(tmp_path)
    assert not (tmp_path / INDEX).exists()
