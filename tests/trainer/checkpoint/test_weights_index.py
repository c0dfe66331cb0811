"""An index beside the weights says that they are the weights, and nothing else in the folder."""

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from tests.support.runs import assert_equal_weights, says_a_digit, train, weights
from trl_vade.trainer.checkpoint.resuming import index_weights

INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def run(text_model_path, tmp_path_factory):
    from tests.support.rows import make_text_rows
    from tests.support.runs import SMALL_RUN
    from trl_vade import VADEGRPOConfig

    folder = str(tmp_path_factory.mktemp("run"))
    args = VADEGRPOConfig(
        **SMALL_RUN | {"output_dir": folder, "max_steps": 2, "save_strategy": "steps", "save_steps": 1}
    )
    trainer = train(text_model_path, make_text_rows(), args, reward=says_a_digit)
    trainer.save_model()
    return trainer


@pytest.mark.parametrize("place", ["", "checkpoint-2"])
def test_every_save_has_an_index_of_the_weights_alone(run, place):
    folder = Path(run.args.output_dir) / place
    assert (folder / "vade_posterior.safetensors").exists()
    place_of = json.loads((folder / INDEX).read_text())["weight_map"]
    assert place_of.keys() == load_file(folder / "model.safetensors").keys()
    assert set(place_of.values()) == {"model.safetensors"}


def test_transformers_loads_the_model_as_without_an_index(run):
    model = AutoModelForCausalLM.from_pretrained(run.args.output_dir)
    assert_equal_weights(model.state_dict(), weights(run))


def test_a_model_in_several_files_keeps_its_own_index(text_model_path, tmp_path):
    AutoModelForCausalLM.from_pretrained(text_model_path).save_pretrained(tmp_path, max_shard_size="4KB")
    before = (tmp_path / INDEX).read_bytes()
    index_weights(tmp_path)
    assert (tmp_path / INDEX).read_bytes() == before


def test_a_folder_with_an_adapter_alone_gets_none(tmp_path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    index_weights(tmp_path)
    assert not (tmp_path / INDEX).exists()
