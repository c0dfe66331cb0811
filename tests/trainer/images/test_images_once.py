"""Each image once: the same training as with an image for each completion, on a real Qwen2.5-VL."""

import copy
from functools import cache

import pytest
import torch
from peft import LoraConfig

from tests.support.marks import slow_but
from tests.support.runs import assert_equal_weights, logged, make_trainer, odd_length, weights
from tests.support.seen_pictures import seen_pictures
from tests.support.vision_runs import FirstGradients, assert_same_but_for_rounding, images, picture, picture_rows
from trl_vade import VADEGRPOTrainer
from trl_vade.trainer.images.once import ImagesOnce

AS_TRL = {"vade_images_once": False}
BUFFER = {"prepare": images(tower_once=False)}
TOWER = {"prepare": images(tower_once=True)}
STEP = {"prepare": images(tower_once=True, grouped=True)}
TWO_STEPS = {"gradient_accumulation_steps": 2, "steps_per_generation": 4}
ADAPTER = LoraConfig(r=2, target_modules=["q_proj", "qkv"], lora_dropout=0.0)
EVALUATED = {"eval_strategy": "steps", "eval_steps": 1, "per_device_eval_batch_size": 8}

CASES = {
    "a step": {},
    "two iterations": {"num_iterations": 2},
    "a reference model": {"beta": 0.05},
    "an adapter": {"beta": 0.05, "more": {"peft_config": ADAPTER}},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "two steps a batch": TWO_STEPS,
    "two pictures a row": {"pictures": (2,)},
    "some rows without a picture": {"pictures": (0, 1, 2)},
    "an evaluation between": TWO_STEPS | EVALUATED,
    "dynamic sampling": {"vade_dynamic_sampling": True},
    "rows left out": {"vade_down_sampling": "lossless"},
}
DEFAULT = ("a reference model", "some rows without a picture")


def play(model, folder, *, rows=None, pictures=(1,), prepare=lambda trainer: None, more=None, **settings):
    """Train on pictures, and return the trainer, its gradients and what was seen. Four micro-batches are a step."""
    base = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 4, "max_steps": 2}
    gradients = FirstGradients()
    more = {"callbacks": [gradients], "eval_dataset": picture_rows(2, first=50)} | (more or {})
    settings = base | {"vade_down_sampling": "none"} | settings
    trainer = make_trainer(folder, model, rows or picture_rows(pictures=pictures), odd_length, more=more, **settings)
    prepare(trainer)
    with seen_pictures(trainer) as seen:
        trainer.train()
    return trainer, gradients.found, seen


@pytest.fixture(scope="module")
def plays(vision_model_path, tmp_path_factory):
    """Runs of the cases with settings, each played once."""

    @cache
    def run(name, **settings):
        folder = tmp_path_factory.mktemp("run")
        return play(vision_model_path, folder, **copy.deepcopy(CASES[name]), **settings)

    return run


of_cases = pytest.mark.parametrize("name", slow_but(DEFAULT, CASES))


def encoded(seen):
    return sum(map(len, seen.passes))


@of_cases
def test_processor_and_buffer_once_change_no_bit(plays, name):
    ours, _, seen = plays(name, **BUFFER)
    theirs, _, others = plays(name, **AS_TRL)
    assert_equal_weights(weights(ours), weights(theirs))
    assert logged(ours, "loss") == logged(theirs, "loss")
    assert logged(ours, "eval_reward") == logged(theirs, "eval_reward")
    assert seen.passes == others.passes
    evaluated = len(logged(ours, "eval_reward")) * 2 * 8  # by TRL's way: two calls, eight completions
    assert (len(seen.processed) - evaluated) * 4 <= len(others.processed) - evaluated


@of_cases
@pytest.mark.parametrize("settings", [TOWER, STEP], ids=["tower", "step"])
def test_the_tower_once_changes_a_gradient_by_rounding_alone(plays, name, settings):
    _, gradients, seen = plays(name, **settings)
    _, before, others = plays(name, **BUFFER)
    assert_same_but_for_rounding(gradients, before)
    assert encoded(seen) < encoded(others)


def test_completions_of_an_image_side_by_side_are_encoded_once_a_micro_batch(plays):
    """16 completions of four images: each micro-batch of four has one image, in each of two steps."""
    _, _, seen = plays("a step", **STEP)
    assert [len(units) for units in seen.passes] == [4, 1, 1, 1, 1] * 2


