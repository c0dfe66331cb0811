"""`VADEGRPOTrainer` on a real text model: what it keeps of the stock trainer, and what it adds."""

import difflib
import functools
import inspect
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer
from trl.trainer.utils import RepeatSampler

from tests.support.marks import slow
from tests.support.runs import always_half, assert_equal_weights, logged, says_a_digit, train, weights
from trl_vade import BetaPosterior, VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.data.row_views import prompt_texts
from trl_vade.samplers.priors import prompt_words
from trl_vade.selection.log import SelectionLog


def overrides():
    return {
        name: member
        for name, member in vars(VADEGRPOTrainer).items()
        if inspect.isfunction(member) and name in dir(GRPOTrainer)
    }


# ---------------------------------------------------------------------------------------------- the seams to TRL


@pytest.mark.parametrize("name", sorted(overrides()))
def test_every_override_has_the_signature_of_the_installed_parent(name):
    ours = inspect.signature(overrides()[name])
    parents = inspect.signature(getattr(GRPOTrainer, name))
    assert list(ours.parameters) == list(parents.parameters)
    assert [p.default for p in ours.parameters.values()] == [p.default for p in parents.parameters.values()]


REPLACED = ("_push_from_checkpoint", "init_hf_repo", "push_to_hub")  # the methods that upload


@pytest.mark.parametrize("name", sorted(overrides()))
def test_no_override_is_long_or_a_copy_of_its_parent(name):
    def code_of(function):
        # By its code object: `__init__` and `train` wear the parent's signature (functools.wraps), and unwrapping them
        # would compare the parent with itself.
        lines = [line.strip() for line in inspect.getsource(function.__code__).splitlines()[1:]]
        return [line for line in lines if line and not line.startswith(("#", '"""'))]

    parent = getattr(GRPOTrainer, name)
    # What else an override wears is passed through: the one whose signature is the parent's is the override itself.
    ours = inspect.unwrap(overrides()[name], stop=lambda function: getattr(function, "__wrapped__", parent) is parent)
    mine, theirs = code_of(ours), code_of(inspect.unwrap(parent))
    # The call of the parent is the rule, and where the parent calls its own parent the line is the same.
    own = [line for line in mine if "super()" not in line]
    shared = sum(block.size for block in difflib.SequenceMatcher(None, own, theirs, False).get_matching_blocks())
    assert any("super()" in line for line in mine) != (name in REPLACED)
    assert len(mine) <= (30 if name == "__init__" else 15)
    assert shared <= 3, name


def test_no_epoch_makes_a_list_of_all_rows_for_tickets_that_nobody_reads(
    text_model_path, text_rows, make_args, monkeypatch
):
    stock = list(GRPOTrainer(text_model_path, says_a_digit, make_args(GRPOConfig), text_rows).get_train_dataloader())
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(VADEGRPOConfig), text_rows)
    loader = trainer.get_train_dataloader()
    monkeypatch.setattr(torch, "randperm", None)
    for _epoch in range(2):
        assert [len(tickets) for tickets in loader] == [len(batch) for batch in stock]
    assert isinstance(trainer._get_train_sampler(text_rows), RepeatSampler)  # of rows, as it is


class StopAtTheBeginning(TrainerCallback):
    def on_epoch_begin(self, args, state, control, **kwargs):
        control.should_training_stop = True


def test_a_callback_that_stops_a_run_as_an_epoch_begins_is_heard_as_in_stock(text_model_path, text_rows, make_args):
    runs = [
        train(text_model_path, text_rows, make_args(config), trainer_class=kind, callbacks=[StopAtTheBeginning()])
        for kind, config in ((VADEGRPOTrainer, VADEGRPOConfig), (GRPOTrainer, GRPOConfig))
    ]
    assert [trainer.state.global_step for trainer in runs] == [1, 1]


def test_trl_still_counts_micro_batches_in_step_and_buffers_inputs():
    """`generation_is_due` rests on these two names of TRL 1.16."""
    source = inspect.getsource(inspect.unwrap(GRPOTrainer._prepare_inputs))
    assert "self._step % generate_every == 0 or self._buffered_inputs is None" in source


# ------------------------------------------------------------------------------------------------------- drop-in


