"""What a checkpoint of a real run holds, and that a run resumed from it is the run that was never stopped."""

import json
from pathlib import Path

import pytest
from conftest import assert_equal_weights, logged, says_a_digit, train, weights
from peft import LoraConfig
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from trl_vade import VADEGRPOTrainer, load_snapshot
from trl_vade.errors import ReplicaDivergenceError, SnapshotError
from trl_vade.generation_batch import file_name
from trl_vade.selection_log import SelectionLog


class StopAfter(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


def assert_same_end(resumed, whole):
    """The same choices and outcomes, the same posterior to the byte, the same weights, the same totals."""
    assert SelectionLog(resumed.args.output_dir).read() == SelectionLog(whole.args.output_dir).read()
    assert_equal_weights(weights(resumed), weights(whole))
    mine, theirs = (run.selection.sampler.state_dict()["posterior"] for run in (resumed, whole))
    for name in ("alpha", "beta", "last_update", "visits"):
        assert mine[name].tobytes() == theirs[name].tobytes()
    assert resumed.selection.rollouts == whole.selection.rollouts


CASES = {
    "default": {},
    "uniform": {"vade_sampler": "uniform"},
    "greedy": {"vade_sampler": "greedy"},
    "across epochs": {"max_steps": 14},
    "two loader workers": {"dataloader_num_workers": 2},
    "accumulation of two generation batches": {"gradient_accumulation_steps": 2, "steps_per_generation": 1},
    "two accumulations a generation batch": {"steps_per_generation": 2},
    "three accumulations a generation batch": {"per_device_train_batch_size": 8, "steps_per_generation": 3},
    "two iterations": {"num_iterations": 2},
    "two iterations of two accumulations": {"num_iterations": 2, "steps_per_generation": 2},
    "initial rollouts": {"vade_posterior_init": "rollout"},
    "data skip ignored": {"ignore_data_skip": True},
    "adapters": {"peft": True},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stop", [3, 4])  # with several steps a generation batch, one of them is inside a batch
def test_a_resumed_run_is_the_run_that_was_never_stopped(text_model_path, text_rows, make_args, tmp_path, case, stop):
    changes = {"max_steps": 8, "save_strategy": "steps", "save_steps": 1} | CASES[case]
    adapters = LoraConfig() if changes.pop("peft", False) else None

    def start(folder, **more):
        args = make_args(output_dir=str(tmp_path / folder), **changes)
        return VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, peft_config=adapters, **more)

    whole = start("whole")
    whole.train()
    start("parts", callbacks=[StopAfter(stop + 1)]).train()  # one step past the checkpoint that is resumed
    resumed = start("parts")
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / f"checkpoint-{stop}"))
    assert_same_end(resumed, whole)


def test_a_run_resumed_twice_is_the_run_that_was_never_stopped(text_model_path, text_rows, make_args, tmp_path):
    changes = {"max_steps": 8, "save_strategy": "steps", "save_steps": 1, "num_iterations": 2}
    whole = train(text_model_path, text_rows, make_args(output_dir=str(tmp_path / "whole"), **changes))
    args = make_args(output_dir=str(tmp_path / "parts"), **changes)
    train(text_model_path, text_rows, args, callbacks=[StopAfter(3)])
    for stop in (5, 8):
        resumed = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, callbacks=[StopAfter(stop)])
        resumed.train(resume_from_checkpoint=True)
    assert_same_end(resumed, whole)


@pytest.mark.parametrize("adapters", [None, LoraConfig(target_modules=["q_proj"])], ids=["full", "adapters"])
@pytest.mark.parametrize("stop", [2, 3])  # between generation batches, and inside one
def test_a_run_on_images_resumes_bit_for_bit(vision_model_path, make_args, tmp_path, stop, adapters):
    rows = load_rows_with_images()
    changes = {"max_steps": 4, "save_strategy": "steps", "save_steps": 1, "steps_per_generation": 2}

    def start(folder, **more):
        args = make_args(output_dir=str(tmp_path / folder), **changes)
        return VADEGRPOTrainer(vision_model_path, first_letter, args, rows, peft_config=adapters, **more)

    whole = start("whole")
    whole.train()
    start("parts", callbacks=[StopAfter(stop)]).train()
    resumed = start("parts")
    resumed.train(resume_from_checkpoint=str(tmp_path / "parts" / f"checkpoint-{stop}"))
    assert_same_end(resumed, whole)


