"""A situation of a user's, driven through `trl.GRPOTrainer` and through `VADEGRPOTrainer` with the uniform sampler."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.agents import agent_tokenizer
from tests.support.rows import make_text_rows
from tests.support.runs import SMALL_RUN, assert_equal_weights, says_a_digit, weights

TIMED = ("step_time", "_runtime", "_per_second", "_seconds", "_seconds_total")
"""Ends of the keys of the log that hold wall times."""


@dataclass(frozen=True)
class Side:
    """One of the two runs of a situation.

    Args:
        model: the folder of the model.
        folder: an empty one.
        seen: what functions and callbacks of the situation write down.
    """

    model: str
    folder: Path
    seen: list[Any] = field(default_factory=list)


def just_train(make, side):
    """Train, and return the trainer."""
    trainer = make()
    trainer.train()
    return trainer


@dataclass(frozen=True)
class Situation:
    """
    What differs from the base: two steps of `SMALL_RUN` on `make_text_rows`, rewarded by `says_a_digit`.

    Args:
        args: settings of `GRPOConfig`.
        given: takes the `Side`, and returns arguments of the trainer.
        rows: takes nothing, and returns the training rows.
        model: the fixture with the model's folder.
        kind: takes the trainer's class, and returns the class to use.
        ours: settings of VADE.
        drive: takes a function that makes a trainer, of further settings, and the `Side`; returns the one to compare.
        logs: a key that the log must have.
        as_base: whether the weights may be those of the base: the situation does not act on them.
        selected: whether VADE chooses the rows; else its trainer leaves all to the parent.
    """

    args: dict[str, Any] = field(default_factory=dict)
    given: Callable[[Side], dict[str, Any]] = lambda side: {}
    rows: Callable[[], Any] = make_text_rows
    model: str = "text_model_path"
    kind: Callable[[type], type] = lambda base: base
    ours: dict[str, Any] = field(default_factory=dict)
    drive: Callable[[Callable[..., Any], Side], Any] = just_train
    logs: str = ""
    as_base: bool = False
    selected: bool = True


def play(situation, model, folder, *, stock=False, **settings):
    """Drive one side; return its trainer and what was seen."""
    from trl import GRPOConfig, GRPOTrainer

    from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

    side = Side(model, folder)
    trainer, config = (GRPOTrainer, GRPOConfig) if stock else (VADEGRPOTrainer, VADEGRPOConfig)
    trainer = situation.kind(trainer)
    settings = SMALL_RUN | {"max_steps": 2, "output_dir": str(folder)} | situation.args | settings
    if not stock:
        settings = {"vade_sampler": "uniform"} | situation.ours | settings

    def make(**more):
        arguments = {"model": model, "reward_funcs": says_a_digit, "train_dataset": situation.rows()}
        if situation.model == "agent_model_path":
            arguments["processing_class"] = agent_tokenizer(model)
        return trainer(args=config(**settings | more), **arguments | situation.given(side))

    return situation.drive(make, side), side.seen


def full_history(trainer):
    """The log, less wall times, as texts: NaN equals NaN there."""
    return [
        {key: repr(value) for key, value in entry.items() if not key.endswith(TIMED)}
        for entry in trainer.state.log_history
    ]


def plain_history(trainer):
    """`full_history`, less the keys of VADE."""
    return [{key: one for key, one in entry.items() if not key.startswith("vade/")} for entry in full_history(trainer)]


def assert_as_stock(ours, stock):
    """The same weights, log and tables of completions, to the bit, of two results of `play`; and the same was seen."""
    assert plain_history(ours[0]) == plain_history(stock[0])
    assert_equal_weights(weights(ours[0]), weights(stock[0]))
    assert tables(ours[0]) == tables(stock[0])
    assert ours[1] == stock[1]


def tables(trainer):
    """The tables of completions (`log_completions`), by their names."""
    return {path.name: path.read_bytes() for path in Path(trainer.args.output_dir).glob("completions/*.parquet")}
