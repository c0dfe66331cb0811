"""`VADEGRPOTrainer` on a real text model: its overrides, what it takes as TRL's trainer does, and its feedback."""

import functools
import inspect
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.support.rows import make_text_rows
from tests.support.runs import assert_equal_weights, logged, says_a_digit, weights
from trl_vade import BetaPosterior, VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.selection.log import SelectionLog

OVERRIDES = {
    name: member
    for name, member in vars(VADEGRPOTrainer).items()
    if inspect.isfunction(member) and name in dir(GRPOTrainer)
}


def test_every_override_has_the_signature_of_the_installed_parent():
    def parameters(method):
        return [(each.name, each.default) for each in inspect.signature(method).parameters.values()]

    wrong = [name for name, ours in OVERRIDES.items() if parameters(ours) != parameters(getattr(GRPOTrainer, name))]
    assert {*wrong} <= {"init_hf_repo"}  # transformers before 5.18 has no `private`


class StopAtTheBeginning(TrainerCallback):
    def on_epoch_begin(self, args, state, control, **kwargs):
        control.should_training_stop = True


def test_a_callback_that_stops_a_run_as_an_epoch_begins_is_heard_as_in_stock(run):
    assert run(more={"callbacks": [StopAtTheBeginning()]}).state.global_step == 1


# ------------------------------------------------------------------------------------------------------- drop-in


def test_a_plain_config_gets_the_defaults_of_vade_and_serves_other_trainers_after_it(
    text_model_path, text_rows, make_args, tmp_path
):
    args = make_args(GRPOConfig, max_steps=2)
    before = args.to_dict()
    for number in range(2):
        args.output_dir = str(tmp_path / str(number))
        trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
        trainer.train()
        assert trainer.args is args
        assert trainer.selection.sampler.posterior.step == 2
    trainer.save_model()
    assert torch.load(f"{args.output_dir}/training_args.bin", weights_only=False).vade_preset == "balanced"
    assert (type(args), args.to_dict()) == (GRPOConfig, before | {"output_dir": args.output_dir})
    ends = []
    for each in (args, make_args(GRPOConfig, max_steps=2)):
        stock = GRPOTrainer(text_model_path, says_a_digit, each, text_rows)
        stock.train()
        ends.append(weights(stock))
    assert_equal_weights(*ends)


def test_without_args_the_trainer_makes_its_own(text_model_path, text_rows, tmp_path, monkeypatch):
    # TRL's own default is bf16, which wants a GPU: on this CPU its defaults need these two changes.
    on_cpu = functools.partial(VADEGRPOConfig, use_cpu=True, bf16=False)
    monkeypatch.setattr("trl_vade.trainer.preflight.VADEGRPOConfig", on_cpu)
    monkeypatch.chdir(tmp_path)
    args = VADEGRPOTrainer(text_model_path, says_a_digit, train_dataset=text_rows).args
    assert (args.output_dir, args.vade_preset) == (f"{Path(text_model_path).name}-VADE", "balanced")


def test_an_object_made_without_init_generates_as_trls_own_tests_ask(made):
    whole, bare = made(), object.__new__(VADEGRPOTrainer)
    vars(bare).update({name: value for name, value in vars(whole).items() if name not in ("_images", "_batch")})
    assert len(bare._generate(["say a digit"] * 4)[1]) == 4


def test_tensorboard_receives_the_metrics(run, tmp_path, monkeypatch):
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", str(tmp_path / "board"))
    run(max_steps=2, report_to="tensorboard")
    events = EventAccumulator(str(tmp_path / "board")).Reload()
    assert [event.value for event in events.Scalars("train/vade/rollouts")] == [16, 32]


# ------------------------------------------------------------------------------------------------------ feedback


def first_line(trainer):
    return SelectionLog(trainer.args.output_dir).read()[0]


def test_the_posterior_is_what_eqs_5_and_6_make_of_the_rewards(run):
    seen = []

    def recording(completions, limit, id, **columns):
        seen.append((id, says_a_digit(completions, limit)))
        return seen[-1][1]

    posterior = run(recording, vade_preset="paper", vade_posterior_init="prior").selection.sampler.posterior
    oracle = BetaPosterior(24)
    for identities, rewards in seen:
        rows = [int(name.removeprefix("row-")) for name in identities[::4]]
        assert len(set(rows)) == 4
        oracle.observe(rows, np.array(rewards).reshape(4, 4).sum(axis=1), np.full(4, 4))
    np.testing.assert_array_equal(posterior.alpha, oracle.alpha)
    np.testing.assert_array_equal(posterior.beta, oracle.beta)
    assert posterior.visits.sum() == 24


