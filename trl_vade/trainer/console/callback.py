"""The console as a callback of the Trainer. It changes no metric, and no error of it reaches the training."""

import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm
from transformers import PrinterCallback, ProgressCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK

from trl_vade.samplers.priors import even_draw_ratio
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.selection.report.summary import summarise
from trl_vade.selection.report.validation import change_of, data_set_of, validations, with_error
from trl_vade.selection.report.verdict import verdict
from trl_vade.selection.report.writing import PAGE_FILE

from ..checkpoint.folders import complete_checkpoints
from ..harmless import HarmlessCallback, callback_of, harmless
from ..publishing.run_facts import live_run
from ..run_description import validation_answers
from ..typed_command import without_resume
from .figures import duration, line, plain_numbers
from .start import header


class VADEConsoleCallback(HarmlessCallback):
    """What a run shows on its main process, in place of the dictionaries of transformers.

    It says what is trained on what, one line a logging step, validations, checkpoints, pushes, and how the run went.
    On a terminal the bar of transformers stays below these lines, unless `disable_tqdm` is set.

    `trainer.remove_callback(VADEConsoleCallback)` switches it off, bar included. The output of transformers comes back
    by `trainer.add_callback(transformers.ProgressCallback)`.
    """

    absence = "The console is off"

    def __init__(self, trainer: Any):
        self._trainer = trainer
        with_bar = sys.stderr.isatty() and not trainer.args.disable_tqdm
        self._bar = ProgressCallback() if with_bar else None
        self._begin(0)

    def _begin(self, step: int) -> None:
        self._first, self._began = step, time.monotonic()
        self._training = 0.0  # seconds of steps
        self._validated, self._validating = 0, 0.0  # validations, and their seconds
        self._ended: bool | None = None  # whether the run reached its last step; None while it goes on

    @harmless
    def on_train_begin(self, args, state, control, **kwargs):
        """Say what is trained on what."""
        self._begin(state.global_step)
        self._trainer.publication.announce = self.say
        for each in header(self._trainer, state.max_steps):
            tqdm.write(each)
        if self._bar:
            self._bar.on_train_begin(args, state, control)

    @harmless
    def on_step_end(self, args, state, control, **kwargs):
        """Note the time of the step, without the validations."""
        self._training = time.monotonic() - self._began - self._validating
        if self._bar:
            self._bar.on_step_end(args, state, control)

    @harmless
    def on_log(self, args, state, control, logs=None, **kwargs):
        """Show the figures of a logging step."""
        if not logs or "loss" not in logs:
            return
        even = None
        if (selection := self._trainer.selection) is not None:
            posterior, spreads = selection.sampler.posterior, selection.feedback.signal.is_spread
            even = even_draw_ratio(posterior, self._trainer.num_generations, spreads=spreads)
        step = f"step {state.global_step}/{state.max_steps}"
        self.say(f"{step} {line(plain_numbers(logs), even)} {self._per_step()} s/step left {self._left()}")

    @harmless
    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        """Move the bar of a validation."""
        if self._bar:
            self._bar.on_prediction_step(args, state, control, eval_dataloader=eval_dataloader)

    @harmless
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Show a validation with its standard error, and whether it differs from the first."""
        if self._bar:
            self._bar.on_evaluate(args, state, control)
        found = metrics or {}
        name = data_set_of(found)
        self._validated += 1
        self._validating += found.get(f"eval_{name}_runtime" if name else "eval_runtime", 0.0)
        scores = validations(state.log_history, *self._rule(), data_set=name)
        if not scores or scores[-1]["step"] != state.global_step:
            return
        change, sure = change_of(scores[0], scores[-1])
        since = f" ({change}: {sure})" if len(scores) > 1 else ""
        of = f" on {name}" if name else ""
        self.say(f"validation{of} at step {state.global_step}: {with_error(scores[-1])}{since}")

    @harmless
    def on_predict(self, args, state, control, **kwargs):
        """Close the bar of `predict`."""
        if self._bar:
            self._bar.on_predict(args, state, control)

    @harmless
    def on_save(self, args, state, control, **kwargs):
        """Show that a checkpoint was written."""
        self.say(f"checkpoint-{state.global_step} written")

    @harmless
    def on_train_end(self, args, state, control, **kwargs):
        """Note how the run ended. What there is to say of it follows when its report is written."""
        self._ended = state.global_step >= state.max_steps
        self.stop()

    @harmless
    def finish(self, *, interrupted: bool) -> None:
        """Say how the run went and what to do next, unless it ended in an error."""
        self.stop()
        state = self._trainer.state
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
            tqdm.write(self._how_to_go_on())
        elif run is not None:
            tqdm.write(self._what_next())

    def stop(self) -> None:
        """Close the bars."""
        for name in ("prediction_bar", "training_bar"):
            if (bar := getattr(self._bar, name, None)) is not None:
                bar.close()

    @harmless
    def say(self, event: str) -> None:
        """Show an event with its time, above the bar."""
        tqdm.write(f"{time.strftime('%H:%M:%S')} {event}")

    def _rule(self) -> tuple[str | None, Any]:
        """Return by which reward, and by how many answers, a validation counts."""
        selection = self._trainer.selection
        name = None if selection is None else selection.feedback.signal.facts["success_reward"]
        return name, validation_answers(self._trainer)

    def _what_next(self) -> str:
        folder = Path(self._trainer.args.output_dir)
        if self._trainer.command is None and not (folder / POSTERIOR_FILE).exists():  # the command saves it now
            return "Next: trainer.save_model() keeps the weights, and the posterior beside them"
        page = f"open {folder / PAGE_FILE}" if (folder / PAGE_FILE).exists() else f"trl-vade report {folder}"
        return f"Next: {page}\n      trl-vade posterior show {folder} (the hardest rows)"

    def _how_to_go_on(self) -> str:
        step, command = self._trainer.state.global_step, self._trainer.command
        complete = complete_checkpoints(self._trainer.args.output_dir)
        if not complete:
            return f"Stopped at step {step}, without a checkpoint to go on from."
        again = [*without_resume(command or []), "--resume_from_checkpoint", "true"]
        how = shlex.join(again) if command else "trainer.train(resume_from_checkpoint=True)"
        last = complete[-1].name
        return f"Stopped at step {step}{'' if last == f'checkpoint-{step}' else f', after {last}'}. Go on with: {how}"

    def _per_step(self) -> str:
        done = self._trainer.state.global_step - self._first
        return f"{self._training / done:.1f}" if done else "-"

    def _left(self) -> str:
        """Return the time that is left, with the validations in it, if a step is done by which to tell."""
        state, args = self._trainer.state, self._trainer.args
        done, to_do = state.global_step - self._first, state.max_steps - state.global_step
        if not done:
            return "-"
        more = to_do // state.eval_steps if args.eval_strategy == "steps" and state.eval_steps else 0
        seconds = self._training / done * to_do + self._validating / max(self._validated, 1) * more
        return duration(seconds)


def install_console(trainer: Any) -> None:
    """Put the console in the place of the bars and dictionaries of transformers."""
    for stock in {ProgressCallback, PrinterCallback, DEFAULT_PROGRESS_CALLBACK}:  # the last is another in a notebook
        trainer.remove_callback(stock)
    if trainer.is_world_process_zero():
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
