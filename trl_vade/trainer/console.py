"""The console of a run: a panel on a terminal, one line a logging step in a file or a notebook."""

import logging
import math
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console as Screen
from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.rule import Rule
from rich.table import Table
from rich.text import Text
from transformers import PrinterCallback, ProgressCallback, TrainerCallback
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK
from trl.trainer.utils import get_config_model_id

from trl_vade.selection.report.even_draw import even_draw_ratio
from trl_vade.selection.report.summary import summarise
from trl_vade.selection.report.verdict import change_of, verdict, with_error
from trl_vade.version import __version__

from .loader import generate_every
from .presets import is_adaptive, setting
from .publishing.run_facts import live_run

DOING = {"selection": "choosing rows", "generation": "generating and scoring", None: "updating"}
FIGURES = {
    "useful groups": ("useful", "effective_gradient_ratio"),
    "predicted": ("predicted", "predicted_effective_ratio"),
    "pass rate of chosen": ("chosen", "selected_pass_rate"),
    "pass rate of all rows": ("all", "mean_pass_rate"),
    "rows seen": ("seen", "coverage"),
}
"""By label in the panel: the word in a line, and the metric without `vade/`."""
CLOSE = 0.1  # difference of a prediction that can be trusted
LAST = 5  # logging steps in the mean of the panel
WIDE = 100  # columns from which the panel has remarks


