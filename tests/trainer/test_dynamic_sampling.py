"""DAPO's dynamic sampling in the real trainer: what is trained on, what is counted, and what stays as it was.

Its resume: `test_battery.py`; its evaluation: `test_grpo_trainer.py`.
"""

import random
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoTokenizer, TrainerCallback

from tests.support.as_stock import full_history
from tests.support.marks import slow, slow_but
from tests.support.own_samplers import OWN
from tests.support.rows import make_text_rows
from tests.support.runs import assert_same_end, first_letter, logged, make_trainer, rows_with_images
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import rows_with_gradient
from trl_vade.trainer.batch import logger

NAN = float("nan")


def is_live(name):
    """A third of the 24 rows have right and wrong answers; the others' are all wrong."""
    return int(name.removeprefix("row-")) % 3 == 0


def alternating(completions, **columns):
    """Right and wrong in turn, whatever the answer: every group has a gradient."""
    return [float(i % 2) for i in range(len(completions))]


def alternating_if_live(completions, id, **columns):
    return [float(is_live(name) and i % 2) for i, name in enumerate(id)]


def dead(completions, **columns):
    return [0.0] * len(completions)


class Counted:
    """A reward function that notes what it is called for."""

    def __init__(self, reward):
        self.__name__, self.reward = reward.__name__, reward
        self.rows, self.lengths = [], []

    def __call__(self, completions, completion_ids, id, **columns):
        self.rows += id
        self.lengths += map(len, completion_ids)
        return self.reward(completions=completions, completion_ids=completion_ids, id=id, **columns)


class Trained(TrainerCallback):
    """Notes the generation batch that each optimiser step trains on."""

    def __init__(self):
        self.batches = []

    def on_step_end(self, args, state, control, **kwargs):
        self.batches.append([dict(part) for part in self.trainer._buffered_inputs])

    def advantages(self):
        return [torch.cat([part["advantages"] for part in batch]) for batch in self.batches]


@pytest.fixture(scope="module")
def refilled(text_model_path, tmp_path_factory):
    """A function that trains with refills, and returns the trainer and its `Trained`."""

    def train(reward=alternating_if_live, rows=None, model=text_model_path, **settings):
        trained = Trained()
        settings = {"vade_dynamic_sampling": True, "more": {"callbacks": [trained]}} | settings
        rows = make_text_rows() if rows is None else rows
        trained.trainer = make_trainer(tmp_path_factory.mktemp("run"), model, rows, reward, **settings)
        trained.trainer.train()
        return trained.trainer, trained

    return train


@pytest.fixture(scope="module")
def defaults(refilled):
    """One recorded run for the tests that only look at it: trainer, `Trained`, `Counted`."""
    counted = Counted(alternating_if_live)
    return *refilled(counted, lr_scheduler_type="linear"), counted


def rounds_of(trainer):
    """The lines of the selection log, those of a generation batch together."""
    batches = []
    for line in SelectionLog(trainer.args.output_dir).read():
        if "refill" not in line:
            batches.append([])
        batches[-1].append(line)
    return batches


def refills(trainer):
    return logged(trainer, "vade/refills")


# --------------------------------------------------------------------------------------------- what is trained on


@pytest.mark.parametrize("sampler", slow_but(["thompson", OWN], ["thompson", "greedy", "uniform", OWN]))
def test_only_groups_with_a_gradient_are_trained_on_and_no_row_twice(refilled, sampler):
    trainer, trained = refilled(vade_sampler=sampler, max_steps=4)
    assert sum(refills(trainer)) > 0
    for rounds, advantages in zip(rounds_of(trainer), trained.advantages(), strict=True):
        chosen = [row for line in rounds for row in line["sample_index"]]
        assert len(set(chosen)) == len(chosen)
        assert sum(row % 3 == 0 for row in chosen) == 4
        assert (advantages != 0).all()


