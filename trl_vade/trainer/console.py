"""The console of a run as a callback of the Trainer. It changes no metric, and no error of it reaches the training."""

import math
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from trl.trainer.utils import get_config_model_id

from trl_vade.selection.report.summary import summarise, verdict
from trl_vade.selection.report.validation import change_of, data_set_of, validations, with_error
from trl_vade.selection.report.writing import PAGE_FILE
from trl_vade.version import __version__

from .checkpoint.folders import complete_checkpoints
from .harmless import HarmlessCallback, callback_of, harmless
from .loader import generate_every
from .presets import is_adaptive, setting
from .report import live_run
from .run_description import run_names

SHARES = {
    "effective_gradient_ratio": "useful",
    "predicted_effective_ratio": "predicted",
    "selected_pass_rate": "chosen",
    "mean_pass_rate": "all",
    "coverage": "seen",
}
"""Words of shares, by metric without `vade/`."""
OTHERS = {"reward": "reward", "loss": "loss", "grad_norm": "grad", "completions/mean_length": "length"}
"""Words of the figures of a run without a sampler of ours."""
ENOUGH = 2  # epochs; below it the posterior knows too little of most rows
TOO_FEW = (
    "Rows come too rarely to choose by: the posterior tells rows apart only after they were seen. Raise max_steps or "
    "the rows of a generation batch (gradient_accumulation_steps), use fewer rows, or start from the posterior of "
    "another run (vade_posterior_init)."
)


class Bar(ProgressCallback):
    """The bar of transformers, without its dictionaries."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Do nothing: `VADEConsoleCallback` has a line for it."""


