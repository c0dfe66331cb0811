"""Reward functions that misbehave, and a reward outage."""

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from safetensors.torch import load_file

from tests.support.runs import says_a_digit
from trl_vade.checkpoints import complete_checkpoints
from trl_vade.errors import ObservationError
from trl_vade.samplers.posterior import BetaPosterior
from trl_vade.selection.log import SelectionLog

from .bench import AtStep, Bench, Result, expect, expect_equal, expect_finished, heard, refused, tally
from .runs import end_of

NAN = float("nan")
Answer = Callable[[list[float]], Any]


def disturbed(answer: Answer, calls: Sequence[int] = (4,)) -> Any:
    """`says_a_digit`, but in these calls (from 1) what `answer` makes of its rewards."""
    count = itertools.count(1)

    def reward(completions: Any, limit: Any, **columns: Any) -> Any:
        rewards = says_a_digit(completions, limit)
        return answer(rewards) if next(count) in calls else rewards

    reward.__name__ = "says_a_digit"  # the same success signal, or a resume is refused
    return reward


def fail(rewards: list[float]) -> Any:
    raise ConnectionError("the judge does not answer")


STOPPING: dict[str, tuple[Answer, type[Exception], str]] = {
    "raises": (fail, ConnectionError, "the judge does not answer"),
    "one too few": (lambda rewards: rewards[1:], ValueError, "returned 15 rewards"),
    "one too many": (lambda rewards: [*rewards, 1.0], ValueError, "returned 17 rewards"),
    "none at all": (lambda rewards: [], ValueError, "returned 0 rewards"),
    "inf": (lambda rewards: [float("inf"), *rewards[1:]], ObservationError, "Infinite rewards"),
    "-inf": (lambda rewards: [*rewards[1:], float("-inf")], ObservationError, "Infinite rewards"),
    "too large for float32": (lambda rewards: [1e39, *rewards[1:]], ObservationError, "Infinite rewards"),
}
UNSCORED: dict[str, Answer] = {
    "None for a row": lambda rewards: [None, *rewards[1:]],
    "NaN for a row": lambda rewards: [*rewards[:-1], NAN],
    "None for a group": lambda rewards: [None] * 4 + rewards[4:],
    "NaN for a group": lambda rewards: rewards[:12] + [NAN] * 4,
    "None for all": lambda rewards: [None] * len(rewards),
    "NaN for all": lambda rewards: [NAN] * len(rewards),
}
ONE_SAVE_A_BATCH = {"num_iterations": 1, "max_steps": 6}


def rewards(bench: Bench) -> Result:
    """Reward functions that raise, or return what they should not."""
    tries: dict[str, Callable[[], str]] = {}
    tries |= {name: partial(stopped_by_reward, bench, *case) for name, case in STOPPING.items()}
    tries |= {name: partial(unscored, bench, answer) for name, answer in UNSCORED.items()}
    if bench.quick:
        quick = ("raises", "one too few", "inf", "None for a row", "NaN for a group", "None for all")
        tries = {name: tries[name] for name in quick}
    return tally("reward function", tries)


def stopped_by_reward(bench: Bench, answer: Answer, error: type[Exception], words: str) -> str:
    output_dir = bench.folder()
    trainer = bench.trainer(output_dir, reward=disturbed(answer), **ONE_SAVE_A_BATCH)
    message = refused(error, trainer.train)
    expect(words in message, f"the error says {message}")
    newest = complete_checkpoints(output_dir)[-1]
    expect(newest.name == "checkpoint-3", f"{newest.name} is the newest")
    for name, value in load_file(newest / "model.safetensors").items():
        expect(value.equal(trainer.model.state_dict()[name]), f"{name} was updated")
    mended = bench.trainer(output_dir, **ONE_SAVE_A_BATCH)
    mended.train(resume_from_checkpoint=True)
    expect_equal(end_of(mended), bench.end_of_undisturbed(**ONE_SAVE_A_BATCH))
    return "stopped before an update, and once mended goes on to the undisturbed end"


