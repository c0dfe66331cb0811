"""A run that goes on with another number of processes, or with other batch sizes."""

import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.checkpoints import without_later
from trl_vade.selection.log import SelectionLog

from .bench import Bench, expect, heard, tally
from .result import Result

SCRIPT = Path(__file__).parents[3] / "tests" / "integration" / "two_processes.py"
RESTING = {"max_steps": 6, "save_total_limit": None, "vade_cooldown": 0.5}  # a rule that is counted in batches
SIZES: dict[str, dict[str, Any]] = {
    "steps_per_generation 1 to 2": {"steps_per_generation": 2},
    "half the batch, twice accumulated": {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2},
    "twice the batch": {"per_device_train_batch_size": 32},
}


def other_processes(bench: Bench) -> Result:
    """Two processes after one, one after two, and other batch sizes in one process; three optimiser steps each."""
    worlds = {"2 to 1": (2, 1)} if bench.quick else {"2 to 1": (2, 1), "1 to 2": (1, 2)}
    tries = {
        f"{name} processes, {scenario}": partial(_processes, bench, scenario, *world)
        for name, world in worlds.items()
        for scenario in (("iterations",) if bench.quick else ("default", "iterations"))
    }
    tries |= {name: partial(_sizes, bench, settings) for name, settings in SIZES.items()}
    return tally("other processes and batch sizes", tries)


def _processes(bench: Bench, scenario: str, before: int, after: int) -> str:
    folder = bench.folder()
    _launch(bench.model, folder, scenario, before)
    lines = SelectionLog(folder).read()
    without_later(folder / "checkpoint-3")
    said = _launch(bench.model, folder, scenario, after, "3")
    return _goes_on(folder, lines, said if scenario == "iterations" else None)


def _launch(model: str, folder: Path, scenario: str, processes: int, *checkpoint: str) -> str:
    """Run the scenario on so many processes over gloo, and return what it said."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = ["-m", "torch.distributed.run", f"--nproc_per_node={processes}", "--master_addr=127.0.0.1"]
    command = [sys.executable, *([*launcher, f"--master_port={port}"] if processes > 1 else [])]
    command += [str(SCRIPT), model, str(folder), scenario, *checkpoint]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, env=dict(os.environ))
    expect(finished.returncode == 0, finished.stderr[-1000:])
    return finished.stderr


def _sizes(bench: Bench, changes: dict[str, Any]) -> str:
    """Go on with other settings from a checkpoint inside a generation batch, and from one between two."""
    folder = bench.folder()
    bench.trainer(folder, **RESTING).train()
    lines = SelectionLog(folder).read()
    for step in (4, 3):
        trainer = bench.trainer(folder, **RESTING | {"save_strategy": "no"} | changes)
        with heard() as messages:
            trainer.train(resume_from_checkpoint=without_later(folder / f"checkpoint-{step}"))
        expect(trainer.state.global_step == 6, f"the run ended at step {trainer.state.global_step}")
        said = "\n".join(messages)
        _goes_on(folder, lines, said if step == 3 else None)
    return "evidence stays, and a generation batch in use is chosen anew, which is said"


def _goes_on(folder: Path, before: list[dict[str, Any]], said: str | None) -> str:
    """Compare the choices before the checkpoint with those of the log, and look whether anything was said."""
    lines = SelectionLog(folder).read()
    kept = [line for line in lines if line["global_step"] < 3]
    expect(kept and kept == before[: len(kept)], "choices before the checkpoint are lost")
    expect(len(lines) > len(kept), "nothing was chosen after the checkpoint")
    expect(said is None or "generation batch" in said, f"nothing was said of the generation batch: {said}")
    return "evidence stays, and a generation batch in use is chosen anew, which is said"
