"""What the trainer needs of TRL's private methods: checked by signature, and refused where it is gone."""

import subprocess
import sys
from pathlib import Path

import pytest
import trl
from transformers import Trainer
from trl import GRPOTrainer

from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import assert_same_end
from trl_vade.errors import LibraryError
from trl_vade.trainer.seams import SEAMS, lacking


def test_the_installed_libraries_have_what_each_feature_needs():
    assert not any(lacking(feature) for feature in SEAMS)


NEEDED = [
    (GRPOTrainer, "_calculate_rewards", {}, "trl>=1.15"),
    (Trainer, "_save_checkpoint", {}, "trl>=1.15"),
    (GRPOTrainer, "get_high_entropy_mask", {"vade_down_sampling": "none"}, "vade_down_sampling='none'"),
    (Trainer, "_prepare_input", {"vade_images_once": False}, "vade_images_once=False"),
]


@pytest.mark.parametrize(("owner", "method", "without", "offer"), NEEDED)
def test_a_trl_without_a_method_is_refused_before_a_model_is_loaded_unless_what_needs_it_is_off(
    made, monkeypatch, owner, method, without, offer
):
    with monkeypatch.context() as patched:
        patched.setattr(owner, method, lambda self, other: None)
        with refused(LibraryError, [trl.__version__, f"{owner.__name__}.{method}"], [offer]):
            made(model="no/such-model")
        if without:
            made(**without)


def test_an_output_of_another_length_is_refused(run, monkeypatch):
    generate = GRPOTrainer._generate
    monkeypatch.setattr(GRPOTrainer, "_generate", lambda self, prompts: (*generate(self, prompts), "more"))
    with refused(LibraryError, ["returns 9 values"], ["vade_down_sampling='none'", "vade_dynamic_sampling=False"]):
        run(max_steps=1)


def test_a_run_with_a_users_functions_around_the_methods_is_the_run_without(run, monkeypatch):
    settings = {"max_steps": 2, "vade_dynamic_sampling": True}
    expected = run(**settings)
    for method in ("_tokenize_prompts", "_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies"):
        before = getattr(GRPOTrainer, method)
        monkeypatch.setattr(GRPOTrainer, method, lambda *given, before=before, **named: before(*given, **named))
    assert_same_end(expected, run(**settings))


@pytest.mark.parametrize(
    ("gone", "words"),
    [
        ("GRPOTrainer._generate_single_turn", ["lacks", "GRPOTrainer._generate_single_turn"]),
        slow("utils.split_pixel_values_by_grid", [trl.__version__, "'split_pixel_values_by_grid'", "trl>=1.15"]),
    ],
)
def test_without_a_method_the_package_loads_and_without_another_name_it_says_what_to_install(gone, words):
    code = (
        f"from trl import GRPOTrainer; from trl.trainer import utils; del {gone}\n"
        "import trl_vade\n"
        "try:\n"
        "    trl_vade.VADEGRPOTrainer\n"
        "    from trl_vade.trainer.seams import lacking\n"
        "    print('lacks', lacking('vade_images_once'))\n"
        "except trl_vade.LibraryError as error:\n"
        "    print(error)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert all(word in ran.stdout for word in words), ran.stdout
