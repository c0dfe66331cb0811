"""DAPO's dynamic sampling in the real trainer: what is trained on, what is counted, and what stays as it was."""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer, TrainerCallback

from tests.support.checkpoints import without_later
from tests.support.marks import slow, slow_but
from tests.support.own_samplers import OWN
from tests.support.refusals import says
from tests.support.rows import make_text_rows
from tests.support.runs import (
    SMALL_RUN,
    SaveAt,
    StopAfter,
    assert_same_end,
    first_letter,
    logged,
    rows_with_images,
    says_a_digit,
    train,
)
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import rows_with_gradient
from trl_vade.selection.rollouts import first_of

NAN = float("nan")


def is_live(name):
    """A third of the 24 rows have right and wrong answers; the others' are all wrong."""
    return int(name.removeprefix("row-")) % 3 == 0


def alternating(completions, **kwargs):
    """Right and wrong in turn, whatever the answer: every group has a gradient."""
    return [float(i % 2) for i in range(len(completions))]


def alternating_if_live(completions, id, **kwargs):
    return [float(is_live(name) and i % 2) for i, name in enumerate(id)]


def by_the_tokens(completions, completion_ids, **kwargs):
    """A reward that can be read off the completion, and is the same throughout many groups."""
    return [float(sum(ids) % 5 == 0) for ids in completion_ids]


class Counted:
    """A reward function that notes what it is called for."""

    def __init__(self, reward):
        self.__name__, self.reward = reward.__name__, reward
        self.rows, self.tokens, self.calls = [], 0, []

    def __call__(self, completions, completion_ids, id, prompts, **kwargs):
        self.calls.append(len(completions))
        self.rows += id
        self.tokens += sum(map(len, completion_ids))
        return self.reward(completions=completions, completion_ids=completion_ids, id=id, **kwargs)


class Trained(TrainerCallback):
    """Notes the generation batch that each optimiser step trains on."""

    def __init__(self):
        self.batches = []

    def on_step_end(self, args, state, control, **kwargs):
        self.batches.append([dict(part) for part in self.trainer._buffered_inputs])

    def advantages(self):
        return [torch.cat([part["advantages"] for part in batch]) for batch in self.batches]


def refilled(model, rows, args, reward=alternating_if_live, trainer_class=VADEGRPOTrainer, **arguments):
    trained = Trained()
    trained.trainer = trainer_class(model, reward, args, rows, callbacks=[trained], **arguments)
    trained.trainer.train()
    return trained.trainer, trained


def rounds_of(trainer):
    """The lines of the selection log, those of a generation batch together."""
    batches = []
    for line in SelectionLog(trainer.args.output_dir).read():
        if "refill" not in line:
            batches.append([])
        batches[-1].append(line)
    return batches


@pytest.fixture
def make_refill_args(make_args):
    return lambda **changes: make_args(**{"vade_dynamic_sampling": True} | changes)


@pytest.fixture(scope="module")
def defaults(text_model_path, tmp_path_factory):
    """One recorded run with the defaults for the tests that only look at it: trainer, `Trained`, `Counted`."""
    settings = {"output_dir": str(tmp_path_factory.mktemp("defaults")), "vade_dynamic_sampling": True}
    counted = Counted(alternating_if_live)
    args = VADEGRPOConfig(**SMALL_RUN | settings, lr_scheduler_type="linear")
    return *refilled(text_model_path, make_text_rows(), args, counted), counted


# --------------------------------------------------------------------------------------------- what is trained on


@pytest.mark.parametrize(
    "sampler",
    slow_but(["thompson", OWN], ["thompson", "greedy", "uniform", OWN]),
)
def test_only_groups_with_a_gradient_are_trained_on_with_every_sampler(
    text_model_path, text_rows, make_refill_args, sampler
):
    args = make_refill_args(vade_sampler=sampler, max_steps=4)
    trainer, trained = refilled(text_model_path, text_rows, args)
    batches = rounds_of(trainer)
    assert max(map(len, batches)) > 1  # there was something to refill
    for rounds, advantages in zip(batches, trained.advantages(), strict=True):
        chosen = [row for line in rounds for row in line["sample_index"]]
        assert len(set(chosen)) == len(chosen)  # no row twice in a generation batch
        assert sum(row % 3 == 0 for row in chosen) == 4
        assert (advantages != 0).all()


