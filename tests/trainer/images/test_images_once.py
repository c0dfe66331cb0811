"""Each image once: the same training as with an image for each completion, on a real Qwen2.5-VL."""

import pytest

from tests.support.marks import slow
from tests.support.runs import assert_equal_weights, logged, weights
from tests.support.vision_runs import coloured, picture_rows, play

AS_TRL = {"vade_images_once": False}
BUFFER = {"vade_tower_once": False}
TOWER = {"vade_tower_once": True, "vade_group_images": "none"}
STEP = {"vade_tower_once": True, "vade_group_images": "step"}

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
DEFAULT = ("a reference model", "two steps a batch", "some rows without a picture", "an evaluation between")


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


def test_grouping_within_a_step_keeps_who_shares_it_and_over_the_batch_does_not(plays):
    _, kept, _ = plays("two steps a batch", **STEP)
    _, moved, counts = plays("two steps a batch", **STEP | {"vade_group_images": "batch"})
    _, before, others = plays("two steps a batch", **BUFFER)
    assert apart(kept, before) < 1e-5
    assert apart(moved, before) > 1e-2
    assert counts.encoded < others.encoded
