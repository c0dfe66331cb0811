"""`kill -9`: at random moments, at every instant of a save, and in a save over a checkpoint."""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from trl_vade import load_snapshot
from trl_vade.checkpoints import complete_checkpoints, look_at
from trl_vade.errors import CheckpointIncompleteError
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.trainer.checkpoint.generation_batch import file_name
from trl_vade.trainer.checkpoint.resuming import resolve_checkpoint

from .bench import Bench, Result, expect, expect_equal, refused
from .runs import train_to_be_killed

PATIENCE = 300.0  # seconds for a process to say something; no timing decides a result


def read_all(checkpoint: Path) -> None:
    """Read what a resume reads; raises where a file is missing or is not whole."""
    run = load_snapshot(checkpoint).metadata["run"]
    expect(look_at(checkpoint).fault is None, f"{look_at(checkpoint).fault}")
    (weights,) = checkpoint.glob("*model.safetensors")
    load_file(weights)
    for name in ("optimizer.pt", "scheduler.pt", "rng_state.pth", "training_args.bin"):
        torch.load(checkpoint / name, weights_only=False)
    for name in ("tokenizer.json", "tokenizer_config.json", "trainer_state.json"):
        json.loads((checkpoint / name).read_text(encoding="utf-8"))
    sizes = run["layout"]
    if run["micro_step"] % (sizes["steps_per_generation"] * sizes["num_iterations"]):
        torch.load(checkpoint / file_name(0), weights_only=True)


class KilledRuns:
    """Lives of a run, each but the last ended by SIGKILL; a new run begins where one has come to its end."""

    def __init__(self, bench: Bench, **settings: Any):
        self._bench = bench
        self.settings = {"max_steps": 32, "save_total_limit": 3} | settings
        self.kills = self.in_a_save = self.before_the_first = self.finished = 0
        self.lost: list[str] = []
        self.undisturbed = bench.folder()
        self._output_dir: Path | None = None  # of a run that has not come to its end
        self._unfinished: dict[Path, int] = {}  # what the kill before had left of a save
        kind, content, self.seconds = self.live(self.undisturbed)
        expect(kind == "ended", f"the undisturbed run: {content}")
        self.end = content["end"]

    def live(
        self,
        output_dir: Path,
        *,
        seconds: float | None = None,
        instant: tuple[int, int, bool] | None = None,
        **more: Any,
    ) -> tuple[str, Any, float]:
        """Train in a process of its own, which is killed `seconds` after it has begun to, or at an instant.

        Returns what became of it ("killed", "ended" or "raised"), what it told of that, and how long it trained.
        """
        here, there = self._bench.context.Pipe(duplex=False)
        settings = self.settings | more
        arguments = (there, self._bench.model_of(settings), output_dir, settings, instant)
        process = self._bench.context.Process(target=train_to_be_killed, args=arguments)
        process.start()
        there.close()
        try:
            kind, content = _hear(here)
            start = time.perf_counter()
            if kind == "training":
                if seconds is not None and not here.poll(seconds):
                    os.kill(process.pid, signal.SIGKILL)
                kind, content = _hear(here)
            took = time.perf_counter() - start
        finally:
            process.kill()
            process.join()
            here.close()
        if kind == "silent":
            expect(process.exitcode == -signal.SIGKILL, f"the process ended with {process.exitcode}")
            kind = "killed"
        return kind, content, took

    def instants(self, save: int, output_dir: Path | None = None) -> list[tuple[int, bool]]:
        """Where a process can die from this save on (counted from 1) to the end of the run; see `runs.Instants`."""
        kind, content, _ = self.live(output_dir or self._bench.folder(), instant=(save, 0, False))
        expect(kind == "ended", f"the run whose saves are watched: {content}")
        whole = [(n, False) for n, _ in enumerate(content["instants"], start=1)]
        return whole + [(n, True) for n, (_, written) in enumerate(content["instants"], start=1) if written]

    def kill(self, *, fraction: float | None = None, instant: tuple[int, int, bool] | None = None) -> None:
        """One more life of the run, ended by a kill, and a look at what it left; the next life goes on from there.

        The life is killed after this fraction of the time that a whole run takes, or at the instant.
        """
        for _ in range(10):  # lives that come to their end before the kill
            if self._output_dir is None:
                self._output_dir = self._bench.folder()
            first = not complete_checkpoints(self._output_dir)
            seconds = None if fraction is None else fraction * self.seconds
            kind, content, took = self.live(self._output_dir, seconds=seconds, instant=instant)
            if kind == "killed":
                self.look(self._output_dir)
                return
            if first:
                self.seconds = min(self.seconds, took)  # the machine had more to do before
            self._close(kind, content)

    def look(self, output_dir: Path) -> None:
        """Count a kill, and read what it left."""
        self.kills += 1
        complete = complete_checkpoints(output_dir)
        before, self._unfinished = self._unfinished, _unfinished(output_dir)
        self.in_a_save += bool(self._unfinished) and self._unfinished != before
        try:
            for checkpoint in complete:
                read_all(checkpoint)
            if (output_dir / POSTERIOR_FILE).exists():
                load_snapshot(output_dir)
            if not complete:
                self.before_the_first += 1
                refused(CheckpointIncompleteError, lambda: resolve_checkpoint(True, output_dir))
                expect(resolve_checkpoint("auto", output_dir) is None, "auto takes a checkpoint that is not whole")
        except Exception as error:
            self.lost.append(f"kill {self.kills}: {type(error).__name__}: {error}")

    def finish(self) -> None:
        """Let the run that is under way come to its end."""
        if self._output_dir is not None:
            kind, content, _ = self.live(self._output_dir)
            self._close(kind, content)

    def compare(self, kind: str, content: Any) -> None:
        """Note where a run came to another end than the undisturbed one."""
        try:
            expect(kind == "ended", f"{kind}: {content}")
            expect_equal(content["end"], self.end)
            self.finished += 1
        except AssertionError as error:
            self.lost.append(f"the run after kill {self.kills}: {error}")

    def result(self, case: str) -> Result:
        """What became of the kills. What is found at the end of a run, or at its resume, counts as one kill lost."""
        lost = min(len(self.lost), self.kills)
        note = (
            f"{self.in_a_save} inside a save, {self.before_the_first} before the first complete checkpoint; all "
            f"checkpoints that look complete are whole; {self.finished} runs came to the end of the undisturbed one"
        )
        if self.lost:
            note = f"LOST {'; LOST '.join(self.lost)}"
        return Result(case, self.kills, self.kills - lost, lost, note)

    def _close(self, kind: str, content: Any) -> None:
        self.compare(kind, content)
        shutil.rmtree(self._output_dir)
        self._output_dir = None