def unscored(bench: Bench, answer: Answer) -> str:
    """The posterior after the fourth generation batch is the one before it, with the scored completions observed."""
    states: list[dict[str, Any]] = []

    def note(rewards: list[float]) -> Any:
        states.append(trainer.selection.sampler.posterior.state_dict())
        return answer(rewards)

    callback = AtStep(4, lambda: states.append(trainer.selection.sampler.posterior.state_dict()))
    settings = ONE_SAVE_A_BATCH | {"save_strategy": "no", "reward": disturbed(note), "callbacks": [callback]}
    trainer = bench.trainer(output_dir := bench.folder(), **settings)
    trainer.train()
    expect_finished(trainer)
    before, after = states
    line = SelectionLog(output_dir).read()[3]
    given = [number is not None and number == number for number in answer([0.0] * 16)]
    trials = [float(sum(given[start : start + 4])) for start in range(0, 16, 4)]
    expect(line["trials"] == trials, f"{line['trials']} completions were counted, and {trials} had a score")
    scored = [group for group in range(4) if trials[group]]
    rules = ("num_samples", "decay_sampled", "decay_unsampled", "signal_aware_decay")
    expected = BetaPosterior(**{name: before[name] for name in rules})
    expected.load_state_dict(before)
    expected.observe(*([line[name][group] for group in scored] for name in ("sample_index", "successes", "trials")))
    for name, value in expected.state_dict().items():
        expect(np.array_equal(after[name], value), f"{name} of the posterior is another")
    return "the run goes on; no score is no trial"


class Stop(Exception):
    """Ends a run where a test wants it to."""


OUTAGE_RUN = {  # 8 rows x 8 completions
    "per_device_train_batch_size": 64,
    "num_generations": 8,
    "num_iterations": 1,
    "max_steps": 24,
    "save_steps": 3,
}


def reward_outage(bench: Bench) -> Result:
    """Half of each group is right, but from step 12 on every verdict is the same: until step 18, 23 or the end."""
    tries = {
        "all 0": partial(outage, bench, 0.0),
        "all 1": partial(outage, bench, 1.0),
        "all 0, and resumed inside it": partial(outage, bench, 0.0, interrupted=True),
        "all 0 to the end": partial(outage, bench, 0.0, end=100),
        "all 0 without the guard": partial(outage, bench, 0.0, end=23, guard=False),  # before rows are chosen again
    }
    return tally("reward outage", tries)


def outage(bench: Bench, value: float, *, end: int = 18, interrupted: bool = False, guard: bool = True) -> str:
    def half(completions: Any, trainer_state: Any, **columns: Any) -> list[float]:
        if 12 <= trainer_state.global_step < end:
            return [value] * len(completions)
        return [float(number % 2) for number in range(len(completions))]

    def stop() -> None:
        raise Stop

    output_dir = bench.folder()
    callbacks = [AtStep(15, stop, begins=True)] if interrupted else []
    trainer = bench.trainer(output_dir, reward=half, callbacks=callbacks, **OUTAGE_RUN)
    if not guard:
        trainer.selection.feedback._guard.judge = lambda *groups, **signal: None
    with heard() as warnings:
        if interrupted:
            refused(Stop, trainer.train)
            trainer = bench.trainer(output_dir, reward=half, **OUTAGE_RUN)
        trainer.train(resume_from_checkpoint=interrupted or None)
    expect_finished(trainer)
    error = float(np.abs(trainer.selection.sampler.posterior.posterior_mean - 0.5).max())
    left_out = sum(not line.get("observed", True) for line in SelectionLog(output_dir).read())
    if not guard:
        expect(error > 0.05, f"without the guard the posterior is off by {error:.2f} only")
        return f"without the guard the pass rates are off by up to {error:.2f} (so there is something to survive)"
    expect(sum("This looks like a reward outage" in text for text in warnings) == 1, f"the log says {warnings}")
    expect(left_out == min(end, 24) - 12, f"{left_out} batches were left out")
    if end > 24:
        return "an outage to the end is said"
    expect(any("reward outage of 6 generation batches is over" in text for text in warnings), f"{warnings}")
    expect(error < 1e-9, f"the posterior is off by {error:.3f}")
    return "the posterior is that of before the outage, and exact"
