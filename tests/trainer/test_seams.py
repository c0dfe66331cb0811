"""What the trainer needs of TRL's private methods: checked by signature, refused or switched off where it is gone."""

import subprocess
import sys
from pathlib import Path

import pytest
import trl
from transformers import Trainer
from trl import GRPOTrainer

from tests.support.refusals import refused
from tests.support.runs import assert_equal_weights, assert_same_end, weights
from trl_vade.errors import LibraryError
from trl_vade.trainer.seams import SEAMS, lacking


@pytest.fixture(autouse=True)
def look_again():
    lacking.cache_clear()
    yield
    lacking.cache_clear()


def test_the_installed_libraries_have_what_each_feature_needs():
    assert {lacking(feature) for feature in SEAMS} == {""}


@pytest.mark.parametrize(
    ("owner", "method", "settings"),
    [
        (GRPOTrainer, "_calculate_rewards", {}),
        (Trainer, "_save_checkpoint", {}),
        (GRPOTrainer, "get_high_entropy_mask", {"vade_down_sampling": "lossless"}),
    ],
)
def test_a_trl_without_what_was_asked_for_is_refused_before_a_model_is_loaded(
    made, monkeypatch, owner, method, settings
):
    monkeypatch.setattr(owner, method, lambda self, other: None)
    with refused(LibraryError, [trl.__version__, f"{owner.__name__}.{method}"], ["trl>=1.15"]):
        made(model="no/such-model", **settings)


def test_a_feature_that_nobody_asked_for_is_off_with_one_sentence(run, monkeypatch, caplog):
    expected = weights(run(vade_down_sampling="none", max_steps=2))
    monkeypatch.setattr(GRPOTrainer, "get_high_entropy_mask", lambda self: None)
    lacking.cache_clear()
    trainer = run(max_steps=2)
    assert caplog.text.count("so vade_down_sampling is off") == 1
    assert trainer._batch.thinning.mode == "none"
    assert_equal_weights(weights(trainer), expected)


def test_a_run_with_a_users_functions_around_the_methods_is_the_run_without(run, monkeypatch):
    settings = {"max_steps": 2, "vade_dynamic_sampling": True}
    expected = run(**settings)
    for method in ("_tokenize_prompts", "_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies"):
        before = getattr(GRPOTrainer, method)
        monkeypatch.setattr(GRPOTrainer, method, lambda *given, before=before, **named: before(*given, **named))
    assert_same_end(expected, run(**settings))


@pytest.mark.slow
def test_without_a_module_the_package_loads_and_without_a_name_it_says_what_to_install():
    code = (
        "import sys; from trl import GRPOTrainer, generation; from trl.trainer import utils\n"
        "del generation.vllm_client, sys.modules['trl.generation.vllm_client']; generation.__path__.clear()\n"
        "import trl_vade; from trl_vade.trainer.seams import lacking; print(lacking('use_vllm'))\n"
        "del utils.split_pixel_values_by_grid\n"
        "try: trl_vade.VADEGRPOTrainer\n"
        "except trl_vade.LibraryError as error: print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0, ran.stderr[-2000:]
    words = ("VLLMClient.generate", trl.__version__, "'split_pixel_values_by_grid'", "trl>=1.15")
    assert all(word in ran.stdout for word in words), ran.stdout
