"""A situation of a user's, driven through `trl.GRPOTrainer` and through `VADEGRPOTrainer` with the uniform sampler."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.support.agents import agent_tokenizer
from tests.support.rows import make_text_rows
from tests.support.runs import SMALL_RUN, assert_equal_weights, says_a_digit, weights

TIMED = {
    "step_time",
    *(f"train_{name}" for name in ("runtime", "samples_per_second", "steps_per_second")),
    *(f"eval_{name}" for name in ("runtime", "samples_per_second", "steps_per_second")),
}
"""The keys of the log that hold wall times; also with the name of an evaluation set after `eval_`."""


@dataclass(frozen=True)
class Situation:
    """
    What differs from the base: two steps of `SMALL_RUN` on `make_text_rows`, rewarded by `says_a_digit`.

    Args:
        args: settings of `GRPOConfig`.
        given: arguments of the trainer, made anew for each side. It takes the list `seen`, into which functions and
            callbacks of the situation write what they saw; both sides must see the same, and something, if it is used.
        rows: returns the training rows, made anew for each side.
        model: the fixture with the model's folder.
        drive: what is done with the trainer.
        logs: a key that the log must have.
        same_as_base: whether the weights may be those of the base: the situation is none of the training's.
    """

    args: dict[str, Any] = field(default_factory=dict)
    given: Callable[[list[Any]], dict[str, Any]] = lambda seen: {}
    rows: Callable[[], Any] = make_text_rows
    model: str = "text_model_path"
    drive: Callable[[Any], Any] = lambda trainer: trainer.train()
    logs: str = ""
    same_as_base: bool = False


def play(situation, model_path, folder, *, stock=False, **settings):
    """Drive one side; return its trainer and what was seen."""
    from trl import GRPOConfig, GRPOTrainer

    from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

    seen: list[Any] = []
    arguments = {"model": model_path, "reward_funcs": says_a_digit, "train_dataset": situation.rows()}
    if situation.model == "agent_model_path":
        arguments["processing_class"] = agent_tokenizer(model_path)
    arguments |= situation.given(seen)
    settings = SMALL_RUN | {"max_steps": 2, "output_dir": str(folder)} | situation.args | settings
    if stock:
        trainer = GRPOTrainer(args=GRPOConfig(**settings), **arguments)
    else:
        trainer = VADEGRPOTrainer(args=VADEGRPOConfig(**{"vade_sampler": "uniform"} | settings), **arguments)
    situation.drive(trainer)
    return trainer, seen


def plain_history(trainer):
    """The log without wall times and without the keys of VADE."""
    return [
        {key: value for key, value in entry.items() if not _is_timed(key) and not key.startswith("vade/")}
        for entry in trainer.state.log_history
    ]


def _is_timed(key):
    return key in TIMED or (key.startswith("eval_") and any(key.endswith(name.removeprefix("eval")) for name in TIMED))


def assert_as_stock(ours, stock):
    """The same weights and the same log, to the bit, of two results of `play`; and the same was seen."""
    assert plain_history(ours[0]) == plain_history(stock[0])
    assert_equal_weights(weights(ours[0]), weights(stock[0]))
    assert ours[1] == stock[1]
