"""The console as a callback of the Trainer. It changes no metric, and no error of it reaches the training."""

import shlex
import time
from pathlib import Path
from typing import Any

from rich.console import Console as Screen
from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from transformers.trainer_utils import has_length

from trl_vade.samplers.priors import even_draw_ratio
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.selection.report.summary import summarise
from trl_vade.selection.report.validation import change_of, data_set_of, validations, with_error
from trl_vade.selection.report.verdict import verdict
from trl_vade.selection.report.writing import PAGE_FILE

from ..activity import UPDATING
from ..checkpoint.folders import complete_checkpoints
from ..harmless import HarmlessCallback, harmless
from ..presets import is_adaptive
from ..publishing.run_facts import live_run
from ..run_description import validation_answers
from ..typed_command import without_resume
from .figures import duration, line, plain_numbers, table
from .start import header

WIDE = 100  # columns from which the panel has remarks


class Console(HarmlessCallback):
    """What a run shows, in place of the bars and dictionaries of transformers.

    Args:
        trainer: the `VADEGRPOTrainer`; only its main process shows anything.
        screen: rich's console to write to.
        panel: whether a panel is redrawn in place; else a logging step is a line.
    """

    absence = "The console is off"

    def __init__(self, trainer: Any, screen: Screen, *, panel: bool):
        self._trainer, self._screen, self._has_panel = trainer, screen, panel
        self._live: Live | None = None
        self._begin(0)

    def _begin(self, step: int) -> None:
        self._logs: list[dict[str, float]] = []  # with the figures of training
        self._even: float | None = None
        self._first, self._began = step, time.monotonic()
        self._stepped, self._training = self._began, 0.0  # the end of the last step; seconds of steps until then
        self._validated, self._validating = 0, 0.0  # validations, and their seconds
        self._batches = ""  # of the validation that goes on
        self._ended: bool | None = None  # whether the run reached its last step; None while it goes on

    @harmless
    def on_train_begin(self, args, state, control, **kwargs):
        """Say what is trained on what, and start the panel."""
        self._begin(state.global_step)
        for each in header(self._trainer, state.max_steps):
            self._print(each)
        if self._has_panel:
            self._live = Live(get_renderable=self._panel, console=self._screen, refresh_per_second=2)
            self._live.start()

    @harmless
    def on_step_end(self, args, state, control, **kwargs):
        """Note the time of the step, without the validations."""
        self._stepped = time.monotonic()
        self._training = self._stepped - self._began - self._validating

    @harmless
    def on_log(self, args, state, control, logs=None, **kwargs):
        """Show the figures of a logging step."""
        if not logs or "loss" not in logs:
            return
        self._logs.append(plain_numbers(logs))
        if (selection := self._trainer.selection) is not None:
            posterior, spreads = selection.sampler.posterior, selection.feedback.signal.is_spread
            self._even = even_draw_ratio(posterior, self._trainer.num_generations, spreads=spreads)
        if not self._has_panel:
            step = f"step {state.global_step}/{state.max_steps}"
            self.say(f"{step} {line(self._logs, self._even)} {self._per_step()} s/step left {self._left()}")

    @harmless
    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        """Count the batches of a validation."""
        done, known = int(self._batches.partition("/")[0] or 0) + 1, has_length(eval_dataloader)
        self._batches = f"{done}/{len(eval_dataloader)}" if known else f"{done}"

    @harmless
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Show a validation with its standard error, and whether it differs from the first."""
        found = metrics or {}
        name = data_set_of(found)
        self._batches, self._validated = "", self._validated + 1
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
        """Forget the batches of `predict`."""
        self._batches = ""

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
        """End the panel. Say how the run went and what to do next, unless it ended in an error."""
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
                self._print(sentence)
        if not self._ended:
            self._print(self._how_to_go_on(), whole=True)
        elif run is not None:
            self._print(self._what_next(), whole=True)

    def stop(self) -> None:
        """Leave the panel as it is, and give the terminal back."""
        if self._live is not None:
            live, self._live = self._live, None
            live.stop()

    @harmless
    def say(self, event: str) -> None:
        """Show an event with its time, above the panel."""
        self._print(f"{time.strftime('%H:%M:%S')} {event}")

    def _print(self, text: str, *, whole: bool = False) -> None:
        """Print a line; on a terminal it is broken between words, unless it is to be copied as a `whole`."""
        self._screen.print(text, highlight=False, markup=False, soft_wrap=whole or not self._has_panel)

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
        return duration(seconds - (time.monotonic() - self._stepped if to_do else 0.0))

    def _activity(self) -> str:
        doing = self._trainer.activity
        if self._ended is not None and doing == UPDATING:
            return "writing the report"
        if self._batches and doing != "saving":
            return f"validating {self._batches}"
        return doing if self._trainer.state.global_step > self._first or doing != UPDATING else "starting"

    def _panel(self) -> RenderableType:
        return self._drawn() or Text("")

    @harmless
    def _drawn(self) -> RenderableType:
        trainer, state, width = self._trainer, self._trainer.state, self._screen.width
        head = Table.grid(padding=(0, 1))
        for _ in range(5):
            head.add_column(no_wrap=True)
        head.add_row(
            f"step {state.global_step}/{state.max_steps}",
            ProgressBar(total=max(state.max_steps, 1), completed=state.global_step, width=20 if width >= WIDE else 12),
            self._activity(),
            f"{self._per_step()} s a step",
            f"{self._left()} left",
        )
        rows = [Rule(style="dim"), head]
        if self._logs:
            adaptive = trainer.selection is not None and is_adaptive(trainer.args)
            every = max(int(state.logging_steps), 1)
            rows.append(table(self._logs, self._even, every, adaptive=adaptive, remarks=width >= WIDE))
        return Group(*rows)