def test_a_plain_config_gets_the_defaults_of_vade_and_is_the_trainers_own(text_model_path, text_rows, make_args):
    args = make_args(GRPOConfig, max_steps=2)
    before = args.to_dict()
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    assert trainer.args is args
    assert type(args) is GRPOConfig
    assert args.vade_preset == "balanced"
    args.max_steps = 4  # as in stock, what is changed before training counts
    trainer.train()
    assert trainer.selection.sampler.posterior.step == 4
    trainer.save_model()
    assert torch.load(f"{args.output_dir}/training_args.bin", weights_only=False).vade_preset == "balanced"
    assert args.to_dict() == before | {"max_steps": 4}


def test_a_plain_config_serves_two_trainers_and_a_stock_one_after_them(
    text_model_path, text_rows, make_args, tmp_path
):
    args = make_args(GRPOConfig, max_steps=2)
    for number in range(2):
        args.output_dir = str(tmp_path / str(number))
        assert train(text_model_path, text_rows, args).selection.sampler.posterior.step == 2
    shared = train(text_model_path, text_rows, args, trainer_class=GRPOTrainer)
    own = train(text_model_path, text_rows, make_args(GRPOConfig, max_steps=2), trainer_class=GRPOTrainer)
    assert_equal_weights(weights(shared), weights(own))


def test_without_args_the_trainer_makes_its_own(text_model_path, text_rows, tmp_path, monkeypatch):
    # TRL's own default is bf16, which wants a GPU: on this CPU its defaults need these two changes.
    on_cpu = functools.partial(VADEGRPOConfig, use_cpu=True, bf16=False)
    monkeypatch.setattr("trl_vade.trainer.preflight.VADEGRPOConfig", on_cpu)
    monkeypatch.chdir(tmp_path)
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, train_dataset=text_rows)
    assert trainer.args.output_dir == f"{Path(text_model_path).name}-VADE"
    assert trainer.args.vade_preset == "balanced"


def test_an_object_made_without_init_generates_as_trls_own_tests_ask(text_model_path, text_rows, make_args):
    whole = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(), text_rows)
    bare = object.__new__(VADEGRPOTrainer)
    vars(bare).update({name: value for name, value in vars(whole).items() if name not in ("_images", "_batch")})
    assert len(bare._generate(["say a digit"] * 4)[1]) == 4


# ------------------------------------------------------------------------------------------------------ feedback


def test_the_posterior_is_what_eqs_5_and_6_make_of_the_rewards(text_model_path, text_rows, make_args):
    seen = []

    def recording(completions, limit, **kwargs):
        rewards = says_a_digit(completions, limit)
        seen.append((kwargs["id"], rewards))
        return rewards

    args = make_args(vade_preset="paper", vade_posterior_init="prior")
    trainer = train(text_model_path, text_rows, args, reward=recording)
    oracle = BetaPosterior(24)
    for identities, rewards in seen:
        rows = [int(name.removeprefix("row-")) for name in identities[::4]]
        assert len(set(rows)) == 4
        oracle.observe(rows, np.array(rewards).reshape(4, 4).sum(axis=1), np.full(4, 4))
    posterior = trainer.selection.sampler.posterior
    np.testing.assert_array_equal(posterior.alpha, oracle.alpha)
    np.testing.assert_array_equal(posterior.beta, oracle.beta)
    assert posterior.visits.sum() == 24


def test_a_completion_without_a_score_is_no_trial_and_a_group_without_any_was_not_selected(
    text_model_path, text_rows, make_args
):
    def unscored(completions, limit, **kwargs):
        scores = says_a_digit(completions, limit)
        return [None if i < 4 or i % 4 == 3 else score for i, score in enumerate(scores)]

    trainer = train(text_model_path, text_rows, make_args(max_steps=1), reward=unscored)
    line = SelectionLog(trainer.args.output_dir).read()[0]
    assert line["trials"] == [0, 3, 3, 3]
    visits = trainer.selection.sampler.posterior.visits
    assert visits[line["sample_index"]].tolist() == [0, 1, 1, 1]


