"""`vade_replay`: what is trained on again, and that its gradient is TRL's of the same rows.

Resumes: `test_battery.py`, `checkpoint/test_generation_batch.py`. Two processes: `tests/integration`.
"""

import gc
import itertools
import math
import weakref
from collections import Counter

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOTrainer
from trl.trainer.utils import pad

from tests.support.families import write_family
from tests.support.marks import slow_but
from tests.support.refusals import refused
from tests.support.runs import (
    SMALL_RUN,
    SPLIT,
    SaveAt,
    StopAfter,
    always_half,
    assert_equal_weights,
    fifth_letter,
    largest_difference,
    logged,
    rows_with_images,
    weights,
)
from tests.support.vision_runs import picture_rows
from tests.trainer.images.test_families import KEPT_ONCE
from trl_vade import ConfigurationError, VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.trainer.batch_rows import joined, loss_mask
from trl_vade.trainer.grpo_config import with_vade_defaults
from trl_vade.trainer.replay import Replay

SGD = {"learning_rate": 0.3, "lr_scheduler_type": "constant", "optim": "sgd", "max_grad_norm": 1e9, "max_steps": 2}
SGD |= {"epsilon": 0.18}


def second_group(calls):
    """Gives a gradient to two rows of the first batch, and to four of each later one."""

    def reward(completions, **columns):
        return [0.0] * 4 + ([0.0, 0.5, 1.0, 0.5] if next(calls) == 0 else [0.0, 1.0, 1.0, 0.0]) + [0.0] * 8

    return reward


class WeightsBefore(TrainerCallback):
    """Notes the weights before each step."""

    def __init__(self):
        self.noted = []

    def on_step_begin(self, args, state, control, model, **kwargs):
        self.noted.append({name: value.clone() for name, value in model.state_dict().items()})


def by_row(batch, name, mask):
    """The values of each row of a batch without padding."""
    return [row[kept.bool()] for row, kept in zip(batch[name], batch[mask], strict=True)]


def in_trls_form(first, second, places, logps):
    """A batch of TRL's of `places` in the rows of two batches, with the log-probabilities of the first ones."""
    made = {}
    for part, side in (("prompt", "left"), ("completion", "right")):
        ids = [row for batch in (first, second) for row in by_row(batch, f"{part}_ids", f"{part}_mask")]
        ids = [ids[place] for place in places]
        made[f"{part}_ids"] = pad(ids, padding_value=0, padding_side=side)
        made[f"{part}_mask"] = pad([torch.ones_like(row) for row in ids], padding_value=0, padding_side=side)
    made["advantages"] = torch.cat([first["advantages"], second["advantages"]])[places]
    made["old_per_token_logps"] = pad([logps[place] for place in places], padding_value=0.0)
    made["num_items_in_batch"] = made["completion_mask"].sum()
    made["tool_mask"] = made["completion_mask"] * (made["advantages"] != 0)[:, None]  # a KL term is of these alone
    return made