def test_two_rows_with_the_same_picture_share_it(vision_model_path, tmp_path):
    """As a question and its hint do: four rows of a batch, two pictures."""
    rows = picture_rows(4, number=lambda row: row % 2)
    off, _, _ = play(vision_model_path, tmp_path / "off", rows=rows, vade_cooldown=0.0, **AS_TRL)
    on, _, seen = play(vision_model_path, tmp_path / "on", rows=rows, vade_cooldown=0.0, **BUFFER)
    assert_equal_weights(weights(on), weights(off))
    assert len(seen.processed) == 2 * 2  # in each of two generation batches
    both = on.processing_class.image_processor([picture(0), picture(1)], return_tensors="pt")
    assert sum(each.nbytes for each in on._images.store.tensors.values()) == both["pixel_values"].nbytes


@pytest.mark.parametrize(
    ("settings", "dropout", "wanted"),
    [
        ({"vade_sampler": "thompson"}, None, (True, True, True)),
        ({"vade_sampler": "uniform"}, None, (True, False, False)),  # TRL to the bit
        ({}, 0.1, (True, False, False)),  # each completion has features of its own
        ({"loss_type": "bnpo"}, None, (True, True, False)),  # the order is not free
        (AS_TRL, None, (False, False, False)),
    ],
    ids=str,
)
def test_what_is_encoded_once_by_default(made, vision_model_path, settings, dropout, wanted):
    adapter = dropout and LoraConfig(r=2, target_modules=["qkv"], lora_dropout=dropout)
    trainer = made(odd_length, picture_rows(), model=vision_model_path, more={"peft_config": adapter}, **settings)
    assert (trainer._images.on, trainer._images.tower_once, trainer._images.grouped) == wanted
    assert trainer.selection.loader.decoder.shares_pictures == wanted[0]  # else another may draw in them
    trainer.aux_loss_enabled = True  # the router loss of a micro-batch
    assert not ImagesOnce(trainer).grouped
    trainer.rollout_func = print  # which gets the pictures, too
    assert not ImagesOnce(trainer).on


class SeesSteps(VADEGRPOTrainer):
    def training_step(self, *given):
        return super().training_step(*given)


def test_where_images_go_trls_way_one_line_says_why(made, vision_model_path, caplog):
    for kind, settings in ((VADEGRPOTrainer, {}), (SeesSteps, AS_TRL), (SeesSteps, {})):
        assert "Images are processed and kept once for each completion" not in caplog.text
        made(odd_length, picture_rows(), model=vision_model_path, trainer_class=kind, **settings)
    assert "SeesSteps.training_step" in caplog.text.split("Images are processed")[1]


@pytest.mark.parametrize("method", ["_compute_loss", "compute_loss"])
def test_a_subclass_with_its_own_loss_gets_pixels(run, vision_model_path, method):
    class OwnLoss(VADEGRPOTrainer):
        pass

    def loss(self, model, inputs, *positional, **named):
        self.seen = inputs["pixel_values"]
        return getattr(super(OwnLoss, self), method)(model, inputs, *positional, **named)

    setattr(OwnLoss, method, loss)
    trainer = run(odd_length, picture_rows(), model=vision_model_path, trainer_class=OwnLoss, max_steps=1)
    assert trainer.seen.is_floating_point()


def test_a_processor_used_by_a_reward_function_sees_its_images_as_ever(made, vision_model_path):
    seen = []

    def looks(completions, **kwargs):
        processed = trainer.processing_class(images=[[picture(1)]], text=["<|image_pad|>"], return_tensors="pt")
        seen.append(processed["pixel_values"].is_floating_point())
        assert trainer.processing_class.image_processor.to_dict() == before
        return odd_length(completions)

    trainer = made(looks, picture_rows(), model=vision_model_path, max_steps=1)
    before = trainer.processing_class.image_processor.to_dict()
    trainer.train()
    assert seen == [True]


def test_a_copy_of_the_model_encodes_by_itself(plays):
    trainer, _, _ = plays("a step", **STEP)
    copied = copy.deepcopy(trainer.model)
    with torch.no_grad():
        for weight in copied.model.visual.parameters():
            weight.zero_()
    made = trainer.processing_class(images=[[picture(1)]], text=["<|image_pad|>"], return_tensors="pt")
    pooled = copied.model.get_image_features(made["pixel_values"], made["image_grid_thw"]).pooler_output
    assert not torch.cat(pooled).any()
