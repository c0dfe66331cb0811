"""Runs that push to a Hub which fails, each kind of failure for a moment and to the end."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

from tests.support.hub import connected_hub
from trl_vade import load_posterior
from trl_vade.errors import HubError
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.staging import files_in
from trl_vade.trainer.checkpoint.folders import complete_checkpoints
from trl_vade.trainer.publishing import publication

from .bench import Bench, expect, expect_equal, heard, refused, tally
from .result import Result
from .runs import end_of, make_trainer

RUN, POSTERIOR = "you/run", "datasets/you/run-posterior"
STEPS = {"num_iterations": 1, "max_steps": 3}
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
            trainer = make_trainer(bench.model, bench.folder(), **STEPS, **PUSHING)
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
        trainer = make_trainer(bench.model, bench.folder(), **STEPS, **PUSHING)
        message = refused(HubError, trainer.train)
        expect(words in message, f"the error says {message}")
        expect_equal(end_of(trainer), bench.end_of_undisturbed(**STEPS))
        expect(len(complete_checkpoints(trainer.args.output_dir)) == 3, "a checkpoint is not whole")
        hub.faults.clear()
        again = make_trainer(bench.model, Path(trainer.args.output_dir), **STEPS, **PUSHING)
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