def _unfinished(output_dir: Path) -> dict[Path, int]:
    """The files of incomplete checkpoints, and those with names for the time of writing; with their sizes."""
    paths = [path for folder in output_dir.glob("checkpoint-*") if look_at(folder).fault for path in folder.iterdir()]
    paths += [path for end in ("tmp", "pending") for path in output_dir.rglob(f"*.{end}")]
    return {path: path.stat().st_size for path in paths}


def _hear(pipe: Any) -> tuple[str, Any]:
    """The next message of a process, or ("silent", None) where it has died."""
    expect(pipe.poll(PATIENCE), f"the process has said nothing for {PATIENCE:.0f} seconds")
    try:
        return pipe.recv()
    except (EOFError, OSError):  # before a message, or inside one
        return "silent", None


def killed_at_random(bench: Bench) -> Result:
    """SIGKILL at random moments, from the resume on."""
    chance, runs = random.Random(bench.seed), KilledRuns(bench)
    for _ in range(6 if bench.quick else 50):
        runs.kill(fraction=chance.uniform(0.0, 0.6))
    runs.finish()
    return runs.result("kill -9 at a random moment")


def killed_in_a_save(bench: Bench) -> Result:
    """SIGKILL between any two of the deeds of two saves in a row on the files, and inside the writing of each file."""
    runs = KilledRuns(bench)
    instants = KilledRuns(bench, max_steps=6).instants(save=5)  # the second of them is the last of the run
    for n, half in random.Random(bench.seed).sample(instants, 6) if bench.quick else instants:
        runs.kill(instant=(1, n, half))
    runs.finish()
    return runs.result("kill -9 at every instant of two saves")


def killed_in_a_second_save(bench: Bench) -> Result:
    """SIGKILL in the save of a checkpoint that is there from before, and has lost a file."""
    runs = KilledRuns(bench, max_steps=4, save_total_limit=None)

    def damaged() -> Path:
        output_dir = bench.folder()
        shutil.copytree(runs.undisturbed, output_dir, dirs_exist_ok=True)
        (output_dir / "checkpoint-4" / "scheduler.pt").unlink()
        return output_dir

    instants = runs.instants(1, damaged())  # some fewer than of a save into a new folder
    for n, half in random.Random(bench.seed).sample(instants, 3) if bench.quick else instants:
        output_dir = damaged()
        kind, content, _ = runs.live(output_dir, instant=(1, n, half))
        if kind == "killed":
            runs.look(output_dir)
            kind, content, _ = runs.live(output_dir)
        runs.compare(kind, content)
        shutil.rmtree(output_dir)
    return runs.result("kill -9 in a save over a checkpoint")