def test_a_batch_is_no_larger_than_it_has_to_be_and_each_refill_asks_for_what_is_missing(defaults):
    for rounds in rounds_of(defaults[0]):
        missing = 4
        for line in rounds:
            assert len(line["sample_index"]) == missing
            missing -= sum(row % 3 == 0 for row in line["sample_index"])
        assert missing == 0
        assert [line.get("refill", 0) for line in rounds] == list(range(len(rounds)))


def test_each_completion_is_trained_on_with_its_own_reward(text_model_path, text_rows, make_refill_args):
    args = make_refill_args(beta=0.1, num_iterations=2, loss_type="grpo", vade_max_refills=1)
    trainer, trained = refilled(text_model_path, text_rows, args, by_the_tokens)
    assert sum(logged(trainer, "vade/refills")) > 0
    seen = 0
    for batch in trained.batches:
        for part in batch:
            assert {"ref_per_token_logps", "old_per_token_logps"} <= part.keys()
            for ids, mask, advantage in zip(
                part["completion_ids"], part["completion_mask"].bool(), part["advantages"].tolist(), strict=True
            ):
                if advantage:
                    assert (int(ids[mask].sum()) % 5 == 0) == (advantage > 0)
                    seen += 1
    assert seen > 20


@pytest.mark.parametrize(
    "changes",
    [
        slow({}),
        slow({"vade_sampler": "uniform"}),
        slow({"beta": 0.1, "scale_rewards": "batch"}),
        {"steps_per_generation": 2, "num_iterations": 2},
        slow({"gradient_accumulation_steps": 2, "steps_per_generation": 1}),
        {"vade_posterior_init": "rollout"},
        slow({"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}),
    ],
    ids=lambda changes: "-".join(changes) or "default",
)
def test_where_every_group_has_a_gradient_nothing_changes(text_model_path, text_rows, make_args, tmp_path, changes):
    runs = []
    for dynamic in (False, True):
        args = make_args(output_dir=str(tmp_path / str(dynamic)), vade_dynamic_sampling=dynamic, **changes)
        runs.append(train(text_model_path, text_rows, args, alternating, eval_dataset=text_rows.select(range(8))))
    assert_same_end(runs[1], runs[0])
    timed = ("time", "second", "runtime")
    for mine, theirs in zip(runs[1].state.log_history, runs[0].state.log_history, strict=True):
        assert {k: v for k, v in mine.items() if not any(word in k for word in timed)} == {
            k: v for k, v in theirs.items() if not any(word in k for word in timed)
        }
    assert set(logged(runs[1], "vade/refills")) == {0.0}


@pytest.mark.parametrize("reward", [alternating, alternating_if_live])  # a batch without a refill, and with some
def test_a_judge_that_writes_into_the_prompts_changes_nothing_that_is_trained_on(
    text_model_path, text_rows, make_refill_args, tmp_path, reward
):
    def judge(prompts, completions, **columns):
        for prompt, completion in zip(prompts, completions, strict=True):
            prompt += completion
        return reward(completions, **columns)

    trained = [
        refilled(text_model_path, text_rows, make_refill_args(max_steps=2, output_dir=str(tmp_path / name)), each)[1]
        for name, each in (("plain", reward), ("judged", judge))
    ]
    for plain, judged in zip(trained[0].batches, trained[1].batches, strict=True):
        assert plain[0]["prompt_ids"].equal(judged[0]["prompt_ids"])
        assert plain[0]["completion_ids"].equal(judged[0]["completion_ids"])


def test_a_completion_is_trained_on_with_the_prompt_that_a_transform_by_chance_had_made_for_it(
    text_model_path, text_rows, make_refill_args
):
    def by_chance(batch):
        asked = [f"{prompt[0]['content']} {random.randrange(10)}" for prompt in batch["prompt"]]
        return batch | {"prompt": [[{"role": "user", "content": content}] for content in asked]}

    answered = set()

    def noting(prompts, completion_ids, id, **columns):
        for prompt, ids in zip(prompts, completion_ids, strict=True):
            answered.add((*tokenizer.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"], *ids))
        return alternating_if_live(completion_ids, id)

    tokenizer = AutoTokenizer.from_pretrained(text_model_path)
    rows = text_rows.with_transform(by_chance)
    trainer, trained = refilled(text_model_path, rows, make_refill_args(max_steps=4), noting)
    assert sum(logged(trainer, "vade/refills")) > 0
    for batch in trained.batches:
        for part in batch:
            for prompt, prompt_mask, ids, mask in zip(
                part["prompt_ids"],
                part["prompt_mask"].bool(),
                part["completion_ids"],
                part["completion_mask"].bool(),
                strict=True,
            ):
                assert (*prompt[prompt_mask].tolist(), *ids[mask].tolist()) in answered


def test_images_are_refilled_too(vision_model_path, make_refill_args):
    args = make_refill_args(max_steps=3, per_device_train_batch_size=8, num_generations=2, vade_max_refills=2)
    counted = Counted(first_letter)
    trainer, trained = refilled(vision_model_path, rows_with_images(), args, counted)
    assert sum(logged(trainer, "vade/refills")) > 0
    assert sum(counted.calls) == trainer.selection.feedback.rollouts
    assert all("pixel_values" in part for batch in trained.batches for part in batch)


# ------------------------------------------------------------------------------------------------ what is counted


@pytest.mark.parametrize(
    "changes",
    [
        {},
        slow({"steps_per_generation": 2}),
        slow({"num_iterations": 2}),
        {"vade_posterior_init": "rollout"},
        slow({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}),
    ],
    ids=lambda changes: "-".join(changes) or "default",
)
def test_every_rollout_is_scored_once_counted_and_observed(
    text_model_path, text_rows, make_refill_args, defaults, changes
):
    trainer, counted = defaults[0], defaults[2]
    if changes:
        counted = Counted(alternating_if_live)
        trainer, _ = refilled(text_model_path, text_rows, make_refill_args(**changes), counted)
    lines = SelectionLog(trainer.args.output_dir).read()
    scored = {name: counted.rows.count(name) for name in set(counted.rows)}
    observed = np.zeros(24)
    for line in lines:
        np.add.at(observed, line["sample_index"], line["trials"])
    assert scored == {f"row-{row}": trials for row, trials in enumerate(observed) if trials}
    assert trainer.selection.feedback.rollouts == len(counted.rows) == lines[-1]["rollouts"]
    assert trainer.selection.sampler.posterior.step == len(lines)
    assert logged(trainer, "vade/rollouts")[-1] == len(counted.rows)
    prompts = [text_rows[int(name.removeprefix("row-"))]["prompt"] for name in counted.rows]
    prompt_tokens = sum(map(len, trainer._tokenize_prompts(prompts)[0]))
    assert trainer.state.num_input_tokens_seen == counted.tokens + prompt_tokens
    assert logged(trainer, "num_tokens")[-1] == trainer.state.num_input_tokens_seen


def test_the_metrics_are_of_all_groups_that_were_generated_and_once_a_generation_batch(defaults):
    trainer, _, counted = defaults
    batches = rounds_of(trainer)
    groups = [sum(len(line["sample_index"]) for line in rounds) for rounds in batches]
    assert logged(trainer, "vade/refills") == [len(rounds) - 1 for rounds in batches]
    assert logged(trainer, "vade/effective_gradient_ratio") == [4 / number for number in groups]
    assert logged(trainer, "vade/selected_pass_rate") == pytest.approx([2 / number for number in groups])
    predicted = [
        sum(line["predicted_effective_ratio"] * len(line["sample_index"]) for line in rounds) / number
        for rounds, number in zip(batches, groups, strict=True)
    ]
    assert logged(trainer, "vade/predicted_effective_ratio") == pytest.approx(predicted)
    assert set(logged(trainer, "vade/staleness")) == {0.0}
    assert set(logged(trainer, "frac_reward_zero_std")) == {0.0}  # TRL's own figures are of what is trained on
    assert set(logged(trainer, "reward")) == {0.5}
    lengths = np.array(logged(trainer, "completions/mean_length"))
    assert (lengths * groups).sum() * 4 == pytest.approx(counted.tokens)


def test_figures_averaged_over_a_logging_window_count_each_generation_batch_once(
    text_model_path, text_rows, make_refill_args
):
    trainer, _ = refilled(text_model_path, text_rows, make_refill_args(logging_steps=3))
    refills = [len(rounds) - 1 for rounds in rounds_of(trainer)]
    assert logged(trainer, "vade/refills") == pytest.approx([np.mean(refills[:3]), np.mean(refills[3:])])
    rollouts = [rounds[-1]["rollouts"] for rounds in rounds_of(trainer)]
    assert logged(trainer, "vade/rollouts") == [rollouts[2], rollouts[5]]


def test_schedules_stay_in_optimiser_steps(defaults):
    trainer = defaults[0]
    assert trainer.state.global_step == 6
    assert logged(trainer, "learning_rate") == pytest.approx([1e-2 * (1 - step / 6) for step in range(6)])


def test_an_evaluation_is_not_refilled_and_not_observed(text_model_path, text_rows, make_refill_args):
    counted = Counted(alternating_if_live)
    args = make_refill_args(max_steps=2, per_device_eval_batch_size=8)
    trainer, _ = refilled(text_model_path, text_rows, args, counted, eval_dataset=text_rows.select(range(8)))
    before, calls = trainer.selection.feedback.rollouts, len(counted.calls)
    trainer.evaluate()
    assert trainer.selection.feedback.rollouts == before
    assert sum(counted.calls[calls:]) == 8 * 4


def test_what_reward_functions_log_stays_beside_its_completion(text_model_path, text_rows, make_refill_args):
    def logging(completions, completion_ids, id, log_extra, log_metric, **kwargs):
        log_extra("row", id)
        log_extra("tokens", [len(ids) for ids in completion_ids])
        log_metric("called", 1.0)
        return alternating_if_live(completions, id)

    args = make_refill_args(log_completions=True, max_steps=3)
    trainer, _ = refilled(text_model_path, text_rows, args, logging)
    assert sum(logged(trainer, "vade/refills")) > 0
    tables = sorted(Path(trainer.args.output_dir, "completions").glob("*.parquet"))
    assert len(tables) == 3
    for path in tables:
        table = pd.read_parquet(path)
        assert len(table) == 16
        assert all(map(is_live, table["row"]))
        assert table.groupby("row").size().tolist() == [4] * 4
        for prompt, name in zip(table["prompt"], table["row"], strict=True):
            assert prompt[0]["content"].endswith(f" {int(name.removeprefix('row-')) % 10}")
    assert set(logged(trainer, "called")) == {1.0}


# --------------------------------------------------------------------------------------------- when it comes short


def dead(completions, **kwargs):
    return [0.0] * len(completions)


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if "vade_dynamic_sampling" in record.getMessage()]


@pytest.fixture
def without_guard(monkeypatch):
    """An outage of the reward is taken for the truth."""
    monkeypatch.setattr("trl_vade.selection.watch.OutageGuard.judge", lambda guard, *groups, **signal: None)


@pytest.mark.usefixtures("without_guard")
def test_when_the_refills_are_used_up_the_run_goes_on_and_says_so(
    text_model_path, text_rows, make_refill_args, caplog
):
    trainer, trained = refilled(text_model_path, text_rows, make_refill_args(vade_max_refills=2), dead)
    assert trainer.state.global_step == 6
    assert logged(trainer, "vade/refills") == [2.0] * 6
    assert trainer.selection.feedback.rollouts == 6 * 3 * 16
    assert [advantages.tolist() for advantages in trained.advantages()] == [[0.0]] * 6  # a batch has a row
    (said,) = warnings_of(caplog)
    assert "0 of the 4 groups of a generation batch have a gradient after 2 refills (vade_max_refills=2)" in said


def test_what_was_found_is_kept_when_the_refills_are_used_up(text_model_path, text_rows, make_refill_args):
    args = make_refill_args(vade_max_refills=1, vade_sampler="uniform")
    trainer, trained = refilled(text_model_path, text_rows, args)
    found = [
        min(4, sum(row % 3 == 0 for line in rounds for row in line["sample_index"])) for rounds in rounds_of(trainer)
    ]
    assert set(found) & {1, 2, 3}
    assert [int((advantages != 0).sum()) for advantages in trained.advantages()] == [4 * number for number in found]


def test_a_data_set_without_enough_other_rows_is_no_end_either(text_model_path, text_rows, make_refill_args, caplog):
    trainer, _ = refilled(text_model_path, text_rows.select(range(6)), make_refill_args(max_steps=2), dead)
    assert logged(trainer, "vade/refills") == [0.0, 0.0]
    assert "0 of the 4 groups" in warnings_of(caplog)[0]


def test_a_reward_outage_is_not_answered_with_more_rollouts(text_model_path, text_rows, make_refill_args, caplog):
    calls = []

    def breaks_down(completions, **kwargs):
        calls.append(1)
        return dead(completions) if len(calls) > 6 else alternating(completions)

    trainer, _ = refilled(text_model_path, text_rows, make_refill_args(max_steps=12), breaks_down)
    outage, refills = logged(trainer, "vade/outage"), logged(trainer, "vade/refills")
    begin = outage.index(1.0)
    assert outage[begin:] == [1.0] * (12 - begin)
    assert set(refills[begin + 1 :]) == {0.0}
    assert begin < 11


@pytest.mark.usefixtures("without_guard")
def test_a_stretch_without_a_gradient_is_counted_in_generation_batches(
    text_model_path, text_rows, make_refill_args, caplog
):
    def said():
        messages = [record.getMessage() for record in caplog.records]
        return [message for message in messages if "No group has had" in message]

    before = []  # what had been said when each call of the reward function came

    def noting(completions, **kwargs):
        before.append(said())
        return dead(completions)

    args = make_refill_args(vade_max_refills=1, max_steps=10)
    refilled(text_model_path, text_rows, args, noting)
    assert len(before) == 10 * 2
    assert not before[9 * 2]  # after nine generation batches of two rounds
    (message,) = said()
    assert "for 10 generation batches" in message


@pytest.mark.usefixtures("without_guard")
def test_a_short_batch_is_said_the_first_time_and_then_ever_more_rarely(
    text_model_path, text_rows, make_refill_args, caplog
):
    args = make_refill_args(vade_max_refills=1, max_steps=12)
    refilled(text_model_path, text_rows, args, dead)
    said = [record.getMessage() for record in caplog.records if "vade_dynamic_sampling" in record.getMessage()]
    assert [says(message, word) for message, word in zip(said, ("1", "10"), strict=True)] == [True, True]


# ------------------------------------------------------------------------------------------------------- resuming


@pytest.mark.parametrize("sampler", ["thompson", slow("uniform")])
def test_a_resumed_run_is_the_run_that_was_never_stopped(
    text_model_path, text_rows, make_refill_args, tmp_path, sampler
):
    def start(folder, callbacks=None, **more):
        changes = {"save_steps": 2, "steps_per_generation": 2, "vade_max_refills": 3, "max_steps": 8} | more
        args = make_refill_args(output_dir=str(tmp_path / folder), vade_sampler=sampler, **changes)
        return VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, callbacks=callbacks)

    whole = start("whole")
    whole.train()
    assert sum(logged(whole, "vade/refills")) > 0
    start("parts", [SaveAt(3), StopAfter(4)], save_strategy="steps").train()
    for stop in (3, 2):  # inside a generation batch, and between two
        resumed = start("parts")
        resumed.train(resume_from_checkpoint=without_later(tmp_path / "parts" / f"checkpoint-{stop}"))
        assert_same_end(resumed, whole)
        assert resumed.state.num_input_tokens_seen == whole.state.num_input_tokens_seen


# ------------------------------------------------------------------------------------------- what has a gradient


def test_the_weighted_sum_decides_and_not_the_success_signal(text_model_path, text_rows, make_refill_args, tmp_path):
    def against(completions, **kwargs):
        return [1.0 - reward for reward in alternating(completions)]

    args = make_refill_args(vade_success_reward="alternating", vade_max_refills=1, max_steps=1)
    cancelled, _ = refilled(text_model_path, text_rows, args, [alternating, against])
    assert logged(cancelled, "vade/refills") == [1.0]
    assert logged(cancelled, "vade/effective_gradient_ratio") == [0.0]
    other_folder = {"output_dir": str(tmp_path / "other")}
    args = make_refill_args(vade_success_reward="dead", vade_max_refills=1, max_steps=1, **other_folder)
    other, _ = refilled(text_model_path, text_rows, args, [alternating, dead])
    assert logged(other, "vade/refills") == [0.0]
    assert logged(other, "vade/effective_gradient_ratio") == [1.0]


@pytest.mark.parametrize(
    ("rewards", "weights", "expected"),
    [
        ([[1], [1], [0]], [1], True),
        ([[1], [1], [1]], [1], False),
        ([[0.5], [0.5], [0.5]], [1], False),  # what a filter on the mean takes for a gradient
        ([[1], [NAN], [1]], [1], False),
        ([[1], [NAN], [0]], [1], True),
        ([[1], [NAN], [NAN]], [1], False),
        ([[NAN], [NAN], [NAN]], [1], False),
        ([[1, 0], [0, 1], [1, 0]], [1, 1], False),
        ([[1, 0], [0, 1], [1, 0]], [1, 0.5], True),
        ([[1, 0], [0, 0], [1, 0]], [0, 1], False),
        ([[1, NAN], [0, 1], [1, NAN]], [1, 1], False),  # a sum over what was given: 1, 1, 1
        ([[0.1 + 0.2], [0.3], [np.float32(0.3)]], [1], False),
        ([[1000.00001], [1000.0], [1000.0]], [1], False),
        ([[1e-4], [0], [0]], [1], True),
    ],
)
def test_a_group_has_a_gradient_where_its_summed_rewards_differ(rewards, weights, expected):
    rewards = np.array([rewards], dtype=np.float64)
    assert rows_with_gradient(rewards, np.array(weights, dtype=np.float64)).any() == expected


@pytest.mark.parametrize(
    ("rewards", "trained", "expected"),
    [
        ([1, 1, 0, 0], [0, 0, 0, 1], True),
        ([1, 1, 0, 0], [0, 0, 0, 0], False),
        ([1, 1, 1, 1], [1, 1, 1, 1], False),
        ([1, 0.5, 0.5, 0], [0, 1, 1, 0], False),  # those that are trained on are at the mean: no advantage
        ([1, NAN, NAN, 0], [0, 1, 0, 0], False),
    ],
)
def test_a_group_whose_completions_with_an_advantage_are_masked_has_no_gradient(rewards, trained, expected):
    rewards = np.array(rewards, dtype=np.float64).reshape(1, 4, 1)
    trained = np.array([trained], dtype=bool)
    assert (rows_with_gradient(rewards, np.ones(1)) & trained).any() == expected


def test_truncated_completions_give_no_gradient_where_they_are_masked(
    text_model_path, text_rows, make_refill_args, tmp_path
):
    endless = {"generation_kwargs": {"suppress_tokens": [0, 2]}, "vade_max_refills": 1, "max_steps": 1}
    args = make_refill_args(mask_truncated_completions=True, **endless)
    masked, _ = refilled(text_model_path, text_rows, args, alternating)
    assert logged(masked, "vade/refills") == [1.0]
    args = make_refill_args(output_dir=str(tmp_path / "plain"), **endless)
    plain, _ = refilled(text_model_path, text_rows, args, alternating)
    assert logged(plain, "vade/refills") == [0.0]
    changes = {"max_completion_length": 24, "max_steps": 2, "output_dir": str(tmp_path / "ended")}
    args = make_refill_args(mask_truncated_completions=True, **changes)
    ended, trained = refilled(text_model_path, text_rows, args, alternating)
    assert max(logged(ended, "completions/clipped_ratio")) < 0.9
    for batch in trained.batches:
        assert any((part["completion_mask"].sum(dim=1) * part["advantages"]).any() for part in batch)


@pytest.mark.parametrize("normalise", [False, True])
def test_a_gradient_is_what_trl_makes_an_advantage_of(text_model_path, text_rows, make_args, normalise):
    """TRL's own advantages of random rewards, many of them equal or missing."""
    dice = np.random.default_rng(0)
    rewards = dice.integers(0, 2, size=(32, 4, 2)) * np.array([1.0, 0.5])
    rewards[dice.random(rewards.shape) < 0.2] = NAN
    table = torch.tensor(rewards.reshape(-1, 2), dtype=torch.float32)
    args = make_args(
        per_device_train_batch_size=128,
        multi_objective_aggregation="normalize_then_sum" if normalise else "sum_then_normalize",
        reward_weights=[1.0, 2.0],
        vade_success_reward="alternating",
    )
    trainer = VADEGRPOTrainer(text_model_path, [alternating, dead], args, text_rows.select([0] * 32))
    trainer._calculate_rewards = lambda *_: table
    made = trainer._generate_and_score_completions([text_rows[0] for _ in range(128)])["advantages"].view(32, 4)
    scored = ~np.isnan(rewards).all(axis=2)
    differ = []
    for group, known in zip(made.double().numpy(), scored, strict=True):
        differ.append(bool(known.any() and np.ptp(group[known]) > 1e-4))
    ours = rows_with_gradient(rewards, np.array([1.0, 2.0]), normalise=normalise).any(axis=1)
    assert ours.tolist() == differ
    assert 8 < ours.sum() < 32


def test_equal_rewards_are_not_scaled_up_to_a_gradient_by_their_rounding():
    rewards = np.array([[[0.1 + 0.2], [0.3], [np.float32(0.3)]]], dtype=np.float64)
    assert not rows_with_gradient(rewards, np.ones(1), normalise=True).any()


@pytest.mark.parametrize(
    ("has_gradient", "num_groups", "expected"),
    [
        ([1, 1], 2, [0, 1]),
        ([0, 1, 1], 2, [1, 2]),
        ([0, 1, 0, 0], 2, [0, 1]),
        ([0, 0, 0], 2, [0, 1]),
        ([1, 0, 1, 1], 2, [0, 2]),  # a refill that was rounded up: the last is too many
    ],
)
def test_groups_with_a_gradient_come_first_and_the_order_is_that_of_the_draws(has_gradient, num_groups, expected):
    assert first_of(np.array(has_gradient, dtype=bool), num_groups).tolist() == expected


# ------------------------------------------------------------------------------------------------------ safeguards


class OwnBatch(VADEGRPOTrainer):
    def _generate(self, prompts):
        ids = self._tokenize_prompts(prompts)[0]
        return ids, [[5, 6]] * len(ids), None, ["a"] * len(ids), None, {}, None, []


def test_completions_that_are_not_those_that_were_scored_are_never_trained_on(
    text_model_path, text_rows, make_refill_args
):
    with pytest.raises(RuntimeError, match="call super"):
        refilled(text_model_path, text_rows, make_refill_args(), trainer_class=OwnBatch)


def test_an_error_in_a_reward_function_leaves_the_trainer_as_it_was(text_model_path, text_rows, make_refill_args):
    def fails(completions, **kwargs):
        raise LookupError("no answer")

    trainer = VADEGRPOTrainer(text_model_path, fails, make_refill_args(), text_rows)
    metrics = trainer._metrics["train"]
    with pytest.raises(LookupError, match="no answer"):
        trainer.train()
    assert trainer._metrics["train"] is metrics
    assert trainer._batch.output is trainer._batch.rewards is None


def test_without_dynamic_sampling_nothing_is_refilled(text_model_path, text_rows, make_args):
    trainer = train(text_model_path, text_rows, make_args(max_steps=2), dead)
    assert logged(trainer, "vade/refills") == [0.0, 0.0]
    assert trainer.selection.feedback.rollouts == 32