class Console(TrainerCallback):
    """What a run shows, in place of the bars and dictionaries of transformers. It changes no metric.

    Args:
        trainer: the `VADEGRPOTrainer`; only its main process shows anything.
        style: "panel" or "lines".
        screen: rich's console to write to.
    """

    def __init__(self, trainer: Any, style: str, screen: Screen):
        self._trainer, self._style, self._screen = trainer, style, screen
        self._live: Live | None = None
        self._logs: list[dict[str, float]] = []  # with the figures of training
        self._scores: list[dict[str, Any]] = []  # step, score and standard error of each validation
        self._even: float | None = None
        self._began, self._first, self._doing = 0.0, 0, ""
        self._validating = 0.0  # seconds

    def on_train_begin(self, args, state, control, **kwargs):
        """Say what is trained on what, and start the panel."""
        self._logs, self._scores, self._even = [], [], None
        self._began, self._first, self._doing = time.monotonic(), state.global_step, ""
        self._validating = 0.0
        for line in self._header(state.max_steps):
            self._screen.print(line, highlight=False, soft_wrap=True)
        if self._style == "panel":
            self._live = Live(get_renderable=self._panel, console=self._screen, refresh_per_second=2)
            self._live.start()

    def on_log(self, args, state, control, logs=None, **kwargs):
        """Show the figures of a logging step."""
        if not logs or "loss" not in logs:
            return
        self._logs.append({name: value for name, value in logs.items() if isinstance(value, int | float)})
        if (selection := self._trainer.selection) is not None:
            posterior, spreads = selection.sampler.posterior, selection.feedback.signal.is_spread
            self._even = even_draw_ratio(posterior, self._trainer.num_generations, spreads=spreads)
        if self._live is None:
            self._say(self._line(state))

    def on_prediction_step(self, args, state, control, **kwargs):
        """Note that the run validates."""
        self._doing = "validating"

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        """Show a validation with its standard error, and whether it differs from the first."""
        self._doing, found = "", metrics or {}
        self._validating += found.get("eval_runtime", 0.0)
        if "eval_reward" not in found:
            return
        answers = self._answers()
        error = found["eval_reward_std"] / math.sqrt(answers) if answers and "eval_reward_std" in found else None
        self._scores.append({"step": state.global_step, "score": found["eval_reward"], "standard_error": error})
        change, noise = change_of(self._scores)
        sure = "" if noise is None else ": within noise" if abs(change) <= noise else ": more than noise"
        more = f" ({100 * change:+.1f}{sure})" if len(self._scores) > 1 else ""
        self._say(f"validation at step {state.global_step}: {with_error(self._scores[-1])}{more}")

    def on_save(self, args, state, control, **kwargs):
        """Show that a checkpoint was written."""
        self._say(f"checkpoint-{state.global_step} written")

    def on_train_end(self, args, state, control, **kwargs):
        """Show the verdict, and what to try next."""
        self.stop()
        done = state.global_step >= state.max_steps
        run = live_run(self._trainer)
        said = " ".join(verdict(summarise(run))) if run is not None else ""
        self._say(f"{'done' if done else 'stopped'} at step {state.global_step}. {said}")
        more = "" if done else " | --resume_from_checkpoint true goes on"
        if self._trainer.selection is not None:
            self._say(f"next: trl-vade report {args.output_dir}{more}")

    def stop(self) -> None:
        """Leave the panel as it is, and give the terminal back."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _say(self, text: str) -> None:
        self._screen.print(f"{time.strftime('%H:%M:%S')} {text}", highlight=False, markup=False, soft_wrap=True)

    def _header(self, max_steps: int) -> Iterator[str]:
        trainer, args = self._trainer, self._trainer.args
        sampler = setting(args, "sampler")
        sampler += f", {args.vade_preset}" if sampler in ("thompson", "greedy") else ""
        model = trainer.accelerator.unwrap_model(trainer.model)
        millions = sum(weight.numel() for weight in model.parameters()) / 1e6
        name = str(get_config_model_id(model.config)).rstrip("/").split("/")[-1]
        device = f"{trainer.accelerator.device.type} x{trainer.accelerator.num_processes}"
        yield " | ".join(
            [f"trl_vade {__version__}", sampler, f"{name}, {millions:,.1f} M parameters", device, args.output_dir]
        )
        if trainer.selection is None:
            return
        rows, groups = len(trainer.selection.dataset), trainer.selection.num_groups
        batches = math.ceil(max_steps * args.gradient_accumulation_steps / generate_every(trainer))
        share = batches * groups / rows
        size = f"{groups} x {args.num_generations} = {groups * args.num_generations:,} completions"
        epochs = f"{share:.1f} epochs" if share >= 1 else f"{100 * share:.0f} % of the rows"
        yield f"{rows:,} rows; a generation batch is {size}; {batches:,} batches = {epochs}"
        if is_adaptive(args) and share < 2 and args.vade_posterior_init == "prior":
            yield (
                "Rows come too rarely to choose by: the posterior tells rows apart only after they were seen. Raise "
                "max_steps or the rows of a generation batch (gradient_accumulation_steps), use fewer rows, or start "
                "from the posterior of another run (vade_posterior_init)."
            )

    def _answers(self) -> int:
        rows = self._trainer.eval_dataset
        rows = sum(map(len, rows.values())) if isinstance(rows, dict) else len(rows) if hasattr(rows, "__len__") else 0
        return rows * self._trainer.num_generations_eval

    def _figure(self, name: str, logs: list[dict[str, float]]) -> float | None:
        """Return the mean of a metric over some logging steps, as a share; None if none of them has it."""
        spread = name.replace("pass_rate", "spread")
        values = [log.get(f"vade/{name}", log.get(f"vade/{spread}", math.nan)) for log in logs]
        known = [value for value in values if not math.isnan(value)]
        return sum(known) / len(known) if known else None

    def _line(self, state: Any) -> str:
        parts = [f"step {state.global_step}/{state.max_steps}"]
        for word, name in FIGURES.values():
            value = self._figure(name, self._logs[-1:])
            if value is not None:
                even = f" (even {percent(self._even)})" if word == "useful" and self._even is not None else ""
                parts.append(f"{word} {percent(value)}{even}")
        if len(parts) == 1:
            parts += [f"{name} {self._logs[-1][name]:.3g}" for name in ("loss", "reward") if name in self._logs[-1]]
        per_step, left = self._pace(state)
        return " ".join([*parts, f"{per_step:.1f} s/step", f"left {left}"])

    def _pace(self, state: Any) -> tuple[float, str]:
        """Return the seconds of a step so far, without validations, and the time that is left with them."""
        done = max(state.global_step - self._first, 1)
        seconds = time.monotonic() - self._began
        left = round(seconds / done * (state.max_steps - state.global_step))
        return (seconds - self._validating) / done, f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}"

    def _panel(self) -> Group:
        state, selection = self._trainer.state, self._trainer.selection
        per_step, left = self._pace(state)
        doing = self._doing or DOING.get(selection and selection.feedback.doing, "")
        head = Table.grid(padding=(0, 1))
        bar = ProgressBar(total=max(state.max_steps, 1), completed=state.global_step, width=20)
        head.add_row(
            f"step {state.global_step}/{state.max_steps}", bar, doing, f"{per_step:.1f} s a step", f"{left} left"
        )
        table = Table.grid(padding=(0, 2))
        table.add_column()
        for _ in range(2):
            table.add_column(justify="right")
        if self._logs:
            table.add_row("", f"last {min(LAST, len(self._logs))}", "start", "")
        for label, (_, name) in FIGURES.items():
            recent = 1 if name == "coverage" else LAST
            now, start = (self._figure(name, logs) for logs in (self._logs[-recent:], self._logs[:1]))
            if now is not None and start is not None:
                remark = self._remark(name, now, start) if self._screen.width >= WIDE else ""
                table.add_row(label, percent(now), percent(start), Text(remark, style="dim"))
        return Group(Rule(style="dim"), head, table)

    def _remark(self, name: str, now: float, start: float) -> str:
        if name == "effective_gradient_ratio":
            return f"right and wrong answers; an even draw: about {percent(self._even)}"
        if name == "predicted_effective_ratio":
            useful = self._figure("effective_gradient_ratio", self._logs[-LAST:])
            sure = useful is not None and abs(now - useful) < CLOSE
            return "close: the belief can be trusted" if sure else "not close yet: the belief is learning"
        if name == "selected_pass_rate" and now < start and is_adaptive(self._trainer.args):
            return "falls by design: harder rows are chosen"
        return {"mean_pass_rate": "the policy itself, as believed"}.get(name, "")


def percent(share: float | None) -> str:
    """Return a share in per cent, without digits after the point."""
    return "-" if share is None or math.isnan(share) else f"{100 * share:.0f} %"


def install_console(trainer: Any) -> Console | None:
    """Replace the bars and dictionaries of transformers by the console, as `vade_console` says; return it."""
    style = trainer.args.vade_console
    if style == "stock":
        return None
    for stock in {ProgressCallback, PrinterCallback, DEFAULT_PROGRESS_CALLBACK}:  # the last is another in a notebook
        trainer.remove_callback(stock)
    if not trainer.is_world_process_zero():
        return None
    screen = Screen(markup=False, emoji=False)
    if style == "auto":
        style = "panel" if screen.is_terminal and not screen.is_jupyter else "lines"
    console = Console(trainer, style, screen)
    trainer.add_callback(console)
    return console


@contextmanager
def showing(console: Console | None) -> Iterator[None]:
    """End the panel when the block ends, however it ends. What other code logs meanwhile scrolls above it."""
    stderr, moved = sys.stderr, []
    loggers = [logging.getLogger(), *map(logging.getLogger, logging.root.manager.loggerDict)]
    if console is not None:
        for handler in {each for logger in loggers for each in logger.handlers}:
            if isinstance(handler, logging.StreamHandler) and vars(handler).get("stream") is stderr:
                handler.setStream(_Present())
                moved.append(handler)
    try:
        yield
    finally:
        if console is not None:
            console.stop()
        for handler in moved:
            handler.setStream(stderr)


class _Present:
    """The present `sys.stderr`: rich replaces it while a panel is shown, and a handler would keep the old one."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()