class VADEConsoleCallback(HarmlessCallback):
    """What a run shows on its main process, in place of the dictionaries of transformers.

    It says what is trained on what, one line a logging step, validations, checkpoints, pushes, and how the run went.
    On a terminal the bar of transformers stays below these lines, unless `disable_tqdm` is set.

    `trainer.remove_callback(VADEConsoleCallback)` switches it off. The output of transformers comes back by
    `trainer.add_callback(transformers.ProgressCallback)`.
    """

    absence = "The console is off"

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self._begin(0)

    def _begin(self, step: int) -> None:
        self._first, self._began, self._validating = step, time.monotonic(), 0.0
        self._ended: bool | None = None  # whether the run reached its last step; None while it goes on

    @harmless
    def on_train_begin(self, args, state, control, **kwargs):
        """Say what is trained on what."""
        self._begin(state.global_step)
        self._trainer.publication.announce = self.say
        for each in header(self._trainer, state.max_steps):
            tqdm.write(each)

    @harmless
    def on_log(self, args, state, control, logs=None, **kwargs):
        """Show the figures of a logging step."""
        if logs and "loss" in logs:
            seconds = (time.monotonic() - self._began - self._validating) / max(state.global_step - self._first, 1)
            left = duration(seconds * (state.max_steps - state.global_step))
            step = f"step {state.global_step}/{state.max_steps}"
            self.say(f"{step} {figures(logs)} {seconds:.1f} s/step left {left}")

    @harmless
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Show a validation with its standard error, and whether it differs from the first."""
        found = metrics or {}
        name = data_set_of(found)
        self._validating += found.get(f"eval_{name}_runtime" if name else "eval_runtime", 0.0)
        rule = run_names(self._trainer)
        scores = validations(state.log_history, rule["success_reward"], rule["validation_answers"], data_set=name)
        if not scores or scores[-1]["step"] != state.global_step:
            return
        change, sure = change_of(scores[0], scores[-1])
        since = f" ({change}: {sure})" if len(scores) > 1 else ""
        of = f" on {name}" if name else ""
        self.say(f"validation{of} at step {state.global_step}: {with_error(scores[-1])}{since}")

    @harmless
    def on_save(self, args, state, control, **kwargs):
        """Show that a checkpoint was written."""
        self.say(f"checkpoint-{state.global_step} written")

    @harmless
    def on_train_end(self, args, state, control, **kwargs):
        """Note how the run ended. What there is to say of it follows when its report is written."""
        self._ended = state.global_step >= state.max_steps

    @harmless
    def finish(self, *, interrupted: bool) -> None:
        """Say how the run went and what to do next, unless it ended in an error."""
        state, folder = self._trainer.state, Path(self._trainer.args.output_dir)
        if self._ended is None and not interrupted:
            return
        run = live_run(self._trainer)
        if self._ended is not None:
            spent = f": {run.lines[-1]['rollouts']:,} completions" if run is not None else ""
            took = duration(time.monotonic() - self._began)
            self.say(f"{'done' if self._ended else 'ended'} at step {state.global_step} after {took}{spent}")
            for sentence in verdict(summarise(run)) if run is not None else []:
                tqdm.write(sentence)
        if not self._ended:
            complete = complete_checkpoints(folder)
            from_last = f'Go on from {complete[-1].name} with resume_from_checkpoint="auto"' if complete else ""
            tqdm.write(f"Stopped at step {state.global_step}. {from_last or 'There is no checkpoint yet'}.")
        elif run is not None:
            page = f"open {folder / PAGE_FILE}" if (folder / PAGE_FILE).exists() else f"trl-vade report {folder}"
            tqdm.write(f"Next: {page}\n      trl-vade posterior show {folder} (the hardest rows)")

    @harmless
    def say(self, event: str) -> None:
        """Show an event with its time, above the bar."""
        tqdm.write(f"{time.strftime('%H:%M:%S')} {event}")


def install_console(trainer: Any) -> None:
    """Put the console in the place of the bars and dictionaries of transformers."""
    for stock in {ProgressCallback, PrinterCallback, DEFAULT_PROGRESS_CALLBACK}:  # the last is another in a notebook
        trainer.remove_callback(stock)
    if trainer.is_world_process_zero():
        if sys.stderr.isatty() and not trainer.args.disable_tqdm:
            trainer.add_callback(Bar)
        trainer.add_callback(VADEConsoleCallback(trainer))


@contextmanager
def saying_how_it_ended(trainer: Any) -> Iterator[None]:
    """Let the console say how the training in the block went."""
    interrupted = False
    try:
        yield
    except KeyboardInterrupt:
        interrupted = True
        raise
    finally:
        if (console := callback_of(trainer, VADEConsoleCallback)) is not None:
            console.finish(interrupted=interrupted)


def header(trainer: Any, max_steps: int) -> Iterator[str]:
    """Yield the lines of the start. The last warns of rows that come too rarely to choose by."""
    args, selection, sampler = trainer.args, trainer.selection, setting(trainer.args, "sampler")
    model = trainer.accelerator.unwrap_model(trainer.model)
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    name = str(get_config_model_id(model.config)).rstrip("/").split("/")[-1]
    data = f", on {trainer.dataset_name}" if trainer.dataset_name else ""
    preset = f", {args.vade_preset}" if sampler in ("thompson", "greedy") else ""
    device = f"{trainer.accelerator.device.type.upper()} x{trainer.accelerator.num_processes}"
    about = f"{name}, {millions:,.1f} M parameters{data} | {sampler}{preset} | {device} | -> {args.output_dir}"
    yield f"trl_vade {__version__} | {about}"
    if not hasattr(trainer.train_dataset, "__len__"):
        return
    rows, groups = len(trainer.train_dataset), args.generation_batch_size // trainer.num_generations
    batches = math.ceil(max_steps * args.gradient_accumulation_steps / generate_every(trainer))
    share = batches * groups / rows
    size = f"{groups:,} {'row' if groups == 1 else 'rows'} x {trainer.num_generations}"
    least = "at least " if args.vade_dynamic_sampling else ""  # a refill draws more rows
    epochs = f"{share:.1f} epochs" if share >= 1 else f"{100 * share:.2g} % of the rows"
    yield (
        f"{rows:,} rows; a generation batch is {size} = {groups * trainer.num_generations:,} completions; "
        f"{batches:,} batches = {least}{epochs}"
    )
    inherits = selection is not None and selection.sampler.posterior.step > 0 and trainer.state.global_step == 0
    knows_rows = inherits or setting(args, "posterior_init") != "prior"
    if selection is not None and is_adaptive(args) and share < ENOUGH and not knows_rows:
        yield TOO_FEW


def figures(log: Mapping[str, Any]) -> str:
    """Return the figures of a logging step in one line.

    A run without a sampler of ours has useful groups, too: all but those of equal rewards.
    """
    found = {name: log.get(f"vade/{name}", log.get(f"vade/{name.replace('pass_rate', 'spread')}")) for name in SHARES}
    if found["effective_gradient_ratio"] is None and "frac_reward_zero_std" in log:
        found["effective_gradient_ratio"] = 1 - log["frac_reward_zero_std"]
    parts = [f"{SHARES[name]} {100 * value:.0f} %" for name, value in found.items() if value is not None]
    if "vade/even_draw_ratio" in log:
        parts[0] += f" (even {100 * log['vade/even_draw_ratio']:.0f} %)"
    others = " ".join(f"{word} {log[name]:.3g}" for name, word in OTHERS.items() if name in log)
    return " ".join(parts if len(parts) > 1 else [*parts, others])


def duration(seconds: float) -> str:
    """Return a time as a person says it: 36 s, 4 min 36 s, 2 h 5 min."""
    whole = max(round(seconds), 0)
    if whole < 60:
        return f"{whole} s"
    return f"{whole // 60} min {whole % 60} s" if whole < 3600 else f"{whole // 3600} h {whole // 60 % 60} min"