def test_the_stock_trainer_still_resumes_a_qwen_without_its_weights(vision_model_path, make_args, caplog):
    """When this fails, transformers loads them, and `weights.py` with its three overrides can go."""
    rows = load_rows_with_images()
    args = make_args(GRPOConfig, max_steps=2, save_strategy="steps", save_steps=1)
    first = train(vision_model_path, rows, args, first_letter, trainer_class=GRPOTrainer)
    resumed = GRPOTrainer(vision_model_path, first_letter, make_args(GRPOConfig, max_steps=2), rows)
    resumed.train(resume_from_checkpoint=str(Path(args.output_dir) / "checkpoint-2"))  # nothing is left to train
    assert "missing keys in the checkpoint" in caplog.text
    assert not weights(first)["lm_head.weight"].equal(weights(resumed)["lm_head.weight"])


def test_the_best_model_is_loaded_with_its_weights_at_the_end(vision_model_path, make_args):
    from transformers import AutoModelForImageTextToText

    rows, evaluations = load_rows_with_images(), []
    held_out = rows.select(range(4)).map(lambda row: {"task": "held out"})

    def best_at_first(completions, task, **kwargs):
        if task[0] != "held out":
            return first_letter(completions)
        evaluations.append(1)
        return [1.0 / len(evaluations)] * len(completions)

    args = make_args(
        save_strategy="steps",
        save_steps=1,
        max_steps=3,
        eval_strategy="steps",
        eval_steps=1,
        per_device_eval_batch_size=16,
        load_best_model_at_end=True,
        metric_for_best_model="eval_reward",
    )
    trainer = VADEGRPOTrainer(vision_model_path, best_at_first, args, rows, eval_dataset=held_out)
    trainer.train()
    best, last = (Path(args.output_dir) / f"checkpoint-{step}" for step in (1, 3))
    assert Path(trainer.state.best_model_checkpoint) == best
    saved = [AutoModelForImageTextToText.from_pretrained(path).state_dict() for path in (best, last)]
    assert_equal_weights(weights(trainer), saved[0])
    assert not saved[0]["lm_head.weight"].equal(saved[1]["lm_head.weight"])


def load_rows_with_images():
    from trl_vade.testbed import build_dataset

    return build_dataset(num_train=16, num_validation=1, progress=False)["train"]


def first_letter(completions, **kwargs):
    return [float(sum(map(ord, completion[0]["content"])) % 2) for completion in completions]


def test_only_a_checkpoint_inside_a_generation_batch_holds_its_completions(text_model_path, text_rows, make_args):
    args = make_args(save_strategy="steps", save_steps=1, num_iterations=2, max_steps=3)
    trainer = train(text_model_path, text_rows, args)
    output_dir = Path(args.output_dir)
    assert [(output_dir / f"checkpoint-{step}" / file_name(0)).exists() for step in (1, 2, 3)] == [True, False, True]
    trainer.save_model(_internal_call=True)  # as push_to_hub calls it: completions belong to a checkpoint alone
    assert not (output_dir / file_name(0)).exists()


def test_completions_that_are_not_there_are_generated_anew_and_the_log_says_so(
    text_model_path, text_rows, make_args, caplog
):
    args = make_args(save_strategy="steps", save_steps=1, num_iterations=2, max_steps=3)
    train(text_model_path, text_rows, args)
    checkpoint = Path(args.output_dir) / "checkpoint-1"
    (checkpoint / file_name(0)).unlink()
    resumed = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    resumed.train(resume_from_checkpoint=str(checkpoint))
    assert "a new generation batch is chosen and generated" in caplog.text
    assert resumed.selection.sampler.posterior.step == 3
    assert set(logged(resumed, "vade/staleness")) == {0.0}


def test_completions_of_another_checkpoint_are_refused(text_model_path, text_rows, make_args):
    args = make_args(save_strategy="steps", save_steps=1, num_iterations=2, max_steps=3)
    train(text_model_path, text_rows, args)
    first, third = (Path(args.output_dir) / f"checkpoint-{step}" / file_name(0) for step in (1, 3))
    third.write_bytes(first.read_bytes())
    with pytest.raises(SnapshotError, match=file_name(0)):
        VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows).train(resume_from_checkpoint=str(third.parent))