def test_the_declared_success_signal_decides_and_not_the_sum(text_model_path, text_rows, make_args):
    def never(completions, **kwargs):
        return [0.0] * len(completions)

    args = make_args(vade_success_reward="never", reward_weights=[1.0, 0.1])
    trainer = train(text_model_path, text_rows, args, reward=[says_a_digit, never])
    assert trainer.selection.sampler.posterior.alpha.sum() == 0
    assert trainer.selection.sampler.posterior.beta.sum() > 0
    assert set(logged(trainer, "vade/selected_pass_rate")) == {0.0}
    assert max(logged(trainer, "vade/effective_gradient_ratio")) > 0.0  # the rewards of a group differ all the same


def test_evaluation_never_touches_the_posterior(text_model_path, text_rows, make_args):
    args = make_args(max_steps=2, eval_strategy="steps", eval_steps=1, per_device_eval_batch_size=8)
    trainer = train(text_model_path, text_rows, args, eval_dataset=text_rows.select(range(8)))
    before = trainer.selection.sampler.state_dict()
    trainer.evaluate()
    after = trainer.selection.sampler.state_dict()
    assert before["posterior"]["step"] == after["posterior"]["step"] == 2
    np.testing.assert_array_equal(before["posterior"]["alpha"], after["posterior"]["alpha"])
    assert trainer.selection.feedback.rollouts == 2 * 16
    assert len(logged(trainer, "eval_reward")) == 3


@pytest.mark.parametrize(
    ("changes", "generation_batches"),
    [
        slow({}, 6),
        slow({"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4}, 6),
        ({"gradient_accumulation_steps": 4, "per_device_train_batch_size": 4, "num_iterations": 2}, 3),
        slow({"num_iterations": 2}, 3),
        ({"steps_per_generation": 2}, 3),
        ({"dataloader_num_workers": 2}, 6),  # they stay idle, but are as many as TRL's users see
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, 12),
    ],
    ids=lambda value: "-".join(value) or "default" if isinstance(value, dict) else "",
)
def test_every_choice_knows_every_score_before_it(text_model_path, text_rows, make_args, changes, generation_batches):
    trainer = train(text_model_path, text_rows, make_args(**changes))
    assert set(logged(trainer, "vade/staleness")) == {0.0}
    assert trainer.selection.sampler.posterior.step == generation_batches
    groups = trainer.args.generation_batch_size // 4
    assert trainer.selection.feedback.rollouts == generation_batches * groups * 4
    assert trainer.get_train_dataloader().num_workers == trainer.args.dataloader_num_workers


def test_a_sampler_that_looks_ahead_is_caught_by_the_staleness_metric(text_model_path, text_rows, make_args):
    """What an adaptive torch Sampler behind accelerate's loader does: batch k + 1 is chosen before k is scored."""
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(), text_rows)
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


# -------------------------------------------------------------------------------------------------------- options


def test_greedy_takes_the_rows_in_their_order_while_nothing_is_known(text_model_path, text_rows, make_args):
    trainer = train(text_model_path, text_rows, make_args(vade_sampler="greedy", max_steps=1))
    assert SelectionLog(trainer.args.output_dir).read()[0]["sample_index"] == [0, 1, 2, 3]


def test_the_settings_reach_the_sampler(text_model_path, text_rows, make_args):
    decays = {"vade_decay_sampled": 0.5, "vade_decay_unsampled": 0.9}
    args = make_args(vade_information_gain="symmetric", seed=11, **decays)
    sampler = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows).selection.sampler
    assert sampler._words.tolist() == prompt_words(prompt_texts(text_rows)).tolist()
    state = sampler.state_dict()
    assert state["seed"] == 11
    assert state["settings"]["gain"] == "symmetric"
    assert (state["posterior"]["decay_sampled"], state["posterior"]["decay_unsampled"]) == (0.5, 0.9)


