"""`VADEGRPOTrainer` on a real, randomly initialised Qwen2.5-VL: rows without an image, and vision tokens."""

import datasets
import pytest
from datasets import Dataset

from tests.support.marks import slow
from tests.support.runs import odd_length
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


@pytest.fixture
def make(made, vision_model_path):
    return lambda rows=None, **settings: made(odd_length, rows or mixed(), model=vision_model_path, **settings)


@pytest.mark.parametrize(
    ("rows", "sampler"),
    [
        ({"column": "image"}, "uniform"),
        ({"every": 0}, "uniform"),
        ({"nothing": None}, "thompson"),
        slow({"column": "image", "every": 0}, "thompson"),
        slow({}, "uniform"),
    ],
    ids=str,
)
def test_rows_without_an_image_train_beside_rows_with_one(make, rows, sampler):
    """Each is a micro-batch of its own, some without any image."""
    micro = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16}
    trainer = make(mixed(**rows), max_steps=3, vade_sampler=sampler, **micro)
    trainer.train()
    assert trainer.selection.sampler.posterior.step == 3


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


def test_a_policy_that_wants_vision_tokens_never_gets_one(made, vision_model_path):
    trainer = made(
        lambda completion_ids, **columns: sampled.extend(completion_ids) or [0.0] * len(completion_ids),
        mixed(1),
        model=vision_model_path,
        max_steps=2,
        generation_kwargs={"suppress_tokens": [5]},
    )
    ids, sampled = vision_token_ids(trainer.model.config), []

    def prefer(module, arguments, logits):
        logits[..., ids] += 100.0
        return logits

    trainer.model.lm_head.register_forward_hook(prefer)
    trainer.train()
    assert len(ids) == 2
    assert not {5, *ids} & {token for each in sampled for token in each}
