"""More resumes that repeat the run that never stopped; most are in `tests/trainer/test_battery.py`."""

from pathlib import Path

import pytest
from peft import LoraConfig

from tests.support.checkpoints import without_later
from tests.support.marks import slow
from tests.support.rows import make_text_rows
from tests.support.runs import (
    SMALL_RUN,
    StopAfter,
    assert_same_end,
    first_letter,
    rows_with_images,
    says_a_digit,
    train,
)
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.trainer.checkpoint.generation_batch import file_name


@pytest.fixture
def start(request, text_model_path, text_rows, make_args, tmp_path):
    """Make a trainer on `world`: the tiny text model, or the testbed's model and pictures."""

    def make(folder, world="text", callbacks=None, peft=False, **changes):
        changes = {"max_steps": 8, "save_strategy": "steps", "save_steps": 1} | changes
        args = make_args(output_dir=str(tmp_path / folder), **changes)
        more = {"peft_config": LoraConfig(target_modules=["q_proj"]) if peft else None, "callbacks": callbacks}
        if world == "text":
            return VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, **more)
        model = request.getfixturevalue("vision_model_path")
        return VADEGRPOTrainer(model, first_letter, args, rows_with_images(24), **more)

    return make


def whole_run(start, *arguments, **changes):
    """The run that was never stopped. It saves nothing: that its twins do makes no difference either."""
    whole = start("whole", *arguments, **changes, save_strategy="no")
    whole.train()
    return whole


def resumed_from(start, stop, *arguments, **changes):
    """Go on from the checkpoint `stop` of the interrupted run, in a new trainer."""
    resumed = start("parts", *arguments, **changes)
    resumed.train(resume_from_checkpoint=without_later(f"{resumed.args.output_dir}/checkpoint-{stop}"))
    return resumed


@pytest.mark.parametrize("world", ["text", slow("testbed")])
def test_adapters_resume_bit_for_bit(start, world):
    changes = {"max_steps": 4, "steps_per_generation": 2, "peft": True}
    whole = whole_run(start, world, **changes)
    start("parts", world, callbacks=[StopAfter(3)], **changes).train()
    # Inside a generation batch, and between two. The later one first: going on from the other writes it again.
    for stop in (3, 2):
        assert_same_end(resumed_from(start, stop, world, **changes), whole)


def test_a_resume_without_data_skip_makes_the_same_choices(start):
    changes = {"ignore_data_skip": True, "max_steps": 13, "save_steps": 8}  # its epochs are counted from the resume
    whole = whole_run(start, **changes)
    start("parts", callbacks=[StopAfter(8)], **changes).train()
    assert_same_end(resumed_from(start, 8, **changes), whole)


@pytest.fixture(scope="module")
def twice_iterated(text_model_path, tmp_path_factory):
    """A run of two iterations that was never stopped, for the tests that look at its end alone."""
    folder = tmp_path_factory.mktemp("whole")
    args = VADEGRPOConfig(**SMALL_RUN | {"output_dir": str(folder), "max_steps": 8, "num_iterations": 2})
    return train(text_model_path, make_text_rows(), args)


@pytest.mark.slow
def test_a_run_resumed_twice_is_the_run_that_was_never_stopped(start, twice_iterated):
    start("parts", num_iterations=2, callbacks=[StopAfter(3)]).train()
    for stop in (5, 8):
        resumed = start("parts", num_iterations=2, callbacks=[StopAfter(stop)])
        resumed.train(resume_from_checkpoint=True)
    assert_same_end(resumed, twice_iterated)


def checkpoints(trainer):
    paths = Path(trainer.args.output_dir).glob("checkpoint-*")
    return sorted(int(path.name.removeprefix("checkpoint-")) for path in paths)


def test_the_final_step_is_saved_and_the_run_can_be_made_longer(start):
    """Step 7 is no multiple of `save_steps`, and falls inside a generation batch."""
    changes = {"save_steps": 5, "num_iterations": 2, "lr_scheduler_type": "constant"}
    whole = whole_run(start, max_steps=12, **changes)
    short = start("parts", max_steps=7, **changes)
    short.train()
    assert checkpoints(short) == [5, 7]
    assert (Path(short.args.output_dir) / "checkpoint-7" / file_name(0)).exists()
    longer = start("parts", max_steps=12, **changes, save_strategy="no")
    longer.train(resume_from_checkpoint=True)
    assert_same_end(longer, whole)
