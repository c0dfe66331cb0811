"""Every family of vision models that TRL trains, on pictures of several sizes, with stock TRL and with ours."""

from dataclasses import dataclass
from functools import cache
from typing import Any

import pytest
import torch
from transformers import AutoConfig
from trl import GRPOTrainer

from tests.support.as_stock import assert_as_stock
from tests.support.families import FAMILIES, write_family
from tests.support.marks import slow, slow_but
from tests.support.runs import logged, make_trainer
from tests.support.seen_pictures import SeenPictures, seen_pictures
from tests.support.vision_runs import FirstGradients, assert_same_but_for_rounding, images, picture_rows
from trl_vade.trainer.generation.corrections import vision_token_ids

DEFAULT = ("idefics3",)  # Qwen2.5-VL: test_images_once.py, test_battery.py
FOUR_ROWS = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}  # 4 completions of each in a batch
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 4, "num_iterations": 2}

KEPT_ONCE = [name for name in FAMILIES if name not in ("internvl", "lfm2_vl")]  # these go TRL's way
each_family = pytest.mark.parametrize("family", slow_but(DEFAULT, KEPT_ONCE))


@dataclass(frozen=True)
class Run:
    """A finished run: the trainer, the completions of each call of the reward, what was seen, first gradients."""

    trainer: Any
    completions: list[Any]
    seen: SeenPictures
    gradients: dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function of a family and settings, which plays two steps unless the settings say otherwise; each once."""

    @cache
    def path(family):
        return write_family(family, tmp_path_factory.mktemp(family))

    @cache
    def play(family, stock=False, pictures=(2, 1, 1), dead=(), tower_once=False, **settings):
        first, seen_by_reward, model = FirstGradients(), [], path(family)

        def reward(completions, limit, **columns):
            seen_by_reward.append(completions)
            alive = [number not in dead for number in limit]
            return [on * len(text[0]["content"]) / 20 for on, text in zip(alive, completions, strict=True)]

        # Ours suppresses the video token too.
        suppressed = {"suppress_tokens": vision_token_ids(AutoConfig.from_pretrained(model))}
        base = FOUR_ROWS | {"max_steps": 2, "generation_kwargs": suppressed}
        base |= {"trainer_class": GRPOTrainer} if stock else {"vade_sampler": "uniform"}
        more = {"callbacks": [first], "eval_dataset": picture_rows(2, first=100)}
        folder, rows = tmp_path_factory.mktemp("run"), picture_rows(pictures=pictures)
        trainer = make_trainer(folder, model, rows, reward, more=more, **base | settings)
        if not stock:
            images(tower_once)(trainer)
        with seen_pictures(trainer) as seen:
            trainer.train()
        return Run(trainer, seen_by_reward, seen, first.found)

    return play


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        *((name, {}) if name in DEFAULT else slow(name, {}) for name in FAMILIES),
        slow("qwen2_5_vl", {"beta": 0.05}),
        slow("idefics3", {"beta": 0.05}),
        slow("internvl", {"beta": 0.05}),
        # Some micro-batches have as many pictures as prompts.
        slow("idefics3", {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}),
        slow("gemma3", EVALUATED),
        slow("lfm2_vl", EVALUATED),
    ],
    ids=lambda value: value if isinstance(value, str) else next(iter(value), "plain"),
)
def test_it_is_stock_trl_to_the_bit(run, family, settings):
    stock, ours = run(family, stock=True, **settings), run(family, **settings)
    assert_as_stock((ours.trainer, ours.completions), (stock.trainer, stock.completions))
    assert ours.seen.passes == stock.seen.passes
    assert len(stock.seen.passes) >= 2 * (1 + 4)  # to generate, and of each micro-batch


@pytest.mark.parametrize("family", slow_but(DEFAULT, FAMILIES))
def test_rows_without_a_gradient_are_left_out_of_the_old_log_probabilities(run, family):
    """The default, in which TRL splits the pictures of the rows that are left."""
    some = {"dead": (0, 2, 4, 6, 8), "num_iterations": 2, "vade_sampler": "thompson", "pictures": (1,)}
    kept = run(family, vade_down_sampling=None, **some)
    every = run(family, vade_down_sampling="none", **some)
    assert kept.completions[0] == every.completions[0]
    assert min(logged(kept.trainer, "vade/kept_rollouts")) < 16
    assert_same_but_for_rounding(kept.gradients, every.gradients)


@each_family
def test_each_picture_is_processed_once(run, family):
    stock, ours = run(family, stock=True), run(family)
    assert len(stock.seen.processed) >= 2 * 4 * len(set(stock.seen.processed))  # twice for each completion
    assert sorted(ours.seen.processed) == sorted(set(stock.seen.processed))


@each_family
def test_the_tower_runs_once_for_a_picture_of_a_pass_and_gives_the_same_gradients(run, family):
    whole, once = run(family), run(family, tower_once=True, max_steps=1)
    passes = whole.seen.passes[: len(once.seen.passes)]
    assert [sorted(units) for units in once.seen.passes] == [sorted(set(units)) for units in passes]
    assert whole.completions[0] == once.completions[0]
    assert_same_but_for_rounding(once.gradients, whole.gradients)


@pytest.mark.parametrize("family", slow_but(DEFAULT, FAMILIES))
def test_rows_without_a_picture_train_as_with_each_image_processed_for_each_completion(run, family):
    """Stock TRL refuses them. Some generation batches have as many pictures as prompts, some micro-batches none."""
    mixed = {"pictures": (2, 1, 0, 1), "per_device_train_batch_size": 2, "gradient_accumulation_steps": 8}
    ours, each = run(family, **mixed), run(family, vade_images_once=False, **mixed)
    assert_as_stock((ours.trainer, ours.completions), (each.trainer, each.completions))
    assert ours.seen.passes == each.seen.passes
