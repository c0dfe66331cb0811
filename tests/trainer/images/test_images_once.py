"""Each image once: the same training as with an image for each completion, on a real Qwen2.5-VL."""

import copy

import pytest
import torch
from transformers import Qwen2_5_VLProcessor, Qwen2VLImageProcessor

from tests.support.marks import slow
from tests.support.runs import assert_equal_weights, logged, weights
from tests.support.vision_runs import coloured, images, picture_rows, play
from trl_vade import VADEGRPOTrainer

AS_TRL = {"vade_images_once": False}
BUFFER = {"prepare": images(tower_once=False)}
TOWER = {"prepare": images(tower_once=True)}
STEP = {"prepare": images(tower_once=True, grouped=True)}

TWO = {"rows": lambda: picture_rows(lambda row: [coloured(row), coloured(row + 100)])}
MIXED = {"rows": lambda: picture_rows(lambda row: [coloured(row + 100 * i) for i in range(row % 3)])}


def lora():
    from peft import LoraConfig

    return {"peft_config": LoraConfig(r=2, target_modules=["q_proj", "qkv"], lora_dropout=0.0)}


CASES = {
    "a step": {},
    "two iterations": {"num_iterations": 2},
    "a reference model": {"beta": 0.05},
    "an adapter": {"beta": 0.05, "given": lora},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "two steps a batch": {"gradient_accumulation_steps": 2, "steps_per_generation": 4},
    "two pictures a row": TWO,
    "some rows without a picture": MIXED,
    "an evaluation between": {
        "gradient_accumulation_steps": 2,
        "steps_per_generation": 4,
        "eval_strategy": "steps",
        "eval_steps": 1,
        "per_device_eval_batch_size": 8,
        "given": lambda: {"eval_dataset": picture_rows(lambda row: [coloured(row + 50)], count=2)},
    },
    "dynamic sampling": {"vade_dynamic_sampling": True},
    "rows left out": {"vade_down_sampling": "lossless"},
}
DEFAULT = ("a reference model", "some rows without a picture")


@pytest.fixture(scope="module")
def plays(vision_model_path, tmp_path_factory):
    """Runs of the cases with settings, each played once."""
    found = {}

    def run(name, **settings):
        key = (name, *sorted(settings.items()))
        if key not in found:
            case = dict(CASES[name])
            made = {each: case.pop(each)() for each in ("rows", "given") if each in case}
            found[key] = play(vision_model_path, tmp_path_factory.mktemp("run"), **case, **made, **settings)
        return found[key]

    return run


def of_cases(test):
    names = [name if name in DEFAULT else slow(name) for name in CASES]
    return pytest.mark.parametrize("name", names)(test)


def apart(left, right):
    """The norm of the difference over the norm, of the first step's gradient."""
    return float((left[0] - right[0]).norm() / right[0].norm())


@of_cases
def test_processor_and_buffer_once_change_no_bit(plays, name):
    ours, _, counts = plays(name, **BUFFER)
    theirs, _, others = plays(name, **AS_TRL)
    assert_equal_weights(weights(ours), weights(theirs))
    assert logged(ours, "loss") == logged(theirs, "loss")
    assert logged(ours, "eval_reward") == logged(theirs, "eval_reward")
    assert counts.encoded == others.encoded
    assert counts.processed * 4 <= others.processed


@of_cases
@pytest.mark.parametrize("settings", [TOWER, STEP], ids=["tower", "step"])
def test_the_tower_once_changes_a_gradient_by_rounding_alone(plays, name, settings):
    _, gradients, counts = plays(name, **settings)
    _, before, others = plays(name, **BUFFER)
    assert len(gradients) == len(before)
    assert apart(gradients, before) < 1e-5
    assert counts.encoded < others.encoded


def test_completions_of_an_image_side_by_side_are_encoded_once_a_micro_batch(plays):
    """16 completions of four images: each micro-batch of four has one image, in each of two steps."""
    trainer, _, counts = plays("a step", **STEP)
    generated = trainer.state.global_step * 4
    assert counts.encoded == generated + trainer.state.global_step * 4


