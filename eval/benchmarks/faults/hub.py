"""Runs that push to a Hub which fails, for a moment and to the end; and runs that are killed while they push."""

import hashlib
import random
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.hub import connected_hub
from tests.support.loopback_hub import client_environment
from trl_vade import load_posterior
from trl_vade.checkpoints import complete_checkpoints
from trl_vade.errors import HubError
from trl_vade.hub import publication
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.staging import STAGED, files_in

from .bench import Bench, Result, expect, expect_equal, heard, refused, tally
from .kills import KilledRuns
from .runs import end_of

RUN, POSTERIOR = "you/run", "datasets/you/run-posterior"
STEPS = {"num_iterations": 1, "max_steps": 3}
KILLED = {"max_steps": 8, "save_total_limit": None, "num_iterations": 1}
STRATEGIES = ("every_save", "checkpoint", "all_checkpoints")
PUSHING = {"push_to_hub": True, "hub_model_id": RUN, "hub_strategy": "checkpoint"}

WRITES = r"POST /api/(models|datasets)/you/[\w-]+/commit"
STATUSES = (400, 401, 402, 403, 404, 409, 412, 413, 422, 429, 500, 507)
KINDS: dict[str, tuple[dict[str, Any], str]] = {  # what goes wrong, and what is said of it
    **{str(status): ({"status": status, "reason": f"reason {status}"}, f"reason {status}") for status in STATUSES},
    "429 with a rate limit": ({"status": 429, "headers": {"RateLimit": '"api";r=0;t=280'}}, "after 280 seconds"),
    "storage": ({"status": 403, "reason": "storage limit reached"}, "storage limit reached"),
    "504": ({"status": 504}, "504"),
    "504 after a commit": ({"status": 504, "applied": True}, "504"),
    "connection cut": ({}, "disconnected"),
    "connection cut after a commit": ({"applied": True}, "disconnected"),
    "slow": ({"delay": 1.0, "times": 10_000}, "for uploads to the Hub"),
}


def hub_failures(bench: Bench) -> list[Result]:
    """Each kind in two forms."""
    kinds = ["403", "500", "504 after a commit", "connection cut"] if bench.quick else list(KINDS)
    waits = hub_module.PATIENCE, hub_module.LONGEST, publication.SAY_EVERY
    hub_module.PATIENCE, hub_module.LONGEST, publication.SAY_EVERY = (0.0, 0.0), 0.0, 0.2
    try:
        passing = {kind: partial(for_a_moment, bench, kind) for kind in kinds}
        lasting = {kind: partial(to_the_end, bench, kind) for kind in kinds if kind != "slow" and "after" not in kind}
        return [tally("Hub fails for a moment", passing), tally("Hub fails to the end", lasting)]
    finally:
        hub_module.PATIENCE, hub_module.LONGEST, publication.SAY_EVERY = waits


def for_a_moment(bench: Bench, kind: str) -> str:
    """A request of the first push goes wrong."""
    fault, words = KINDS[kind]
    with connected_hub(bench.folder()) as hub:
        hub.fault(WRITES, **fault)
        with heard() as messages:
            trainer = bench.trainer(bench.folder(), **STEPS, **PUSHING)
            trainer.train()
        expect(words in "\n".join(messages), f"nothing was said of it: {messages}")
        expect_equal(end_of(trainer), bench.end_of_undisturbed(**STEPS))
        expect_equal(on_the_hub(hub), what_is_here(trainer))
    return "the newest state and its posterior are on the Hub, and it was said"


def to_the_end(bench: Bench, kind: str) -> str:
    """Every request goes wrong until the run is over; then another start sends what was kept."""
    fault, words = KINDS[kind]
    with connected_hub(bench.folder()) as hub:
        hub.fault(WRITES, **fault | {"times": 10_000, "applied": False})
        trainer = bench.trainer(bench.folder(), **STEPS, **PUSHING)
        message = refused(HubError, trainer.train)
        expect(words in message, f"the error says {message}")
        expect_equal(end_of(trainer), bench.end_of_undisturbed(**STEPS))
        expect(len(complete_checkpoints(trainer.args.output_dir)) == 3, "a checkpoint is not whole")
        hub.faults.clear()
        again = bench.trainer(Path(trainer.args.output_dir), **STEPS, **PUSHING)
        again.train(resume_from_checkpoint=True)
        expect_equal(on_the_hub(hub), what_is_here(trainer))
        expect(not [*Path(trainer.args.output_dir).glob("_hub*")], "something is left here")
    return "HubError with the reason, the run is whole, and another start brings the newest state to the Hub"


def on_the_hub(hub: Any) -> dict[str, Any]:
    """What matters of the two repositories."""
    files, newest = hub.repos[RUN].files(), load_posterior(POSTERIOR.removeprefix("datasets/"))
    return {
        "weights": digest(files["model.safetensors"]),
        "posterior": digest(files["vade_posterior.safetensors"]),
        "last checkpoint": {
            name.removeprefix("last-checkpoint/"): digest(content)
            for name, content in files.items()
            if name.startswith("last-checkpoint/")
        },
        "step": newest.metadata["global_step"],
        "pass rates": [round(rate, 12) for rate in newest.pass_rate.tolist()],
    }


def what_is_here(trainer: Any) -> dict[str, Any]:
    """The same, of the output directory."""
    newest = complete_checkpoints(trainer.args.output_dir)[-1]
    files = {name: digest(path.read_bytes()) for name, path in files_in(newest).items()}
    posterior = trainer.selection.sampler.posterior
    return {
        "weights": files["model.safetensors"],
        "posterior": files["vade_posterior.safetensors"],
        "last checkpoint": files,
        "step": 3,
        "pass rates": [round(rate, 12) for rate in posterior.posterior_mean[posterior.visits > 0].tolist()],
    }


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]


def killed_while_pushing(bench: Bench) -> Result:
    """Two kills of each run, whose commits take a while."""
    chance, runs = random.Random(bench.seed), KilledRuns(bench, **KILLED)
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
        expect(step == KILLED["max_steps"], f"the newest posterior on the Hub is of step {step}")
        expect(not [*output_dir.glob(f"{STAGED}*")], "files to push are left")
        sent = [
            int(commit.message.removeprefix("step-"))
            for commit in reversed(hub.repos[RUN].history())
            if commit.message
        ]
        expect(len(sent) > 1 and sent == sorted(sent), f"the repository went through the steps {sent}")
    return "the newest state and its posterior are on the Hub, none was rolled back, and nothing to push is left"