def test_a_completion_without_a_score_is_no_trial_and_a_group_without_any_was_not_selected(run):
    def unscored(completions, limit, **columns):
        scores = says_a_digit(completions, limit)
        return [None if i < 4 or i % 4 == 3 else score for i, score in enumerate(scores)]

    trainer = run(unscored, max_steps=1)
    line = first_line(trainer)
    assert line["trials"] == [0, 3, 3, 3]
    assert trainer.selection.sampler.posterior.visits[line["sample_index"]].tolist() == [0, 1, 1, 1]


def test_the_declared_success_signal_decides_and_not_the_sum(run):
    def never(completions, **columns):
        return [0.0] * len(completions)

    trainer = run([says_a_digit, never], vade_success_reward="never", reward_weights=[1.0, 0.1])
    assert set(logged(trainer, "vade/selected_pass_rate")) == {0.0}
    assert max(logged(trainer, "vade/effective_gradient_ratio")) > 0.0  # the rewards of a group differ all the same


@pytest.mark.parametrize("refills", [False, True])
def test_an_evaluation_is_neither_observed_nor_refilled(run, text_rows, refills):
    settings = {"max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}
    asked, more = [], {"eval_dataset": text_rows.select(range(8))}

    def counting(completions, limit, **columns):
        asked.append(len(completions))
        return says_a_digit(completions, limit)

    trainer = run(counting, vade_dynamic_sampling=refills, more=more, **settings)
    trainer.evaluate()
    assert trainer.selection.feedback.rollouts == sum(asked) - 3 * 8 * 4
    posterior = trainer.selection.sampler.posterior
    assert posterior.step == len(SelectionLog(trainer.args.output_dir).read())
    assert len(logged(trainer, "eval_reward")) == 3


@pytest.mark.parametrize(
    ("changes", "generation_batches"),
    [
        ({"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4, "num_iterations": 2}, 3),
        ({"steps_per_generation": 2}, 3),
        ({"dataloader_num_workers": 2, "dataloader_persistent_workers": True, "dataloader_prefetch_factor": 4}, 6),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, 12),
    ],
    ids=str,
)
def test_every_choice_knows_every_score_before_it(run, changes, generation_batches):
    trainer = run(**changes)
    assert set(logged(trainer, "vade/staleness")) == {0.0}
    assert trainer.selection.sampler.posterior.step == generation_batches
    assert trainer.selection.feedback.rollouts == generation_batches * trainer.args.generation_batch_size
    assert trainer.args.dataloader_num_workers == changes.get("dataloader_num_workers", 0)  # for an evaluation
    assert multiprocessing.active_children() == []  # tickets need none, and some would live on at the exit


def test_answers_that_were_cut_are_told_of(run, caplog):
    run(lambda completions, **columns: [0.0] * len(completions), max_steps=10, max_completion_length=1)
    assert "of the answers were cut at max_completion_length" in caplog.text


def test_a_sampler_that_looks_ahead_is_caught_by_the_staleness_metric(made):
    """What an adaptive torch Sampler behind accelerate's loader does: batch k + 1 is chosen before k is scored."""
    trainer = made()
    on_time, ahead = trainer.selection.choose, []

    def looking_ahead():
        while len(ahead) < 2:
            rows = on_time()
            ahead.append((rows, trainer.selection.in_flight))
        rows, trainer.selection.in_flight = ahead.pop(0)
        return rows

    trainer.selection.choose = looking_ahead
    trainer.train()
    assert logged(trainer, "vade/staleness") == [0.0, 1.0, 1.0, 1.0, 1.0, 1.0]


def test_rollout_initialisation_scores_every_row_once_before_the_first_update(made):
    initial_weights, calls = [], []

    def counting(completions, limit, id, **columns):
        calls.append(id)
        initial_weights.append(weights(trainer))
        return says_a_digit(completions, limit)

    rows = make_text_rows().select(range(10))  # in generation batches of 4
    trainer = made(counting, rows, vade_posterior_init="rollout", max_steps=2)
    trainer.train()
    assert sorted(name for call in calls[:3] for name in call) == sorted([f"row-{i}" for i in range(10)] * 4)
    assert_equal_weights(initial_weights[0], initial_weights[2])
    assert first_line(trainer)["trials"] == [4.0] * 10
    assert logged(trainer, "vade/rollouts") == [40 + 16, 40 + 32]
    assert logged(trainer, "vade/coverage") == [1.0, 1.0]
    assert logged(trainer, "vade/staleness") == [0.0, 0.0]