def test_each_refill_asks_for_what_is_missing(defaults):
    for rounds in rounds_of(defaults[0]):
        missing = 4
        for line in rounds:
            assert len(line["sample_index"]) == missing
            missing -= sum(row % 3 == 0 for row in line["sample_index"])
        assert missing == 0
        assert [line.get("refill", 0) for line in rounds] == list(range(len(rounds)))


def unpadded(part, *names):
    """The ids of each row of a micro-batch: of its prompt, its completion, or both."""
    for i in range(len(part["prompt_ids"])):
        yield tuple(torch.cat([part[f"{name}_ids"][i][part[f"{name}_mask"][i].bool()] for name in names]).tolist())


def test_each_completion_is_trained_on_with_its_own_reward(refilled, one_refill):
    def by_the_tokens(completions, completion_ids, **columns):
        return [float(sum(ids) % 5 == 0) for ids in completion_ids]

    settings = {"beta": 0.1, "num_iterations": 2, "loss_type": "grpo"}
    trainer, trained = refilled(by_the_tokens, **settings)
    assert sum(refills(trainer)) > 0
    seen = [
        (sum(ids) % 5 == 0, advantage > 0)
        for batch in trained.batches
        for part in batch
        for ids, advantage in zip(unpadded(part, "completion"), part["advantages"].tolist(), strict=True)
        if advantage
    ]
    assert len(seen) > 20
    assert all(right == raised for right, raised in seen)
    assert {"ref_per_token_logps", "old_per_token_logps"} <= trained.batches[0][0].keys()


def test_a_completion_is_trained_on_with_the_prompt_that_it_answers_whatever_a_transform_or_a_judge_does(
    refilled, text_model_path, text_rows
):
    """The transform makes another prompt each time; the judge writes into the prompt that it is given."""
    answered, tokenizer = set(), AutoTokenizer.from_pretrained(text_model_path)

    def by_chance(batch):
        asked = [f"{prompt[0]['content']} {random.randrange(10)}" for prompt in batch["prompt"]]
        return batch | {"prompt": [[{"role": "user", "content": content}] for content in asked]}

    def judge(prompts, completions, completion_ids, id, **columns):
        for prompt, completion, ids in zip(prompts, completions, completion_ids, strict=True):
            answered.add((*tokenizer.apply_chat_template(prompt, add_generation_prompt=True)["input_ids"], *ids))
            prompt += completion
        return alternating_if_live(completions, id)

    trainer, trained = refilled(judge, text_rows.with_transform(by_chance), max_steps=4)
    assert sum(refills(trainer)) > 0
    pairs = [pair for batch in trained.batches for part in batch for pair in unpadded(part, "prompt", "completion")]
    assert {*pairs} <= answered


def test_images_are_refilled_too(refilled, one_refill, vision_model_path):
    sizes = {"max_steps": 3, "per_device_train_batch_size": 8, "num_generations": 2}
    counted = Counted(first_letter)
    trainer, trained = refilled(counted, rows_with_images(), model=vision_model_path, **sizes)
    assert sum(refills(trainer)) > 0
    assert len(counted.rows) == trainer.selection.feedback.rollouts
    pixels = [part["pixel_values"] for batch in trained.batches for part in batch]
    assert not any(each.is_floating_point() for each in pixels)  # numbers of pictures that are kept once


@pytest.mark.parametrize(
    "changes",
    [
        slow({"vade_sampler": "uniform"}),
        slow({"beta": 0.1, "scale_rewards": "batch"}),
        {"steps_per_generation": 2, "num_iterations": 2},
        {"vade_posterior_init": "rollout"},
    ],
    ids=str,
)
def test_where_every_group_has_a_gradient_nothing_changes(refilled, changes):
    off, on = (refilled(alternating, vade_dynamic_sampling=dynamic, **changes)[0] for dynamic in (False, True))
    assert_same_end(on, off)
    assert full_history(on) == full_history(off)
    assert set(refills(on)) == {0.0}