def test_rollout_initialisation_scores_every_row_once_before_the_first_update(text_model_path, make_args):
    rows = Dataset.from_list(
        [
            {"prompt": [{"role": "user", "content": "say a digit"}], "limit": i % 10, "id": f"row-{i}"}
            for i in range(10)
        ]
    )
    initial_weights, calls = [], []

    def counting(completions, limit, **kwargs):
        calls.append(kwargs["id"])
        if len(calls) <= 3:  # 10 rows in generation batches of 4
            initial_weights.append(weights(trainer))
        return says_a_digit(completions, limit)

    trainer = VADEGRPOTrainer(text_model_path, counting, make_args(vade_posterior_init="rollout", max_steps=2), rows)
    trainer.train()
    assert sorted(name for call in calls[:3] for name in call) == sorted([f"row-{i}" for i in range(10)] * 4)
    assert_equal_weights(initial_weights[0], initial_weights[2])
    lines = SelectionLog(trainer.args.output_dir).read()
    assert lines[0]["trials"] == [4.0] * 10
    assert trainer.selection.feedback.rollouts == 10 * 4 + 2 * 16
    assert logged(trainer, "vade/rollouts") == [40 + 16, 40 + 32]
    assert logged(trainer, "vade/coverage") == [1.0, 1.0]
    assert logged(trainer, "vade/staleness") == [0.0, 0.0]


def test_fractions_of_a_success_are_counted_when_the_threshold_is_none(text_model_path, text_rows, make_args):
    args = make_args(vade_success_threshold=None, max_steps=1)
    trainer = train(text_model_path, text_rows, args, reward=always_half)
    line = SelectionLog(trainer.args.output_dir).read()[0]
    assert line["successes"] == [2.0] * 4
    assert line["effective_gradient_ratio"] == 0.0


def test_lora_adapters_train_and_the_base_stays(text_model_path, text_rows, make_args):
    from peft import LoraConfig

    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, make_args(), text_rows, peft_config=LoraConfig())
    before = weights(trainer)
    trainer.train()
    moved = [name for name, value in weights(trainer).items() if not torch.equal(value, before[name])]
    assert moved
    assert all("lora" in name for name in moved)
    assert trainer.selection.sampler.posterior.step == 6


def test_remove_unused_columns_hides_the_columns_from_the_reward_as_in_the_stock_trainer(
    text_model_path, text_rows, make_args
):
    seen = set()

    def nosy(completions, **kwargs):
        seen.update(kwargs)
        return [0.0] * len(completions)

    train(text_model_path, text_rows, make_args(remove_unused_columns=True, max_steps=1), reward=nosy)
    assert "limit" not in seen


def test_tensorboard_receives_the_metrics(text_model_path, text_rows, make_args, monkeypatch):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    args = make_args(max_steps=2, report_to="tensorboard")
    monkeypatch.setenv("TENSORBOARD_LOGGING_DIR", f"{args.output_dir}/board")
    train(text_model_path, text_rows, args)
    events = EventAccumulator(f"{args.output_dir}/board").Reload()
    assert [event.value for event in events.Scalars("train/vade/rollouts")] == [16, 32]


@pytest.fixture
def trackio_dir(tmp_path, monkeypatch):
    """The folder that trackio writes to. It has read TRACKIO_DIR when TRL imported it, hence its constants (0.43)."""
    from trackio.utils import TRACKIO_DIR

    for module in [module for name, module in sys.modules.items() if name.partition(".")[0] == "trackio"]:
        for name, value in list(vars(module).items()):
            if isinstance(value, Path) and value.is_relative_to(TRACKIO_DIR):
                monkeypatch.setattr(module, name, tmp_path / "trackio" / value.relative_to(TRACKIO_DIR))
    return tmp_path / "trackio"


def test_trackio_receives_the_metrics(text_model_path, text_rows, make_args, trackio_dir):
    args = make_args(max_steps=2, report_to="trackio", project="vade", trackio_space_id=None)
    train(text_model_path, text_rows, args)
    stored = b"".join(path.read_bytes() for path in trackio_dir.rglob("*") if path.is_file())
    assert b"vade/effective_gradient_ratio" in stored


@pytest.mark.parametrize("sampler", ["uniform", "thompson"])
@pytest.mark.parametrize("transform", [True, False])
def test_a_transform_is_said_to_run_once_for_each_row_as_a_run_starts(
    text_model_path, text_rows, make_args, caplog, sampler, transform
):
    rows = text_rows.with_transform(dict) if transform else text_rows
    train(text_model_path, rows, make_args(vade_sampler=sampler, max_steps=1))
    said = [record.getMessage() for record in caplog.records if "transform" in record.getMessage()]
    assert len(said) == int(transform)
    assert all("once for each chosen row" in notice for notice in said)