def passed(trainer, batch, model=None):
    """The log-probabilities of the tokens of each row, by a pass with the trainer's weights or another model's."""
    whole = [torch.cat([batch[f"prompt_{name}"], batch[f"completion_{name}"]], 1) for name in ("ids", "mask")]
    model, width = model or trainer.model, batch["completion_ids"].shape[1]
    with torch.no_grad():
        logps = trainer._get_per_token_logps_and_entropies(model, *whole, width)[0]
    return by_row(batch | {"logps": logps}, "logps", "completion_mask")


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss_type": "cispo", "epsilon_high": 1.19},
        {"loss_type": "vespo"},
        {"loss_type": "grpo"},
        {"loss_type": "dr_grpo"},
        {"loss_type": "luspo", "importance_sampling_level": "sequence", "epsilon": 0.35},
        {"loss_type": "sapo"},
        {"loss_type": "grpo", "importance_sampling_level": "sequence", "delta": 1.5},
        {"loss_type": "grpo"} | SPLIT,
        {"off_policy_mask_threshold": 1e-4},
        {"beta": 0.5, "vade_down_sampling": "live"} | SPLIT,
    ],
    ids=str,
)
def test_an_update_with_an_older_group_is_trls_of_the_same_rows(made, watched, settings):
    before = WeightsBefore()
    rows = Dataset.from_list([{"prompt": "say a digit above"[: 5 + 6 * (i % 3)], "id": str(i)} for i in range(24)])
    more = {"callbacks": [before]}
    trainer = made(second_group(itertools.count()), rows, more=more, vade_replay=1, **SGD | settings)
    with watched() as (batches, _):
        trainer.train()
    (first, second), size = batches, len(batches[0]["advantages"])
    live, new = ([place for place in range(size) if each["advantages"][place]] for each in batches)
    assert 0 < len(live) < size - len(new)
    assert logged(trainer, "vade/replayed_rows") == [0, len(live)]
    dead = [place for place in range(size) if place not in new]
    stock = made(trainer_class=GRPOTrainer, **{k: v for k, v in (SGD | settings).items() if k != "vade_down_sampling"})
    stock.model.train()
    stock.model.load_state_dict(before.noted[0])
    logps = passed(stock, first)
    stock.model.load_state_dict(before.noted[1])
    logps += passed(stock, second)
    places = live + [size + place for place in [*new, *dead[: len(dead) - len(live)]]]
    batch = in_trls_form(first, second, places, logps)
    if stock.ref_model:
        reference = [row for each in batches for row in passed(stock, each, stock.ref_model)]
        batch["ref_per_token_logps"] = pad([reference[place] for place in places], padding_value=0.0)
    stock.args.steps_per_generation = stock.current_gradient_accumulation_steps = 1
    stock._compute_loss(stock.model, batch).backward()
    expected = {name: each.detach() - 0.3 * each.grad for name, each in stock.model.named_parameters()}
    found = weights(trainer)
    moved = largest_difference(before.noted[1], expected)
    assert largest_difference({name: found[name] for name in expected}, expected) < 1e-5 * moved
    # Some of the old tokens are clipped, or this says nothing.
    clipped = []
    for place, now in zip(live, [passed(stock, first)[place] for place in live], strict=True):
        ratio = (now - logps[place]).exp()
        if "importance_sampling_level" in settings:
            ratio = (now - logps[place]).mean().exp().expand(len(now))
        low, high = 1 - trainer.epsilon_low, 1 + trainer.epsilon_high
        if settings.get("loss_type") == "cispo":
            low, high = 0.0, 1.19
        clipped += ((ratio > high) if first["advantages"][place] > 0 else (ratio < low)).tolist()
    if "gradient_accumulation_steps" not in settings:  # else a mean of those of the micro-batches
        assert logged(trainer, "vade/replay_clip_ratio") == pytest.approx([sum(clipped) / len(clipped)])
    assert 0 < sum(clipped) < len(clipped)


@pytest.fixture
def passes(monkeypatch):
    """Of each pass of a loss the ages of its rows, the micro-batch, and how the log-probabilities have changed."""
    noted, fill_in = [], Replay.fill_in

    def noting(self, micro_batch, logps):
        fill_in(self, micro_batch, logps)
        change = (logps.detach() - micro_batch["old_per_token_logps"]) * loss_mask(micro_batch)
        noted.append((self._ages(micro_batch), micro_batch, change))

    monkeypatch.setattr(Replay, "fill_in", noting)
    return noted


