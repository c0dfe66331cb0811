"""What a checkpoint of a real run holds, and whom it serves. That it resumes exactly: `test_battery.py`."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoModelForImageTextToText

from tests.support.checkpoints import without_later
from tests.support.refusals import refused
from tests.support.rows import make_text_rows
from tests.support.runs import always_half, assert_equal_weights, first_letter, logged, rows_with_images, weights
from trl_vade import load_snapshot
from trl_vade.checkpoints import MARKER_FILE
from trl_vade.errors import CheckpointIncompleteError, ReplicaDivergenceError, SnapshotError, SnapshotMismatchError
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.trainer.checkpoint.generation_batch import file_name


def test_the_best_model_is_loaded_with_its_weights_at_the_end(run, vision_model_path):
    rows, evaluations = rows_with_images(), []
    held_out = rows.select(range(4)).map(lambda row: {"task": "held out"})

    def best_at_first(completions, task, **kwargs):
        if task[0] != "held out":
            return first_letter(completions)
        evaluations.append(1)
        return [1.0 / len(evaluations)] * len(completions)

    settings = {"load_best_model_at_end": True, "metric_for_best_model": "eval_reward", "max_steps": 3}
    settings |= {"save_total_limit": 2}  # the best checkpoint stays, though it is the oldest
    settings |= {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 16}
    settings |= {"model": vision_model_path, "more": {"eval_dataset": held_out}}
    trainer = run(best_at_first, rows, save_strategy="steps", save_steps=1, **settings)
    best, last = (Path(trainer.args.output_dir) / f"checkpoint-{step}" for step in (1, 3))
    assert Path(trainer.state.best_model_checkpoint) == best
    saved = [AutoModelForImageTextToText.from_pretrained(path).state_dict() for path in (best, last)]
    assert_equal_weights(weights(trainer), saved[0])
    assert not saved[0]["lm_head.weight"].equal(saved[1]["lm_head.weight"])


def unlisted(checkpoint, name):
    """Take a name out of the marker."""
    marker = json.loads((checkpoint / MARKER_FILE).read_text())
    del marker["files"][name]
    (checkpoint / MARKER_FILE).write_text(json.dumps(marker))


def test_completions_that_are_not_there_are_refused_or_on_purpose_generated_anew_and_the_log_says_so(
    made, checkpointed_run, caplog
):
    trainer, folder = checkpointed_run("iterated")
    trainer.save_model(_internal_call=True)  # as push_to_hub calls it: completions belong to a checkpoint alone
    assert not Path(trainer.args.output_dir, file_name(0)).exists()
    checkpoint = folder / "checkpoint-1"
    (checkpoint / file_name(0)).unlink()
    resumed = made(output_dir=folder, num_iterations=2, max_steps=3)
    with refused(CheckpointIncompleteError, [file_name(0)]):
        resumed.train(resume_from_checkpoint=without_later(checkpoint))
    unlisted(checkpoint, file_name(0))
    resumed.train(resume_from_checkpoint=without_later(checkpoint))
    assert "new generation batch" in caplog.text
    assert resumed.selection.sampler.posterior.step == 2  # all of the new batch is trained on, in steps 2 and 3
    assert set(logged(resumed, "vade/staleness")) == {0.0}


def test_a_generation_batch_of_more_steps_than_before_is_used_for_all_of_them(saved, resume):
    """The checkpoint lies behind a whole batch of one step; one of now is for two."""
    resumed = resume(checkpoint=without_later(saved[1].with_name("checkpoint-1")), num_iterations=2, max_steps=3)
    assert resumed.selection.sampler.posterior.step == 2


def test_the_checkpoint_and_the_output_directory_hold_the_posterior(saved, tmp_path):
    trainer, output_dir = saved[0], saved[1].parent
    trainer.save_model(str(tmp_path / "elsewhere"))
    for folder, step in ((output_dir / "checkpoint-1", 1), (output_dir, 2), (tmp_path / "elsewhere", 2)):
        assert load_snapshot(folder).sampler_state["posterior"]["step"] == step
    metadata = load_snapshot(output_dir).metadata
    wanted = {"num_generations": 4, "success_reward": "says_a_digit", "base_model": None}  # a folder of this machine
    assert {name: metadata[name] for name in wanted} == wanted
    assert metadata["run"]["rollouts"] == 32


MISMATCHES = [  # changes of the arguments, and what the error must name
    ({"num_generations": 2}, ["num_generations", 4, 2]),
    ({"vade_success_threshold": 0.9}, ["success_threshold", 0.5, 0.9]),
    ({"seed": 7}, ["seed", 3, 7]),
    ({"vade_sampler": "uniform"}, ["thompson", "uniform"]),
    ({"rows": make_text_rows().select(range(23))}, ["rows", 24, 23]),
    ({"rows": make_text_rows().select(range(23, -1, -1))}, ["dataset_fingerprint"]),
    ({"reward": always_half}, ["says_a_digit", "always_half"]),
]


@pytest.fixture
def saved(checkpointed_run):
    """A run of two generation batches with a checkpoint of each; returns the trainer and the path of the second."""
    trainer, folder = checkpointed_run()
    return trainer, folder / "checkpoint-2"


@pytest.fixture
def resume(made, saved):
    """Go on from the saved run to step 4, with other arguments or rows."""

    def go_on(checkpoint=saved[1], **changes):
        saves = {"save_strategy": "steps", "save_steps": 1, "max_steps": 4, "output_dir": saved[1].parent}
        trainer = made(**saves | changes)
        trainer.train(resume_from_checkpoint=str(checkpoint))
        return trainer

    return go_on


@pytest.mark.parametrize(("changes", "named"), MISMATCHES)
def test_a_posterior_of_another_run_is_refused_by_name_with_both_sides_and_the_way_out(resume, changes, named):
    with refused(SnapshotMismatchError, names=named, offers=["vade_posterior_init", "new run"]):
        resume(**changes)


def test_a_finished_run_that_is_resumed_is_left_as_it_is(saved, resume):
    """A job that is queued again after its last save. Stock TRL 1.16 trains one step more."""
    trainer = resume(max_steps=2)
    assert trainer.state.global_step == 2
    assert trainer.selection.feedback.rollouts == 32
    assert_equal_weights(weights(trainer), weights(saved[0]))


def test_rules_follow_the_arguments_and_the_evidence_stays(saved, resume, caplog):
    before = saved[0].selection.sampler
    rules = {"vade_preset": "frontier", "vade_cooldown": 0.3}
    sampler = resume(**rules, max_steps=2).selection.sampler  # nothing is left to train
    for name in ("alpha", "beta"):
        np.testing.assert_allclose(getattr(sampler.posterior, name), getattr(before.posterior, name), rtol=1e-12)
    for name in ("visits", "last_update"):
        assert getattr(sampler.posterior, name).tolist() == getattr(before.posterior, name).tolist()
    state = sampler.state_dict()
    assert state["num_draws"] == before.state_dict()["num_draws"]
    assert state["settings"].items() >= {"cooldown": 2, "prior": "flat"}.items()
    [said] = [record.message for record in caplog.records if "Rules of the sampler" in record.message]
    assert all(name in said for name in ("prior", "cooldown", "even_rest"))
    assert "decay" not in said


def test_a_checkpoint_without_its_posterior_is_never_resumed_from_the_prior(saved, resume):
    (saved[1] / POSTERIOR_FILE).unlink()
    with refused(CheckpointIncompleteError, names=[POSTERIOR_FILE]):
        resume()
    unlisted(saved[1], POSTERIOR_FILE)
    with refused(SnapshotError, names=[POSTERIOR_FILE]):
        resume()


def test_a_posterior_of_another_save_is_refused(saved, resume):
    (saved[1] / POSTERIOR_FILE).write_bytes((saved[1].with_name("checkpoint-1") / POSTERIOR_FILE).read_bytes())
    unlisted(saved[1], POSTERIOR_FILE)  # its size may be another
    with refused(SnapshotError, names=["another run or save", "global_step", 1, 2]):
        resume()


def test_replicas_that_differ_stop_the_save_and_are_named(run, monkeypatch):
    """The gathered list plays three processes, a last resort: real replicas are equal."""
    trainer = run(max_steps=1)
    monkeypatch.setattr(
        "trl_vade.trainer.checkpoint.resuming.gather_object", lambda digests: [*digests, "another", digests[0]]
    )
    with refused(ReplicaDivergenceError, names=["step 1", "another"]):
        trainer.save_model(trainer.args.output_dir, _internal_call=True)
    assert not (Path(trainer.args.output_dir) / POSTERIOR_FILE).exists()
