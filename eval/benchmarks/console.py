"""What the console costs a step of the quickstart, and whether it changes anything.

    python -m eval.benchmarks.console --steps 20 --repeats 5

Each repeat trains the quickstart once with each kind of console, in turns: `stock` (transformers' bars and
dictionaries), `lines` and `panel`. Each step is logged. Wall and CPU seconds are those of a step, of all threads: the
panel is redrawn by one of its own. The difference of two runs is below their noise, so the console's own CPU seconds
are counted in each run. Weights and logged metrics of all runs must be equal. At last the parts are timed.
"""

import argparse
import contextlib
import io
import statistics
import tempfile
import threading
import time
from collections.abc import Callable

import torch
import yaml
from rich.console import Console as Screen
from rich.live import Live
from transformers import TrainerCallback

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.cli.recipes import recipe_file
from trl_vade.testbed import load_testbed_dataset, load_testbed_model
from trl_vade.testbed.rewards import exact_answer_reward
from trl_vade.trainer.console import callback, install

STYLES = ("stock", "lines", "panel")
OF_COMMAND = {"model_name_or_path", "dataset_name", "dataset_test_split", "reward_funcs", "dtype", "output_dir"}
TIMES = ("step_time", "runtime", "per_second", "seconds")


class Steps(TrainerCallback):
    """The wall and CPU seconds from each step's end to the next, so with the logging between them."""

    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append((time.perf_counter(), time.process_time()))

    def seconds(self, clock):
        return [after[clock] - before[clock] for before, after in zip(self.ends, self.ends[1:], strict=False)]


class Meter:
    """The CPU seconds of the console itself, in whichever thread: of its callbacks, and of redrawing the panel."""

    def __init__(self):
        self.seconds, self._inside = 0.0, threading.local()

    def of(self, method):
        def metered(*positional, **named):
            if getattr(self._inside, "now", False):  # an event redraws the panel, too
                return method(*positional, **named)
            self._inside.now, start = True, time.thread_time()
            try:
                return method(*positional, **named)
            finally:
                self.seconds += time.thread_time() - start
                self._inside.now = False

        return metered


METER = Meter()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def train(style: str, steps: int) -> tuple[VADEGRPOTrainer, Steps]:
    """Train the quickstart without validations and saves, and return it with its times."""
    METER.seconds = 0.0
    recipe = yaml.safe_load(recipe_file("quickstart").read_text())
    settings = {name: value for name, value in recipe.items() if name not in OF_COMMAND}
    settings |= {"max_steps": steps, "logging_steps": 1, "eval_strategy": "no", "eval_on_start": False}
    settings |= {"save_strategy": "no", "vade_report": False, "vade_console": style}
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        args = VADEGRPOConfig(folder, **settings)
        rows, clock = load_testbed_dataset()["train"], Steps()
        model = str(load_testbed_model(progress=False))
        trainer = VADEGRPOTrainer(model, exact_answer_reward, args, rows, callbacks=[clock])
        trainer.train()
    return trainer, clock


def outcome(trainer: VADEGRPOTrainer) -> tuple[list[dict], list[torch.Tensor]]:
    """Return what a run has learned and logged, without its times."""
    history = [
        {name: value for name, value in entry.items() if not any(word in name for word in TIMES)}
        for entry in trainer.state.log_history
    ]
    return history, list(trainer.model.state_dict().values())


def assert_equal(one: tuple, other: tuple) -> None:
    assert one[0] == other[0], "the logged metrics differ"
    assert all(map(torch.equal, one[1], other[1])), "the weights differ"


def milliseconds(work: Callable[[], object]) -> float:
    """Return the median CPU time of this thread for `work`, of 200."""
    times = []
    for _ in range(200):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=5)
    asked = parser.parse_args()
    install.Screen = lambda **named: Screen(file=Terminal(), force_terminal=True, width=120, height=40, **named)
    for name in ("on_train_begin", "on_step_end", "on_log"):
        setattr(callback.Console, name, METER.of(getattr(callback.Console, name)))
    Live.refresh = METER.of(Live.refresh)
    found = {style: ([], [], []) for style in STYLES}
    expected = None
    for repeat in range(-1, asked.repeats):  # the first warms up
        for style in STYLES if repeat % 2 else reversed(STYLES):
            trainer, clock = train(style, asked.steps if repeat >= 0 else 3)
            if repeat < 0:
                continue
            expected = expected or outcome(trainer)
            assert_equal(outcome(trainer), expected)
            wall, cpu = statistics.median(clock.seconds(0)), statistics.median(clock.seconds(1))
            for of_style, value in zip(found[style], (wall, cpu, METER.seconds / asked.steps), strict=True):
                of_style.append(value)
            if style == "panel":
                shown = trainer
    print("equal: weights and logged metrics of all runs")
    for style, all_three in found.items():
        wall, cpu, own = (f"{statistics.median(each):.4f} ({min(each):.4f} to {max(each):.4f})" for each in all_three)
        share = statistics.median(own / cpu for _, cpu, own in zip(*all_three, strict=True))
        print(f"{style:6} wall s a step {wall} | CPU {cpu} | of it the console {own}, {100 * share:.2f} %")
    console, logs = shown._console, shown.state.log_history[-2]
    live = Live(get_renderable=console._panel, console=console._screen, auto_refresh=False)
    live.start()
    print(f"a refresh of the panel, twice a second: {milliseconds(live.refresh):.2f} ms")
    live.stop()
    print(f"a logging step: {milliseconds(lambda: console.on_log(shown.args, shown.state, None, logs)):.2f} ms")


if __name__ == "__main__":
    main()
