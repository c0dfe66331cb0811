"""What a slip on the command line costs: exit code, time and lines of output, of one checkout or of several.

    python -m eval.benchmarks.errors                       # this checkout
    python -m eval.benchmarks.errors --against BEFORE      # and another one, in turns

Each command runs in an empty folder. Medians of three, after one run for the bytecode. Seconds are those of the clock.
CPU seconds, of the command and its children, do not depend on what else the machine does.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parents[2]
TRAIN = [
    "--vade_samplr uniform",
    "--vade_sampler thomson",
    "--config nosuch.yaml",
    "--reward_funcs my.reward",
    "--num_generations 7",
    "--vade_cooldown 2",
    "--resume_from_checkpoint true",
    "--dataset_name mine",
    "--accelerate_config fsdp2 --num_proceses 2",
    "--lr_scheduler_type constnt",
    "--logging_steps 0",
    "--help",
    "--help_all",
]
OTHERS = [
    "plan --recipe quickstrat",
    "posterior show nosuchdir",
    "report nosuchdir",
    "report",
    "evaluate testbed --output-path out --tasks nosuch",
    "--help",
]
COMMANDS = [f"trl-vade train {words}" for words in TRAIN] + [f"trl-vade {words}" for words in OTHERS]
COMMANDS += [f"python scripts/train_vade.py {words}" for words in (*TRAIN[:2], "--help")]
COMMANDS += [f"accelerate launch scripts/train_vade.py {words}" for words in TRAIN[:2]]


def run(command: str, checkout: Path) -> tuple[int, float, float, int]:
    """Return exit code, seconds, CPU seconds and lines of a command, run with the code of a checkout."""
    program, *words = command.split()
    start = {
        "trl-vade": [sys.executable, "-m", "trl_vade"],
        "python": [sys.executable],
        "accelerate": [str(Path(sys.executable).with_name("accelerate"))],
    }[program]
    words = [str(checkout / word) if word.startswith("scripts/") else word for word in words]
    settings = os.environ | {"PYTHONPATH": str(checkout)}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    settings.pop("HF_HUB_OFFLINE", None)
    with tempfile.TemporaryDirectory() as folder:
        begin, used = time.perf_counter(), cpu()
        done = subprocess.run([*start, *words], cwd=folder, env=settings, capture_output=True, text=True)
        seconds = time.perf_counter() - begin
    return done.returncode, seconds, cpu() - used, len((done.stdout + done.stderr).splitlines())


def cpu() -> float:
    """Return the CPU seconds of the children so far."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", type=Path, nargs="*", default=[], metavar="CHECKOUT", help="other checkouts")
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    checkouts = [*(path.resolve() for path in given.against), HERE]
    for checkout in checkouts:
        run("trl-vade train --logging_steps 0", checkout)
    names, facts = [*map(str, given.against), "here"], ("exit", "s", "CPU s", "lines")
    heads = [f"{name}: {fact}" for name in names for fact in facts]
    print(f"| command | {' | '.join(heads)} |\n| --- |{' ---: |' * len(heads)}")
    for command in COMMANDS:
        results = [[run(command, checkout) for checkout in checkouts] for _ in range(given.repeats)]
        cells = []
        for runs in zip(*results, strict=True):
            code, *_, lines = runs[-1]
            times = [f"{statistics.median(one[which] for one in runs):.1f}" for which in (1, 2)]
            cells += [str(code), *times, str(lines)]
        print(f"| `{command}` | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