def test_two_rows_with_the_same_picture_share_it(vision_model_path, tmp_path):
    """As a question and its hint do: four rows of a batch, two pictures."""
    rows = picture_rows(lambda row: [coloured(0)] if row % 2 else [coloured(1)], count=4)
    off, _, _ = play(vision_model_path, tmp_path / "off", rows=rows, vade_cooldown=0.0, **AS_TRL)
    on, _, counts = play(vision_model_path, tmp_path / "on", rows=rows, vade_cooldown=0.0, **BUFFER)
    assert_equal_weights(weights(on), weights(off))
    assert counts.processed == 2 * 2  # in each of two generation batches
    both = on.processing_class.image_processor([coloured(0), coloured(1)], return_tensors="pt")
    assert on._images.store.bytes == both["pixel_values"].nbytes


def test_by_default_a_sampler_that_chooses_encodes_once_and_uniform_is_trl_to_the_bit(vision_model_path, make_args):
    chosen, uniform = (
        VADEGRPOTrainer(vision_model_path, first_word, make_args(vade_sampler=sampler), picture_rows())._images
        for sampler in ("thompson", "uniform")
    )
    assert (chosen.on, chosen.tower_once, chosen.grouped) == (True, True, True)
    assert (uniform.on, uniform.tower_once, uniform.grouped) == (True, False, False)


def first_word(completions, **kwargs):
    return [float(len(completion[0]["content"])) for completion in completions]


def test_a_tower_with_dropout_is_encoded_for_each_completion(vision_model_path, make_args):
    from peft import LoraConfig

    adapter = LoraConfig(r=2, target_modules=["qkv", "q_proj"], lora_dropout=0.1)
    trainer = VADEGRPOTrainer(vision_model_path, first_word, make_args(), picture_rows(), peft_config=adapter)
    assert (trainer._images.on, trainer._images.tower_once, trainer._images.grouped) == (True, False, False)


@pytest.mark.parametrize("method", ["_compute_loss", "compute_loss"])
def test_a_subclass_with_its_own_loss_gets_pixels(vision_model_path, make_args, caplog, method):
    class OwnLoss(VADEGRPOTrainer):
        pass

    def loss(self, model, inputs, *positional, **named):
        self.seen = inputs["pixel_values"]
        return getattr(super(OwnLoss, self), method)(model, inputs, *positional, **named)

    setattr(OwnLoss, method, loss)
    trainer = OwnLoss(vision_model_path, first_word, make_args(max_steps=1), picture_rows())
    trainer.train()
    assert trainer.seen.is_floating_point()
    assert caplog.text.count("OwnLoss") == 1


def test_a_processor_used_by_a_reward_function_sees_its_images_as_ever(vision_model_path, make_args):
    seen = []

    def looks(completions, **kwargs):
        made = holder[0].processing_class(images=[[coloured(1)]], text=["<|image_pad|>"], return_tensors="pt")
        seen.append(made["pixel_values"])
        assert holder[0].processing_class.image_processor.to_dict() == before
        return first_word(completions)

    holder = []
    holder.append(VADEGRPOTrainer(vision_model_path, looks, make_args(max_steps=1), picture_rows()))
    before = holder[0].processing_class.image_processor.to_dict()
    holder[0].train()
    assert seen[0].is_floating_point()


def test_model_and_processor_are_left_as_they_were(plays):
    trainer, _, _ = plays("a step", **STEP)
    assert type(trainer.processing_class) is Qwen2_5_VLProcessor
    assert type(trainer.processing_class.image_processor) is Qwen2VLImageProcessor
    assert [name for name, module in trainer.model.named_modules() if "get_image_features" in vars(module)] == []
    copied = copy.deepcopy(trainer.model)
    with torch.no_grad():
        for weight in copied.model.visual.parameters():
            weight.zero_()
    made = trainer.processing_class(images=[[coloured(1)]], text=["<|image_pad|>"], return_tensors="pt")
    pooled = copied.model.get_image_features(made["pixel_values"], made["image_grid_thw"]).pooler_output
    assert not torch.cat(pooled).any()