# ------------------------------------------------------------------------------------------------ what is counted


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"vade_posterior_init": "rollout"},
        slow({"steps_per_generation": 2, "num_iterations": 2}),
        slow({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}),
    ],
    ids=str,
)
def test_every_rollout_is_scored_once_counted_and_observed(refilled, text_rows, defaults, changes):
    trainer, _, counted = defaults
    if changes:
        counted = Counted(alternating_if_live)
        trainer, _ = refilled(counted, **changes)
    lines = SelectionLog(trainer.args.output_dir).read()
    observed = np.zeros(24)
    for line in lines:
        np.add.at(observed, line["sample_index"], line["trials"])
    assert observed.tolist() == [counted.rows.count(f"row-{row}") for row in range(24)]
    assert trainer.selection.feedback.rollouts == len(counted.rows) == lines[-1]["rollouts"]
    assert trainer.selection.sampler.posterior.step == len(lines)
    assert logged(trainer, "vade/rollouts")[-1] == len(counted.rows)
    prompts = [text_rows[int(name.removeprefix("row-"))]["prompt"] for name in counted.rows]
    tokens = sum(counted.lengths) + sum(map(len, trainer._tokenize_prompts(prompts)[0]))
    assert trainer.state.num_input_tokens_seen == tokens == logged(trainer, "num_tokens")[-1]


def test_the_metrics_are_of_all_groups_that_were_generated_and_schedules_stay_in_optimiser_steps(defaults):
    trainer, _, counted = defaults
    batches = rounds_of(trainer)
    groups = [sum(len(line["sample_index"]) for line in rounds) for rounds in batches]
    assert refills(trainer) == [len(rounds) - 1 for rounds in batches]
    assert logged(trainer, "vade/effective_gradient_ratio") == [4 / number for number in groups]
    assert logged(trainer, "vade/selected_pass_rate") == pytest.approx([2 / number for number in groups])
    assert set(logged(trainer, "vade/staleness")) == {0.0}
    assert set(logged(trainer, "frac_reward_zero_std")) == {0.0}  # TRL's own figures are of what is trained on
    assert set(logged(trainer, "reward")) == {0.5}
    for name, of_batch in (("mean", np.mean), ("min", min), ("max", max)):
        wanted = [of_batch(lengths) for lengths in np.split(counted.lengths, 4 * np.cumsum(groups)[:-1])]
        assert logged(trainer, f"completions/{name}_length") == pytest.approx(wanted)
    assert logged(trainer, "learning_rate") == pytest.approx([1e-2 * (1 - step / 6) for step in range(6)])


def test_what_reward_functions_log_stays_beside_its_completion(refilled):
    def logging(completions, completion_ids, id, log_extra, log_metric, **columns):
        log_extra("row", id)
        log_metric("called", 1.0)
        return alternating_if_live(completions, id)

    trainer, _ = refilled(logging, log_completions=True, max_steps=3)
    assert sum(refills(trainer)) > 0
    tables = [pd.read_parquet(path) for path in Path(trainer.args.output_dir, "completions").glob("*.parquet")]
    assert [len(table) for table in tables] == [16] * 3
    for table in tables:
        assert all(map(is_live, table["row"]))
        assert table.groupby("row").size().tolist() == [4] * 4
        for prompt, name in zip(table["prompt"], table["row"], strict=True):
            assert prompt[0]["content"].endswith(f" {int(name.removeprefix('row-')) % 10}")
    assert set(logged(trainer, "called")) == {1.0}


# --------------------------------------------------------------------------------------------- when it comes short


def messages(caplog, words):
    return [record.getMessage() for record in caplog.records if words in record.getMessage()]


def test_when_the_refills_are_used_up_the_run_goes_on_and_says_so_once(refilled, one_refill, caplog, monkeypatch):
    # An outage of the reward is taken for the truth.
    monkeypatch.setattr("trl_vade.selection.watch.OutageGuard.judge", lambda guard, *groups, **signal: None)
    logger.warning_once.cache_clear()  # said before, in another test
    trainer, trained = refilled(dead, max_steps=12)
    assert trainer.state.global_step == 12
    assert refills(trainer) == [1.0] * 12
    assert trainer.selection.feedback.rollouts == 12 * 2 * 16
    assert [advantages.tolist() for advantages in trained.advantages()] == [[0.0]] * 12  # a batch has a row
    assert len(messages(caplog, "(1 at most)")) == 1
    assert "for 10 generation batches" in messages(caplog, "No group has had")[0]  # not for 5, of two rounds each


