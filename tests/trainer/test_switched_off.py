"""Where a library has mended a fault of docs/upstream, its correction changes nothing; else it does."""

from types import SimpleNamespace

import pytest
import torch
from huggingface_hub import ModelCardData
from transformers import Trainer
from trl import GRPOTrainer
from trl.generation import vllm_generation

from tests.docs.pages import ROOT
from tests.support.runs import logged, says_a_digit, train
from tests.test_upstream import SCRIPTS
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer import grpo_trainer
from trl_vade.trainer.batch_rows import with_pixels_counted
from trl_vade.trainer.generation.colocated import with_single_tokens
from trl_vade.trainer.generation.corrections import (
    suppress_vision_tokens,
    without_empty_images,
    without_missing_images,
)
from trl_vade.trainer.generation.engine_processor import engine_with_trainers_processor
from trl_vade.trainer.publishing.model_card import _complete_metadata

TRIED = {  # by script of docs/upstream: the tests here or elsewhere that drive both
    "rows_without_images": "test_missing_images",
    "empty_pixels": "test_empty_pixels",
    "video_token": "test_suppressed_tokens",
    "pixels_by_row": "test_counted_pixels",
    "reference_model": "tests/trainer/checkpoint/test_reference_model.py",
    "checkpoint_names": "test_names_of_weights",
    "finished_run": "test_finished_run",
    "callback_states": "test_states_of_callbacks",
    "skipped_pushes": "tests/trainer/publishing/test_publication.py",
    "gradient_checkpointing": "tests/lmms/test_eval_callback.py",
    "card_licence": "test_licence",
    "colocated_requests": "test_image_tokens_that_trl_sends_alone_stay",
    "engine_processor": "test_image_settings_that_trl_hands_to_the_engine_stay",
    "vision_embeddings": "tests/engines/test_engines.py",
    "other_safetensors": "tests/trainer/checkpoint/test_resuming.py",
    "fsdp2_weights": "tests/engines/test_engines.py",
    "answers_executed": "tests/lmms/test_guard.py",
    "exit_code": "tests/lmms/test_evaluate.py",
    "judge_verdicts": "tests/evaluation/test_judge.py",
    "mathvista_answers": "tests/lmms/test_guard.py",
    "missing_weights": "tests/lmms/test_guard.py",
    "model_deleted": "tests/lmms/test_evaluate.py",
    "answer_tags": "tests/evaluation/test_tasks.py",
    "appended": "tests/evaluation/test_run.py",
    "code_executed": "tests/evaluation/test_settings.py",
    "dead_judge": "tests/evaluation/test_judge.py",
    "failed_request": "tests/evaluation/test_runs.py",
    "generation_config": "tests/lmms/test_guard.py",
    "image_bounds": "tests/lmms/test_evaluate.py",
    "own_task_ignored": "tests/evaluation/test_tasks.py",
    "repeats": "tests/lmms/test_evaluate.py",
    "requirements": "tests/evaluation/test_settings.py",
    "system_prompt": "tests/lmms/test_evaluate.py",
    "token_in_log": "tests/evaluation/test_process.py",
    "zero_accuracy": "tests/evaluation/test_tasks.py",
}


def test_every_fault_has_a_test():
    assert sorted(TRIED) == SCRIPTS
    assert all(name in globals() or (ROOT / name).is_file() for name in TRIED.values())


def test_missing_images():
    mended = (*range(6), [["a"], []], [])
    assert without_missing_images(mended) == mended
    assert without_missing_images((*range(6), [["a"], None], [])) == mended


def test_empty_pixels():
    model = SimpleNamespace(config=SimpleNamespace(image_token_id=5))
    mended = {"input_ids": torch.ones(1, 2)}
    pixels = mended | {"pixel_values": torch.ones(4, 6), "image_grid_thw": torch.ones(1, 3)}
    for named in (mended, pixels):
        assert without_empty_images(model, (), named)[1] is named
    assert without_empty_images(model, (), pixels | {"pixel_values": torch.ones(0, 6)})[1].keys() == mended.keys()


@pytest.mark.parametrize("by_trl", [[5, 6], [5], None])
def test_suppressed_tokens(by_trl):
    trainer = SimpleNamespace(
        model=SimpleNamespace(config=SimpleNamespace(image_token_id=5, video_token_id=6)),
        use_vllm=False,
        generation_config=SimpleNamespace(suppress_tokens=by_trl),
        generation_kwargs={},
    )
    suppress_vision_tokens(trainer)
    assert trainer.generation_config.suppress_tokens == [5, 6]


