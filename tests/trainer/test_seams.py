"""What the trainer needs of TRL's private methods: checked by signature, refused or switched off where it is gone."""

import subprocess
import sys

import pytest
import trl
from transformers import Trainer
from trl import GRPOTrainer

from tests.docs.pages import ROOT
from tests.support.refusals import refused, says
from tests.support.runs import assert_equal_weights, assert_same_end, says_a_digit, train, weights
from trl_vade import VADEGRPOTrainer
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
    text_rows, make_args, monkeypatch, owner, method, settings
):
    monkeypatch.setattr(owner, method, lambda self, other: None)
    with refused(LibraryError, [trl.__version__, f"{owner.__name__}.{method}"], ["trl>=1.15"]):
        VADEGRPOTrainer("no/such-model", says_a_digit, make_args(**settings), text_rows)


def test_a_feature_that_nobody_asked_for_is_off_with_one_sentence(
    text_model_path, text_rows, make_args, monkeypatch, caplog
):
    expected = weights(train(text_model_path, text_rows, make_args(vade_down_sampling="none", max_steps=2)))
    monkeypatch.setattr(GRPOTrainer, "get_high_entropy_mask", lambda self: None)
    lacking.cache_clear()
    trainer = train(text_model_path, text_rows, make_args(max_steps=2))
    assert caplog.text.count("so vade_down_sampling is off") == 1
    assert trainer._batch.thinning.mode == "none"
    assert_equal_weights(weights(trainer), expected)


def longer_output(monkeypatch):
    """Let TRL's `_generate` return one value more, as a release might, and read it."""
    generate, prepare = GRPOTrainer._generate, GRPOTrainer._generate_and_score_completions
    monkeypatch.setattr(GRPOTrainer, "_generate", lambda self, prompts: (*generate(self, prompts), "more"))

    def without(self, inputs):
        whole = self._generate
        self._generate = lambda prompts: whole(prompts)[:8]
        try:
            return prepare(self, inputs)
        finally:
            del self._generate

    monkeypatch.setattr(GRPOTrainer, "_generate_and_score_completions", without)


def test_an_output_of_another_length_is_scored_when_trl_does_it(
    text_model_path, text_rows, make_args, monkeypatch, caplog
):
    settings = {"max_steps": 3, "num_iterations": 2}
    folder = make_args().output_dir
    known = train(text_model_path, text_rows, make_args(output_dir=f"{folder}-known", **settings))
    longer_output(monkeypatch)
    more = train(text_model_path, text_rows, make_args(output_dir=f"{folder}-more", **settings))
    assert_equal_weights(weights(known), weights(more))
    assert caplog.text.count("returns 9 values from GRPOTrainer._generate") == 1
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(vade_dynamic_sampling=True), text_rows)
    with refused(LibraryError, ["returns 9 values", "vade_dynamic_sampling"]):
        trainer.train()


@pytest.mark.parametrize(
    ("method", "feature"),
    [("_generate_single_turn", "vade_images_once"), ("_get_per_token_logps_and_entropies", "vade_down_sampling")],
)
def test_a_method_that_is_gone_switches_its_feature_off_and_the_package_loads(method, feature):
    code = (
        f"from trl import GRPOTrainer; del GRPOTrainer.{method}\n"
        "import trl_vade; trl_vade.VADEGRPOTrainer\n"
        f"from trl_vade.trainer.seams import lacking; print(lacking({feature!r}), '|', lacking(''))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert f"GRPOTrainer.{method}" in ran.stdout.partition("|")[0]
    assert not ran.stdout.partition("|")[2].strip()


@pytest.mark.slow
def test_a_name_that_trl_no_longer_has_is_named_with_its_version():
    code = (
        "import trl.trainer.grpo_trainer, trl.trainer.utils as utils; del utils.split_pixel_values_by_grid\n"
        "import trl_vade\n"
        "try:\n    trl_vade.VADEGRPOTrainer\nexcept trl_vade.LibraryError as error:\n    print(error)"
    )
    message = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert all(says(message, word) for word in (trl.__version__, "'split_pixel_values_by_grid'", "trl>=1.15")), message


def test_a_run_with_a_users_functions_around_the_methods_is_the_run_without(
    text_model_path, text_rows, make_args, tmp_path, monkeypatch
):
    settings = {"max_steps": 2, "vade_dynamic_sampling": True}
    plain, around = (make_args(output_dir=str(tmp_path / name), **settings) for name in ("plain", "around"))
    expected = train(text_model_path, text_rows, plain)
    for method in ("_tokenize_prompts", "_generate", "_calculate_rewards", "_get_per_token_logps_and_entropies"):
        before = getattr(GRPOTrainer, method)
        monkeypatch.setattr(GRPOTrainer, method, lambda *given, before=before, **named: before(*given, **named))
    assert_same_end(expected, train(text_model_path, text_rows, around))