def test_what_was_found_is_kept_when_the_refills_are_used_up(refilled, one_refill):
    trainer, trained = refilled(vade_sampler="uniform")
    rounds = rounds_of(trainer)
    found = [min(4, sum(row % 3 == 0 for line in each for row in line["sample_index"])) for each in rounds]
    assert set(found) & {1, 2, 3}
    assert [int((advantages != 0).sum()) for advantages in trained.advantages()] == [4 * number for number in found]


def test_a_reward_outage_is_not_answered_with_more_rollouts(refilled):
    calls = []

    def breaks_down(completions, **columns):
        calls.append(1)
        return dead(completions) if len(calls) > 6 else alternating(completions)

    trainer, _ = refilled(breaks_down, max_steps=12)
    outage = logged(trainer, "vade/outage")
    begin = outage.index(1.0)
    assert outage[begin:] == [1.0] * (12 - begin)
    assert set(refills(trainer)[begin + 1 :]) == {0.0}
    assert begin < 11


# ------------------------------------------------------------------------------------------- what has a gradient


def against(completions, **columns):
    return [1.0 - reward for reward in alternating(completions)]


ENDLESS = {"generation_kwargs": {"suppress_tokens": [0, 2]}}


@pytest.mark.parametrize(
    ("reward", "settings", "wanted"),
    [
        # The weighted sum decides, and not the success signal.
        ([alternating, against], {"vade_success_reward": "alternating"}, 1.0),
        ([alternating, dead], {"vade_success_reward": "dead"}, 0.0),
        # A truncated completion gives no gradient where it is masked.
        (alternating, {"mask_truncated_completions": True, **ENDLESS}, 1.0),
        (alternating, ENDLESS, 0.0),
    ],
)
def test_a_group_is_refilled_where_trl_trains_on_nothing_of_it(refilled, one_refill, reward, settings, wanted):
    trainer, _ = refilled(reward, max_steps=1, **settings)
    assert refills(trainer) == [wanted]


@pytest.mark.parametrize("normalise", [False, True])
def test_a_gradient_is_what_trl_makes_an_advantage_of(made, text_rows, normalise):
    """TRL's own advantages of random rewards, many of them equal or missing. Rounding is no difference."""
    dice = np.random.default_rng(0)
    rewards = dice.integers(0, 2, size=(32, 4, 2)) * np.array([1.0, 0.5])
    rewards[dice.random(rewards.shape) < 0.2] = NAN
    trainer = made(
        [alternating, dead],
        text_rows.select([0] * 32),
        per_device_train_batch_size=128,
        multi_objective_aggregation="normalize_then_sum" if normalise else "sum_then_normalize",
        reward_weights=[1.0, 2.0],
        vade_success_reward="alternating",
    )
    trainer._calculate_rewards = lambda *_: torch.tensor(rewards.reshape(-1, 2), dtype=torch.float32)
    found = trainer._generate_and_score_completions([text_rows[0] for _ in range(128)])["advantages"].view(32, 4)
    scored = ~np.isnan(rewards).all(axis=2)
    differ = [
        bool(known.any() and np.ptp(group[known]) > 1e-4)
        for group, known in zip(found.double().numpy(), scored, strict=True)
    ]
    ours = rows_with_gradient(rewards, np.array([1.0, 2.0]), normalise=normalise).any(axis=1)
    assert ours.tolist() == differ
    assert 8 < ours.sum() < 32
    rounded = np.array([[[0.1 + 0.2], [0.3], [np.float32(0.3)]], [[1000.00001], [1000.0], [1000.0]]])
    assert not rows_with_gradient(rounded, np.array([1.0]), normalise=normalise).any()