def test_counted_pixels():
    mended = {"pixel_values": torch.ones(3, 2), "pixel_attention_mask": torch.ones(3, 2), "num_images": [1, 1, 1]}
    assert with_pixels_counted(mended)["num_images"] == mended["num_images"]
    assert with_pixels_counted(mended | {"num_images": [2, 1, 0]})["num_images"] == mended["num_images"]
    of_qwen = {"pixel_values": torch.ones(3, 2), "num_images": [2, 1, 0]}
    assert with_pixels_counted(of_qwen) is of_qwen


@pytest.mark.parametrize("left_out", [[], ["model.visual"]])
def test_names_of_weights(monkeypatch, left_out):
    def loads(self, checkpoint, model=None):
        self._issue_warnings_after_load(SimpleNamespace(unexpected_keys=left_out, missing_keys=[]))

    loaded = []
    monkeypatch.setattr(Trainer, "_load_from_checkpoint", loads)
    monkeypatch.setattr(grpo_trainer, "load_saved_weights", lambda model, folder: loaded.append(folder))
    trainer = VADEGRPOTrainer.__new__(VADEGRPOTrainer)
    trainer.model = SimpleNamespace(_keys_to_ignore_on_save=None, tie_weights=lambda: None)
    trainer._load_from_checkpoint("folder")
    assert loaded == (["folder"] if left_out else [])


@pytest.mark.parametrize("mended", [False, True])
def test_finished_run(text_model_path, text_rows, make_args, monkeypatch, mended):
    train(text_model_path, text_rows, make_args(max_steps=2, save_strategy="steps", save_steps=2))
    run_epoch = GRPOTrainer._run_epoch

    def asks_first(self, *positional, **named):
        if self.state.global_step < self.state.max_steps:
            run_epoch(self, *positional, **named)

    if mended:
        monkeypatch.setattr(GRPOTrainer, "_run_epoch", asks_first)
    args = make_args(max_steps=2, save_strategy="no")
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    trainer.train(resume_from_checkpoint=f"{args.output_dir}/checkpoint-2")
    assert trainer.state.global_step == 2
    assert len(logged(trainer, "vade/rollouts")) == 2


@pytest.mark.parametrize("by_transformers", [{}, {"LastCheckpoint": {"args": {}, "attributes": {"of": "it"}}}])
def test_states_of_callbacks(text_model_path, text_rows, make_args, by_transformers):
    trainer = train(text_model_path, text_rows, make_args(max_steps=1, save_strategy="steps", save_steps=1))
    trainer.state.stateful_callbacks = dict(by_transformers)
    trainer._load_optimizer_and_scheduler(f"{trainer.args.output_dir}/checkpoint-1")
    assert "TrainedCounts" in trainer.state.stateful_callbacks
    assert by_transformers.items() <= trainer.state.stateful_callbacks.items()


@pytest.mark.parametrize("licence", ["license", None])
def test_licence(licence):
    data = ModelCardData(**({"licence": licence} if licence else {"license": "mit"}))
    _complete_metadata(data, {}, vision=False)
    assert data.get("licence") is None
    assert data.license == (None if licence else "mit")


# ------------------------------------------------------------------------------------ what vLLM's tests show as faults


def test_image_tokens_that_trl_sends_alone_stay():
    assert with_single_tokens([1, 9, 2, 9, 3], 9) == [1, 9, 2, 9, 3]
    assert with_single_tokens([1, 9, 9, 2, 9, 9, 3], 9) == [1, 9, 2, 9, 3]


def test_image_settings_that_trl_hands_to_the_engine_stay(monkeypatch, vision_model_path):
    from transformers import AutoProcessor

    monkeypatch.setattr(vllm_generation, "LLM", dict, raising=False)
    processor = AutoProcessor.from_pretrained(vision_model_path, min_pixels=784, max_pixels=12544)
    trainer = SimpleNamespace(processing_class=processor)
    args = SimpleNamespace(use_vllm=True, vllm_mode="colocate", trust_remote_code=False)
    with engine_with_trainers_processor(trainer, args):
        made = vllm_generation.LLM(model=vision_model_path, mm_processor_kwargs={"size": "of TRL"})
    assert made["mm_processor_kwargs"] == {"size": "of TRL"}
