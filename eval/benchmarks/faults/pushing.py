"""`kill -9` while a run pushes; the run that goes on brings its newest state to the Hub, and leaves nothing here."""

import random
from functools import partial

from tests.support.hub import connected_hub
from tests.support.loopback_hub import client_environment
from trl_vade import load_posterior
from trl_vade.hub.staging import STAGED, files_in
from trl_vade.trainer.checkpoint.folders import complete_checkpoints

from .bench import Bench, expect, expect_equal, tally
from .hub import POSTERIOR, PUSHING, RUN, WRITES, digest
from .kills import KilledRuns
from .result import Result

STEPS = {"max_steps": 8, "save_total_limit": None, "num_iterations": 1}
STRATEGIES = ("every_save", "checkpoint", "all_checkpoints")


def killed_while_pushing(bench: Bench) -> Result:
    """Two kills of each run, whose commits take a while."""
    chance, runs = random.Random(bench.seed), KilledRuns(bench, **STEPS)
    names = [f"{strategy} {number}" for strategy in STRATEGIES for number in range(1 if bench.quick else 4)]
    return tally("kill -9 while pushing, twice", {name: partial(_killed, bench, runs, chance, name) for name in names})


def _killed(bench: Bench, runs: KilledRuns, chance: random.Random, name: str) -> str:
    strategy, output_dir = name.split()[0], bench.folder()
    with connected_hub(bench.folder()) as hub:
        hub.fault(pattern=WRITES, delay=0.3, times=10_000)
        pushing = PUSHING | {"hub_strategy": strategy, "environment": client_environment(hub, bench.folder())}
        for seconds in (*(chance.uniform(0.2, 2.0) * runs.seconds for _ in range(2)), None):
            kind, content, _ = runs.live(output_dir, seconds=seconds, **pushing)
        expect(kind == "ended", f"{kind}: {content}")
        expect_equal(content["end"], runs.end)
        newest, files = complete_checkpoints(output_dir)[-1], hub.repos[RUN].files()
        here = {path: digest(file.read_bytes()) for path, file in files_in(newest).items()}
        expect(digest(files["model.safetensors"]) == here["model.safetensors"], "the weights are not the last ones")
        if strategy != "every_save":
            place = "last-checkpoint" if strategy == "checkpoint" else newest.name
            there = {path.removeprefix(f"{place}/"): digest(c) for path, c in files.items() if path.startswith(place)}
            expect_equal(there, here)
        step = load_posterior(POSTERIOR.removeprefix("datasets/")).metadata["global_step"]
        expect(step == STEPS["max_steps"], f"the newest posterior on the Hub is of step {step}")
        expect(not [*output_dir.glob(f"{STAGED}*")], "files to push are left")
        sent = [
            int(commit.message.removeprefix("step-"))
            for commit in reversed(hub.repos[RUN].history())
            if commit.message
        ]
        expect(len(sent) > 1 and sent == sorted(sent), f"the repository went through the steps {sent}")
    return "the newest state and its posterior are on the Hub, none was rolled back, and nothing to push is left"
