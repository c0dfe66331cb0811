"""CPU time of the console: of a refresh of the panel, and of a logging step.

    python -m eval.benchmarks.console

The panel is refreshed twice a second, by a thread of its own. Medians of 200, on the trained state of a small run.
"""

import io
import statistics
import tempfile
import time
from collections.abc import Callable

from rich.console import Console as Screen
from rich.live import Live

from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.testbed import load_testbed_dataset, load_testbed_model
from trl_vade.testbed.rewards import exact_answer_reward
from trl_vade.trainer import console


def milliseconds(work: Callable[[], object]) -> float:
    """Return the median CPU time of this thread for `work`."""
    times = []
    for _ in range(200):
        start = time.thread_time()
        work()
        times.append(time.thread_time() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    console.Screen = lambda **named: Screen(file=io.StringIO(), force_terminal=True, width=120, height=40, **named)
    with tempfile.TemporaryDirectory() as folder:
        args = VADEGRPOConfig(
            folder,
            per_device_train_batch_size=128,
            max_completion_length=12,
            max_steps=4,
            logging_steps=1,
            use_cpu=True,
            bf16=False,
            vade_console="panel",
            vade_report=False,
        )
        trainer = VADEGRPOTrainer(
            str(load_testbed_model(progress=False)), exact_answer_reward, args, load_testbed_dataset()["train"]
        )
        trainer.train()
    shown, logs = trainer._console, trainer.state.log_history[-2]
    live = Live(get_renderable=shown._panel, console=shown._screen, auto_refresh=False)
    live.start()
    refresh = milliseconds(live.refresh)
    live.stop()
    print(f"a refresh of the panel: {refresh:.2f} ms")
    print(f"a logging step: {milliseconds(lambda: shown.on_log(args, trainer.state, None, logs)):.2f} ms")


if __name__ == "__main__":
    main()
