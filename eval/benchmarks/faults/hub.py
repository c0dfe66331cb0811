"""Runs that push to a Hub which fails, each kind of failure for a moment and to the end."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.hub import connected_hub
from trl_vade import load_posterior
from trl_vade.errors import HubError
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.commit import files_in
from trl_vade.hub.posteriors.repository import steps_in
from trl_vade.trainer import main_process
from trl_vade.trainer.checkpoint.folders import complete_checkpoints

from .bench import Bench, expect, expect_equal, heard, refused, tally
from .result import Result
from .runs import end_of, make_trainer

RUN, BELIEFS = "you/run", "datasets/you/beliefs"
STEPS = {"num_iterations": 1, "max_steps": 3}
PUSHING = {
    "push_to_hub": True,
    "hub_model_id": RUN,
    "hub_strategy": "checkpoint",
    "vade_posterior_hub_id": "you/beliefs",
}

WRITES = r"POST /api/(models|datasets)/you/\w+/commit"
KINDS: dict[str, tuple[dict[str, Any], str]] = {  # what goes wrong, and what is said of it
    "401": ({"pattern": WRITES, "status": 401}, "the Hub needs a login for this"),
    "403": ({"pattern": WRITES, "status": 403}, "this login may not write there"),
    "404": ({"pattern": WRITES, "status": 404}, "it does not exist, or this login may not see it"),
    "409": ({"pattern": WRITES, "status": 409}, "somebody else is changing it"),
    "412": ({"pattern": WRITES, "status": 412}, "another commit came in between"),
    "429": ({"pattern": WRITES, "status": 429, "headers": {"Retry-After": "0"}}, "too many requests"),
    "429 with a rate limit": (
        {"pattern": WRITES, "status": 429, "headers": {"RateLimit": '"api";r=0;t=280'}},
        "Wait 281 s",
    ),
    "500": ({"pattern": WRITES, "status": 500}, "the Hub answers 500"),
    **{
        str(status): ({"pattern": WRITES, "status": status, "body": f"reason {status}"}, f"reason {status}")
        for status in (400, 402, 413, 422, 507)
    },
    "storage": ({"pattern": WRITES, "status": 403, "body": "storage limit reached"}, "storage limit reached"),
    "connection cut": ({"pattern": WRITES}, "no answer from the Hub"),
    # Until the commit: a damaged file that is offered again before it would arrive whole, and nothing be wrong.
    "wrong hash": (
        {"pattern": "PUT /lfs-storage", "corrupt": True, "times": 10_000, "until": WRITES},
        "holds other bytes than were sent",
    ),
    "slow": ({"pattern": WRITES, "delay": 1.0, "times": 10_000}, "for uploads to the Hub"),
}


def hub_failures(bench: Bench) -> list[Result]:
    """Each kind in two forms."""
    kinds = ["403", "500", "connection cut", "wrong hash"] if bench.quick else list(KINDS)
    waits = hub_module.PATIENCE, hub_module.LONGEST, main_process.SAY_EVERY
    hub_module.PATIENCE, hub_module.LONGEST, main_process.SAY_EVERY = (0.0, 0.0), 0.0, 0.2
    try:
        passing = {kind: partial(for_a_moment, bench, kind) for kind in kinds}
        lasting = {kind: partial(to_the_end, bench, kind) for kind in kinds if kind != "slow"}
        return [tally("Hub fails for a moment", passing), tally("Hub fails to the end", lasting)]
    finally:
        hub_module.PATIENCE, hub_module.LONGEST, main_process.SAY_EVERY = waits


def for_a_moment(bench: Bench, kind: str) -> str:
    """A request of the first push goes wrong, or all its files are damaged."""
    fault, words = KINDS[kind]
    with connected_hub(bench.folder()) as hub:
        hub.fault(**fault)
        with heard() as messages:
            trainer = make_trainer(bench.model, bench.folder(), **STEPS, **PUSHING)
            trainer.train()
        expect(words in "\n".join(messages), f"nothing was said of it: {messages}")
        expect_equal(end_of(trainer), bench.end_of_undisturbed(**STEPS))
        expect_equal(on_the_hub(hub), what_is_here(trainer))
    return "the last state and every posterior are on the Hub, and it was said"


def to_the_end(bench: Bench, kind: str) -> str:
    """Every request goes wrong until the run is over; then another start sends what was kept."""
    fault, words = KINDS[kind]
    with connected_hub(bench.folder()) as hub:
        hub.fault(**fault | {"times": 10_000, "until": None})
        trainer = make_trainer(bench.model, bench.folder(), **STEPS, **PUSHING)
        message = refused(HubError, trainer.train)
        expect(words in message, f"the error says {message}")
        expect_equal(end_of(trainer), bench.end_of_undisturbed(**STEPS))
        expect(len(complete_checkpoints(trainer.args.output_dir)) == 3, "a checkpoint is not whole")
        hub.faults.clear()
        for repo in hub.repos.values():
            repo.objects.clear()  # the Hub finds and throws away what is damaged
        again = make_trainer(bench.model, Path(trainer.args.output_dir), **STEPS, **PUSHING)
        again.train(resume_from_checkpoint=True)
        expect_equal(on_the_hub(hub), what_is_here(trainer))
        expect(not (Path(trainer.args.output_dir) / "_hub").exists(), "something is left here")
    return "HubError with the reason, the run is whole, and another start brings everything to the Hub"


def on_the_hub(hub: Any) -> dict[str, Any]:
    """What matters of the two repositories."""
    files, beliefs = hub.repos[RUN].files(), hub.repos[BELIEFS]
    return {
        "weights": digest(files["model.safetensors"]),
        "posterior": digest(files["vade_posterior.safetensors"]),
        "last checkpoint": {
            name.removeprefix("last-checkpoint/"): digest(content)
            for name, content in files.items()
            if name.startswith("last-checkpoint/")
        },
        "steps": steps_in(beliefs.files()),
        "pass rates": [round(rate, 12) for rate in load_posterior("you/beliefs@step-000003").pass_rate.tolist()],
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
        "steps": [1, 2, 3],
        "pass rates": [round(rate, 12) for rate in posterior.posterior_mean[posterior.visits > 0].tolist()],
    }


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:12]
