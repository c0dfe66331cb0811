"""The console of a run as a callback of the Trainer. It changes no metric, and no error of it reaches the training."""

import math
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from trl.trainer.utils import get_config_model_id

from trl_vade.checkpoints import complete_checkpoints
from trl_vade.selection.report.record import Run, data_set_of
from trl_vade.selection.report.summary import change_of, figures, summarise, verdict, with_error
from trl_vade.selection.report.writing import PAGE_FILE
from trl_vade.version import __version__

from .callbacks import HarmlessCallback, callback_of, harmless
from .grpo_config import VADE_DEFAULTS
from .loader import generate_every
from .presets import is_adaptive, setting
from .report import live_run
from .run_facts import run_names

NOT_OF_UNIFORM = ("vade_stratify_by", "vade_posterior_init", "vade_replay")  # refused, the last unless it is lossless
ENOUGH = 2  # epochs; below it the posterior knows too little of most rows
FEW = 8  # rows of a generation batch; TRL's defaults make one on a process


class Bar(ProgressCallback):
    """The bar of transformers, without its dictionaries."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Do nothing: `VADEConsoleCallback` has a line for it."""


class VADEConsoleCallback(HarmlessCallback):
    """What a run shows in place of the dictionaries of transformers: its start, steps, events and verdict.

    On a terminal the bar of transformers stays below these lines, unless `disable_tqdm` is set.

    `trainer.remove_callback(VADEConsoleCallback)` switches it off. The output of transformers comes back by
    `trainer.add_callback(transformers.ProgressCallback)`.
    """

    absence = "The console is off"

    def __init__(self, trainer: Any):
        self._trainer = trainer
        self._first, self._began = 0, time.monotonic()

    @harmless
    def on_train_begin(self, args, state, control, **kwargs):
        """Say what is trained on what."""
        self._first, self._began = state.global_step, time.monotonic()
        self._trainer.publication.announce = self.say
        tqdm.write("\n".join(header(self._trainer, state.max_steps)))

    @harmless
    def on_log(self, args, state, control, logs=None, **kwargs):
        """Show the figures of a logging step."""
        if logs and "loss" in logs:
            seconds = (time.monotonic() - self._began) / max(state.global_step - self._first, 1)
            left = duration(seconds * (state.max_steps - state.global_step))
            times = "" if callback_of(self._trainer, Bar) else f" {seconds:.1f} s/step left {left}"  # as the bar has
            size = self._trainer.args.generation_batch_size
            trained = logs.get("vade/kept_rollouts", size) + logs.get("vade/replayed_rows", 0)
            saved = f" saved {1 - trained / size:.0%}" if trained < size else ""
            self.say(f"step {state.global_step}/{state.max_steps} {figures(logs)}{saved}{times}")

    @harmless
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Show a validation with its standard error, and whether it differs from the first."""
        name = data_set_of(metrics or {})
        scores = Run([], state.log_history, run_names(self._trainer)).validation(name)
        if not scores or scores[-1]["step"] != state.global_step:
            return
        change, sure = change_of(scores[0], scores[-1])
        of, since = name and f" on {name}", f" ({change}: {sure})" * (len(scores) > 1)
        self.say(f"validation{of} at step {state.global_step}: {with_error(scores[-1])}{since}")

    @harmless
    def on_save(self, args, state, control, **kwargs):
        """Show that a checkpoint was written."""
        self.say(f"checkpoint-{state.global_step} written")

    @harmless
    def finish(self) -> None:
        """Say how the run went and what to do next."""
        state, folder, run = self._trainer.state, Path(self._trainer.args.output_dir), live_run(self._trainer)
        done = 0 < state.max_steps <= state.global_step
        spent = f": {run.lines[-1]['rollouts']:,} completions" if run else ""
        took = duration(time.monotonic() - self._began)
        self.say(f"{'done' if done else 'ended'} at step {state.global_step} after {took}{spent}")
        for sentence in verdict(summarise(run)) if run else []:
            tqdm.write(sentence)
        if not done:
            *_, last = [None, *complete_checkpoints(folder)]
            how = f'Go on from {last.name} with resume_from_checkpoint="auto"' if last else "It has no checkpoint yet"
            tqdm.write(f"Stopped at step {state.global_step}. {how}.")
        elif run:
            page = f"open {folder / PAGE_FILE}" if (folder / PAGE_FILE).exists() else f"trl-vade report {folder}"
            tqdm.write(f"Next: {page}\n      trl-vade posterior show {folder} (the hardest rows)")
            if is_adaptive(args := self._trainer.args):
                refused = ", ".join(name for name in NOT_OF_UNIFORM if getattr(args, name) != VADE_DEFAULTS[name])
                plain = f"--vade_sampler uniform --output_dir {folder}-uniform{refused and f', without {refused}'}"
                tqdm.write(f"      the same with {plain} (did it help?)")

    @harmless
    def say(self, event: str) -> None:
        """Show an event with its time, above the bar."""
        tqdm.write(f"{time.strftime('%H:%M:%S')} {event}")


def duration(seconds: float) -> str:
    """Return the two largest units of a duration, such as "9 min 48 s"."""
    whole = round(seconds)
    parts = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "min"), (whole % 60, "s")]
    first = next((place for place, (number, _) in enumerate(parts) if number), 3)
    return " ".join(f"{number} {unit}" for number, unit in parts[first:][:2])


def install_console(trainer: Any) -> None:
    """Put the console in the place of the bars and dictionaries of transformers."""
    for stock in {ProgressCallback, PrinterCallback, DEFAULT_PROGRESS_CALLBACK}:  # the last is another in a notebook
        trainer.remove_callback(stock)
    if trainer.is_world_process_zero():
        if sys.stderr.isatty() and not trainer.args.disable_tqdm:
            trainer.add_callback(Bar)
        trainer.add_callback(VADEConsoleCallback(trainer))


def header(trainer: Any, max_steps: int) -> Iterator[str]:
    """Yield the lines of the start. The last warns of rows that come too rarely to choose by."""
    args, selection, sampler = trainer.args, trainer.selection, setting(trainer.args, "sampler")
    model = trainer.accelerator.unwrap_model(trainer.model)
    name = str(get_config_model_id(model.config)).rstrip("/").split("/")[-1]
    about = f"{name}, {model.num_parameters() / 1e6:,.1f} M parameters"
    about += f", on {trainer.dataset_name}" * bool(trainer.dataset_name)
    about += f" | {sampler}" + f", {args.vade_preset}" * (sampler in ("thompson", "greedy"))
    device = f"{trainer.accelerator.device.type.upper()} x{trainer.accelerator.num_processes}"
    yield f"trl_vade {__version__} | {about} | {device} | -> {args.output_dir}"
    if not hasattr(trainer.train_dataset, "__len__"):
        return
    rows, groups = len(trainer.train_dataset), args.generation_batch_size // trainer.num_generations
    batches = math.ceil(max_steps * args.gradient_accumulation_steps / generate_every(trainer))
    share, least = batches * groups / rows, "at least " if args.vade_dynamic_sampling else ""  # refills draw more rows
    yield (
        f"{rows:,} rows; a generation batch is {groups:,} {'row' if groups == 1 else 'rows'} x "
        f"{trainer.num_generations} = {groups * trainer.num_generations:,} completions"
        f"{' (few rows: raise gradient_accumulation_steps)' if groups < FEW else ''}; {batches:,} batches = {least}"
        + (f"{share:.1f} epochs" if share >= 1 else f"{100 * share:.2g} % of the rows")
    )
    if selection is None or not is_adaptive(args) or setting(args, "posterior_init") != "prior":
        return
    if share < ENOUGH and (trainer.state.global_step or not selection.sampler.posterior.step):
        yield (
            "Rows come too rarely to choose by: the posterior tells rows apart only after they were seen. Raise "
            "max_steps or gradient_accumulation_steps, use fewer rows, or set vade_posterior_init to another run's."
        )