@pytest.mark.parametrize("iterations", [1, 2])
@pytest.mark.parametrize("settings", [{"vade_sampler": "uniform"}, SPLIT], ids=str)
def test_the_newest_groups_come_again_whole_and_no_update_is_larger_than_trls(run, passes, settings, iterations):
    """A reward by place gives a gradient to 1, 3, 0 and 2 groups of four batches, over and over."""
    calls, parts = itertools.count(), settings.get("gradient_accumulation_steps", 1)

    def some(completions, **columns):
        live = ((1,), (0, 1, 2), (), (2, 3))[next(calls) % 4]
        return [float(i // 4 in live and i % 4 == 0) for i in range(len(completions))]

    settings = settings | {"vade_down_sampling": "lossless", "vade_replay": 2, "num_iterations": iterations}
    trainer = run(some, max_steps=8 * iterations, **settings)
    found = []
    for first in range(0, len(passes), parts * iterations):
        ages = torch.cat([each[0] for each in passes[first:][:parts]])
        numbers = torch.cat([each[1]["vade_group"] for each in passes[first:][:parts]])
        assert {*Counter(numbers.tolist()).values()} == {4}
        found.append(Counter(ages.tolist()))
    # The fourth of each has 2 groups and takes 2 of the 3 that are two batches old.
    cycle = [{0: 4, 1: 8}, {0: 12, 1: 4}, {1: 12, 2: 4}, {0: 8, 2: 8}]
    assert found == [{0: 4}, *cycle[1:], *cycle]
    assert logged(trainer, "vade/replayed_rows") == [0, 4, 16, 8, 8, 4, 16, 8]
    assert logged(trainer, "vade/replay_age")[:3] == [1.0, 1.25, 2.0]
    assert trainer.selection.feedback.rollouts == 8 * 16
    assert logged(trainer, "vade/trained_completions")[-1] == iterations * sum(sum(each.values()) for each in found)


def test_no_update_has_more_padded_tokens_than_trls(made, watched):
    """One of four groups has a gradient. Three older ones would fill the batch, and where they are long fewer do."""
    rows = Dataset.from_list([{"prompt": "say a digit above " * (1 + i % 6), "id": str(i)} for i in range(24)])
    settings = {"vade_sampler": "uniform", "vade_down_sampling": "lossless", "vade_replay": 4, "max_steps": 12}
    trainer = made(lambda completions, **columns: [1.0] + [0.0] * (len(completions) - 1), rows, **settings)
    with watched() as (batches, updates):
        trainer.train()
    for whole, trained in zip(batches, updates, strict=True):
        assert sum(trained[name].numel() - whole[name].numel() for name in ("prompt_ids", "completion_ids")) <= 0
    assert {*logged(trainer, "vade/replayed_rows")} == {0, 4, 8, 12}


@pytest.mark.parametrize("family", slow_but(("idefics3", "qwen2_5_vl"), KEPT_ONCE))
def test_older_rows_keep_their_pictures(made, passes, tmp_path, family):
    """At a rate of 0 a row has the log-probabilities that it was written with, if all of its inputs are the same."""
    rows = picture_rows(8, pictures=(2, 1, 0, 1))
    settings = {"learning_rate": 0.0, "max_steps": 4, "vade_replay": 3} | SPLIT
    trainer = made(fifth_letter, rows, model=write_family(family, tmp_path), **settings)
    trainer.train()
    assert any(age and n for ages, batch, _ in passes for age, n in zip(ages, batch["num_images"], strict=True))
    assert max(change.abs().max() for _, _, change in passes) < 1e-5


@pytest.mark.parametrize("batches", [0, 2])
def test_the_pixels_of_a_batch_are_gone_when_the_next_one_is_scored_unless_its_groups_may_come_again(
    made, vision_model_path, batches
):
    stores, alive = [], []

    def noting(completions, **columns):
        gc.collect()
        alive.extend(each() is not None for each in stores[-1:])
        stores.append(weakref.ref(trainer._images.store))
        return fifth_letter(completions)

    settings = {"vade_down_sampling": "live", "vade_replay": batches, "max_steps": 3}
    trainer = made(noting, rows_with_images(), model=vision_model_path, **settings)
    trainer.train()
    assert alive == [batches > 0] * 2


def test_where_every_group_has_a_gradient_and_without_replay_the_weights_are_those_of_before(run):
    def split(completions, **columns):
        return [float(i % 2) for i in range(len(completions))]

    once, again = (run(split, vade_replay=batches) for batches in (0, 4))
    assert_equal_weights(weights(once), weights(again))
    assert sum(logged(again, "vade/replayed_rows")) == 0


def test_rows_of_other_widths_are_padded_as_trl_pads_and_what_they_lack_stands_for_nothing():
    """Above all vLLM's ratio is 1 where there is no token: VESPO takes the sum of its logarithm over all places."""

    def part(prompt, completion, ratio, **more):
        made = {name: torch.ones(1, prompt) for name in ("prompt_ids", "prompt_mask")}
        made |= {name: torch.ones(1, completion) for name in ("completion_ids", "completion_mask")}
        return made | {"advantages": torch.ones(1), "importance_sampling_ratio": torch.full((1, ratio), 0.5)} | more

    images = {"pixel_values": [torch.ones(2, 1)], "num_images": [1], "mm_token_type_ids": torch.ones(1, 5)}
    both = joined([part(2, 3, 3, tool_mask=torch.zeros(1, 3), **images), part(4, 1, 1)], pad_token_id=7)
    assert both["prompt_ids"].tolist() == [[7, 7, 1, 1], [1, 1, 1, 1]]
    assert both["completion_ids"].tolist() == [[1, 1, 1], [1, 7, 7]]
    assert both["completion_mask"].tolist() == [[1, 1, 1], [1, 0, 0]]
    assert both["importance_sampling_ratio"].tolist() == [[0.5, 0.5, 0.5], [0.5, 1, 1]]
    assert both["tool_mask"].tolist() == [[0, 0, 0], [1, 0, 0]]
    assert both["mm_token_type_ids"].tolist() == [[0, 0, 1, 1, 1, 1, 1], [0] * 7]
    assert (both["num_images"], [len(each) for each in both["pixel_values"]]) == ([1, 0], [2, 0])
    of_rows = joined([part(2, 3, 1), part(2, 1, 1)])
    assert of_rows["importance_sampling_ratio"].tolist() == [[0.5], [0.5]]


@pytest.mark.parametrize(("before", "after"), [(0, 2), (2, 0)])
def test_a_run_that_goes_on_inside_a_batch_may_begin_it_and_end_it(made, run, tmp_path, before, after):
    """Rows that fill up a micro-batch have no log-probabilities before its pass."""
    steps = {"per_device_train_batch_size": 4, "steps_per_generation": 4, "gradient_accumulation_steps": 1}
    settings = {"vade_down_sampling": "live", "beta": 0.1, "output_dir": tmp_path / "run", "max_steps": 16} | steps
    stop = {"callbacks": [SaveAt(5), StopAfter(5)]}
    run(second_group(itertools.count()), vade_replay=before, more=stop, **settings)
    trainer = made(second_group(itertools.count(2)), vade_replay=after, **settings)
    trainer.train(resume_from_checkpoint=f"{tmp_path}/run/checkpoint-5")
    assert all(math.isfinite(loss) for loss in logged(trainer, "loss"))
    assert (logged(trainer, "vade/replayed_rows")[-1:] == [4.0]) == (after > 0)
    clipped = [entry["step"] for entry in trainer.state.log_history if "vade/replay_clip_ratio" in entry]
    assert (max(clipped) > 8) == (after > 0)  # step 8 ends the batch that the checkpoint is inside of


class SeesTheRows(VADEGRPOTrainer):
    def compute_loss(self, *positional, **named):
        return super().compute_loss(*positional, **named)


def test_where_the_rows_are_not_ours_to_move_it_is_off_and_that_is_said(made, vision_model_path, caplog):
    settings = {"vade_replay": 2, "vade_down_sampling": "live"}
    trainer = made(trainer_class=SeesTheRows, **settings)
    images = made(always_half, rows_with_images(), model=vision_model_path, vade_images_once=False, **settings)
    agent = made(**settings)
    agent.tools = [always_half]
    found = [each._batch.thinning.replay.batches for each in (trainer, images)] + [Replay(agent, "live").batches]
    assert found == [0, 0, 0]
    assert [word for word in ("SeesTheRows.compute_loss", "images", "tools") if word not in caplog.text] == []


@pytest.mark.parametrize(
    ("settings", "names"),
    [
        ({"vade_sampler": "uniform"}, ["vade_down_sampling=None", "none"]),
        ({"vade_down_sampling": "d3s"}, ["vade_down_sampling='d3s'"]),
        ({"beta": 0.1}, ["vade_down_sampling=None"]),
        ({"gradient_accumulation_steps": 2, "steps_per_generation": 1}, ["gradient_accumulation_steps=2"]),
    ],
)
def test_settings_that_it_cannot_work_with_are_refused_before_the_load(tmp_path, settings, names):
    with refused(ConfigurationError, ["vade_replay=4", *names], ["vade_replay=0"]):
        VADEGRPOConfig(str(tmp_path), **SMALL_RUN | settings, vade_replay=4)
    args = VADEGRPOConfig(str(tmp_path), **SMALL_RUN | {"num_generations": 8, "vade_replay": 4})
    args.per_device_train_batch_size = 12  # as on two processes
    with refused(ConfigurationError, ["vade_replay=4", 12, "num_generations=8"], ["vade_replay=0"]):
        with_vade_defaults(args)
