"""What the tests of checkpoints share: a run that stops early, and what it means that two runs are the same."""

from conftest import assert_equal_weights, weights
from transformers import TrainerCallback

from trl_vade.selection.log import SelectionLog


class StopAfter(TrainerCallback):
    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_training_stop = state.global_step == self.step


class SaveAt(TrainerCallback):
    """Asks for a checkpoint at one step, as a user's own callback does, beside those that the run saves anyway."""

    def __init__(self, step):
        self.step = step

    def on_step_end(self, args, state, control, **kwargs):
        control.should_save |= state.global_step == self.step


def assert_same_end(resumed, whole):
    """The same choices and outcomes, the same posterior to the byte, the same weights, the same totals."""
    assert SelectionLog(resumed.args.output_dir).read() == SelectionLog(whole.args.output_dir).read()
    assert_equal_weights(weights(resumed), weights(whole))
    mine, theirs = (run.selection.sampler.state_dict()["posterior"] for run in (resumed, whole))
    for name in ("alpha", "beta", "last_update", "visits"):
        assert mine[name].tobytes() == theirs[name].tobytes()
    assert resumed.selection.rollouts == whole.selection.rollouts


def rows_with_images(count=16):
    from trl_vade.testbed import build_dataset

    return build_dataset(num_train=count, num_validation=1, progress=False)["train"]


def first_letter(completions, **kwargs):
    return [float(sum(map(ord, completion[0]["content"])) % 2) for completion in completions]
