"""`VADEGRPOTrainer` on a real, randomly initialised Qwen2.5-VL: rows without an image, and vision tokens."""

import datasets
import pytest
from datasets import Dataset
from trl import GRPOTrainer

from tests.support.marks import slow
from tests.support.rows import text_of
from tests.support.vision_runs import picture
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.generation.corrections import vision_token_ids


def mixed(every=2, column="images", nothing=()):
    """Images in each `every`-th row, in none for 0; the others have what a data set holds there: None, or a list."""
    rows = []
    for i in range(12):
        here = [picture(i)] if every and i % every == 0 else nothing
        cell = here if column == "images" else here[0] if here else None
        rows.append({"prompt": [{"role": "user", "content": f"What is {i}?"}], column: cell})
    feature = datasets.Image() if column == "image" else datasets.List(datasets.Image())
    return Dataset.from_list(rows).cast_column(column, feature)


def is_short(completions, **columns):
    return [float(len(text_of(completion)) % 2) for completion in completions]


@pytest.fixture
def make(made, vision_model_path):
    return lambda rows=None, **settings: made(is_short, rows or mixed(), model=vision_model_path, **settings)


@pytest.mark.parametrize(
    ("rows", "sampler"),
    [
        ({}, "thompson"),
        ({"column": "image"}, "uniform"),
        slow({"column": "image", "every": 0}, "thompson"),
        ({"every": 0}, "uniform"),
        ({"nothing": None}, "thompson"),
        slow({"column": "image"}, "thompson"),
        slow({}, "uniform"),
        slow({"every": 0}, "thompson"),
        slow({"column": "image", "every": 0}, "uniform"),
    ],
    ids=str,
)
def test_rows_without_an_image_train_beside_rows_with_one(make, rows, sampler):
    trainer = make(mixed(**rows), max_steps=3, vade_sampler=sampler)
    trainer.train()
    assert trainer.selection.sampler.posterior.step == 3


def test_stock_trl_still_refuses_a_batch_of_rows_with_and_without_images(make):
    """When this fails, `VADEGRPOTrainer._generate` and `generation.without_missing_images` can go."""
    with pytest.raises(TypeError, match="NoneType"):
        make(trainer_class=GRPOTrainer).train()


def test_a_micro_batch_may_be_without_images_where_others_have_some(make):
    """When the part without the hook fails, `corrections.without_empty_images` can go."""
    settings = {"max_steps": 1, "per_device_train_batch_size": 1, "gradient_accumulation_steps": 16}
    make(**settings).train()
    trainer = make(**settings)
    trainer.model._forward_pre_hooks.clear()
    with pytest.raises((ValueError, RuntimeError), match="non-empty list of Tensors"):  # torch 2.7: the latter
        trainer.train()


class TowerAlone(VADEGRPOTrainer):
    def create_optimizer(self, *given):
        for name, parameter in self.model.named_parameters():
            parameter.requires_grad = "visual" in name
        return super().create_optimizer(*given)


def test_where_the_tower_alone_is_trained_a_micro_batch_without_images_has_the_loss_0(make):
    settings = {"max_steps": 2, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 4}
    trainer = make(mixed(4), trainer_class=TowerAlone, **settings)
    before = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    trainer.train()
    changed = {name for name, value in trainer.model.state_dict().items() if not value.equal(before[name])}
    assert changed
    assert all("visual" in name for name in changed)


def sampled(trainer, monkeypatch, then=lambda: None):
    """Let the policy prefer the placeholders to all other tokens. Return them, and what it samples.

    `then` is called after each generation.
    """
    ids, seen, generate = vision_token_ids(trainer.model.config), set(), trainer._generate_single_turn

    def prefer(module, arguments, logits):
        logits[..., ids] += 100.0
        return logits

    def spying(*args, **kwargs):
        completion_ids, logprobs = generate(*args, **kwargs)
        seen.update(token for each in completion_ids for token in each)
        then()
        return completion_ids, logprobs

    trainer.model.lm_head.register_forward_hook(prefer)
    monkeypatch.setattr(trainer, "_generate_single_turn", spying)
    return ids, seen


def test_a_policy_that_wants_vision_tokens_never_gets_one(make, monkeypatch):
    trainer = make(mixed(1), max_steps=2, generation_kwargs={"suppress_tokens": [5]})
    ids, seen = sampled(trainer, monkeypatch)
    trainer.train()
    assert len(ids) == 2
    assert seen
    assert not seen & {5, *ids}


def test_stock_trl_still_lets_the_policy_sample_the_video_token(make, monkeypatch):
    """When this fails, TRL suppresses it too, and `suppress_vision_tokens` can go for the transformers engine."""

    def end():
        raise InterruptedError  # the training forward would die: that is the fault

    trainer = make(mixed(1), trainer_class=GRPOTrainer)
    _, seen = sampled(trainer, monkeypatch, end)
    with pytest.raises(InterruptedError):
        trainer.train()
    assert trainer.model.config.video_token_id in seen