def test_the_checkpoint_and_the_output_directory_hold_the_posterior(text_model_path, text_rows, make_args):
    args = make_args(save_strategy="steps", save_steps=3)
    trainer = train(text_model_path, text_rows, args)
    output_dir = Path(args.output_dir)
    assert load_snapshot(output_dir / "checkpoint-3").sampler_state["posterior"]["step"] == 3
    assert load_snapshot(output_dir).sampler_state["posterior"]["step"] == 6
    metadata = load_snapshot(output_dir).metadata
    assert metadata["num_generations"] == 4
    assert metadata["success_reward"] == "says_a_digit"
    assert metadata["base_model"] == text_model_path
    assert metadata["run"]["rollouts"] == 96
    state = json.loads((output_dir / "checkpoint-3" / "trainer_state.json").read_text())
    digest = load_snapshot(output_dir / "checkpoint-3").digest
    assert state["stateful_callbacks"]["PosteriorState"]["attributes"] == {"step": 3, "digest": digest}
    trainer.save_model(str(output_dir / "elsewhere"))
    assert load_snapshot(output_dir / "elsewhere").sampler_state["posterior"]["step"] == 6


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda args, rows: (args(num_generations=2), rows), "num_generations"),
        (lambda args, rows: (args(vade_success_threshold=0.9), rows), "success_threshold"),
        (lambda args, rows: (args(vade_decay_sampled=0.3), rows), "decay_sampled"),
        (lambda args, rows: (args(vade_sampler="uniform"), rows), "kind"),
        (lambda args, rows: (args(), rows.select(range(23))), "fingerprint"),
        (lambda args, rows: (args(), rows.select(range(23, -1, -1))), "fingerprint"),
    ],
    ids=["group-size", "threshold", "decay", "sampler", "a-row-fewer", "reordered"],
)
def test_a_posterior_of_another_run_is_refused_by_name(text_model_path, text_rows, make_args, change, named):
    train(text_model_path, text_rows, make_args(save_strategy="steps", save_steps=2, max_steps=2))
    args, rows = change(lambda **changes: make_args(save_strategy="no", **changes), text_rows)
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, rows)
    with pytest.raises(SnapshotError, match=named):
        trainer.train(resume_from_checkpoint=str(Path(args.output_dir) / "checkpoint-2"))


def test_a_checkpoint_without_its_posterior_is_never_resumed_from_the_prior(text_model_path, text_rows, make_args):
    args = make_args(save_strategy="steps", save_steps=2, max_steps=2)
    train(text_model_path, text_rows, args)
    checkpoint = Path(args.output_dir) / "checkpoint-2"
    (checkpoint / "vade_posterior.json").unlink()
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    with pytest.raises(SnapshotError, match=r"vade_posterior\.json"):
        trainer.train(resume_from_checkpoint=str(checkpoint))


def test_a_posterior_of_another_save_is_refused(text_model_path, text_rows, make_args):
    args = make_args(save_strategy="steps", save_steps=2, max_steps=4)
    train(text_model_path, text_rows, args)
    old, new = (Path(args.output_dir) / f"checkpoint-{step}" for step in (2, 4))
    for name in ("vade_posterior.json", "vade_posterior.safetensors"):
        (new / name).write_bytes((old / name).read_bytes())
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    with pytest.raises(SnapshotError, match="different saves"):
        trainer.train(resume_from_checkpoint=str(new))


def test_replicas_that_differ_stop_the_save_and_are_named(text_model_path, text_rows, make_args, monkeypatch):
    """The gathered list plays three processes, a last resort: real replicas are equal."""
    trainer = train(text_model_path, text_rows, make_args(max_steps=1))
    monkeypatch.setattr("trl_vade.checkpoint.gather_object", lambda digests: [*digests, "another", digests[0]])
    with pytest.raises(ReplicaDivergenceError, match=r"\[1\]"):
        trainer.save_model(trainer.args.output_dir, _internal_call=True)
    assert not (Path(trainer.args.output_dir) / "vade_posterior.json").exists()
