"""A posterior as a table, with a row for each data-set row that was ever scored, and what it tells.

A posterior step is a generation batch, a refill (dynamic sampling), or a warm start, whose counts are one visit. The
Parquet file is for other programs. Source of the counts: VADE, arXiv 2511.18902, equations 5 and 6. A stranger may
have written the facts of its run, `metadata`; unknown ones are not shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from trl_vade.checks import FloatArray, IntArray, check_whole_number
from trl_vade.errors import SnapshotCorruptError, SnapshotMismatchError
from trl_vade.samplers.posterior import DAMAGED, beta_mean, saved_counts
from trl_vade.samplers.snapshot import Snapshot

from ..card_parts import code
from ..uploading import hub_id, is_hub_id

EDGES = np.arange(11) / 10  # linspace would give 0.30000000000000004, above a rate of 0.3
FACTS = (
    *("base_model", "model_repo", "dataset", "dataset_revision", "sampler", "preset", "success_reward"),
    *("success_threshold", "num_generations", "temperature", "posterior_init", "warm_start_discount"),
    *("decay_sampled", "decay_unsampled", "signal_aware_decay"),
    *("global_step", "generation_batches", "rollouts", "seed", "package_version"),
)
TYPES = {
    **{"sample_id": pa.string(), "index": pa.int64(), "task": pa.string(), "alpha": pa.float64()},
    **{"beta": pa.float64(), "visits": pa.int64(), "pass_rate": pa.float64(), "last_step": pa.int64()},
}
MOST_STEPS = 10**12  # The largest optimiser step. Every step up to it has a valid folder name.
NO_FACTS = ("run", "columns", "source", "revision")  # for a resume, or set by `load_posterior` alone


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorTable:
    """The counts of V rows of a data set, in ascending order of `index`."""

    sample_key: IntArray  # (V,) the keys of the rows, all different; see `row_keys.sample_keys`
    sample_id: list[str]  # V, the `id` of the row if that is known, else its key as 16 hexadecimal digits
    index: IntArray  # (V,) in [0, N), its place in the data set of the run
    task: list[str | None] | None  # V, if tasks are known
    alpha: FloatArray  # (V,) pseudo-counts of right completions, decayed to the step of the save
    beta: FloatArray  # (V,) the same of wrong ones
    visits: IntArray  # (V,) at least 1, the posterior steps in which the row had a score
    pass_rate: FloatArray  # (V,) in (0, 1), the expected one: (alpha + 1) / (alpha + beta + 2)
    last_step: IntArray  # (V,) at least 1, the posterior step in which the row last had a score
    metadata: dict[str, Any]  # JSON values

    def __len__(self) -> int:
        return len(self.sample_id)


def posterior_table(
    snapshot: Snapshot, *, sample_id: Sequence[str] | None = None, task: list[str | None] | None = None
) -> PosteriorTable:
    """Return the counts of `snapshot`, decayed to its step, as a table. It takes memory for the scored rows alone.

    Names and tasks, (V,) each, are in ascending order of rows. Without a trainer the posterior's steps are taken for
    optimiser steps. Impossible numbers are a `SnapshotCorruptError`, no keys a `SnapshotMismatchError`.
    """
    saved, keys = snapshot.sampler_state["posterior"], snapshot.sample_key
    alpha, beta = saved_counts(saved)
    if keys is None:
        raise SnapshotMismatchError("The snapshot was saved without sample_key, so its rows are unknown.")
    run = found if isinstance(found := snapshot.metadata.get("run"), dict) else {}
    step = run.get("global_step", saved["step"])
    check_whole_number("global_step", step, minimum=0, maximum=MOST_STEPS, advice=DAMAGED, error=SnapshotCorruptError)
    known = {"rollouts": run.get("rollouts"), **snapshot.metadata}
    known |= {name: saved[name] for name in ("decay_sampled", "decay_unsampled", "signal_aware_decay", "num_samples")}
    known |= {"global_step": step, "generation_batches": saved["step"]}
    return PosteriorTable(
        sample_key=keys,
        sample_id=[f"{key & (2**64 - 1):016x}" for key in keys.tolist()] if sample_id is None else [*sample_id],
        index=saved["sample_index"],
        task=task,
        alpha=alpha,
        beta=beta,
        visits=saved["visits"],
        pass_rate=beta_mean(alpha, beta),
        last_step=saved["last_update"],
        metadata={name: value for name, value in known.items() if name not in NO_FACTS and value is not None},
    )


def arrow_of(table: PosteriorTable) -> pa.Table:
    """Return the columns. A task that is not known is null; `task` is left out where no row's is known."""
    columns = {name: getattr(table, name) for name in TYPES if name != "task" or table.task is not None}
    return pa.table(columns, schema=pa.schema([(name, TYPES[name]) for name in columns]))


def known_facts(table: PosteriorTable) -> dict[str, Any]:
    """Return the facts that people want to see, by name."""
    return {name: value for name in FACTS if (value := table.metadata.get(name)) is not None}


def fact_rows(table: PosteriorTable) -> list[list[str]]:
    """Return [name, value] of each known fact, in Markdown. Most signs of a value: an id of the Hub with a commit."""
    places = {"base_model": "", "model_repo": "", "dataset": "datasets/"}
    return [
        [f"`{name}`", (name in places and hub_link(value, places[name])) or code(value, 140)]
        for name, value in known_facts(table).items()
    ]


def named_dataset(name: Any) -> dict[str, str | None]:
    """Return the facts `dataset` and `dataset_revision` of "user/name@revision"; None for a folder, or without one."""
    repo_id, _, revision = str(name or "").partition("@")
    found = hub_id(repo_id) if "/" in repo_id else None
    return {"dataset": found, "dataset_revision": revision or None if found else None}


def hub_link(name: Any, place: str = "") -> str:
    """Return a link to a model or, in the `place` "datasets/", to a data set; empty if the Hub cannot have it."""
    known = is_hub_id(name) and (not place or "/" in name)  # every data set has an owner
    return f"[{name}](https://huggingface.co/{place}{name})" if known else ""


def sample_rows(table: PosteriorTable) -> list[list[str]]:
    """Return the name, pass rate, counts and visits of the 3 hardest and the 3 easiest rows."""
    order, rates, counts = table.pass_rate.argsort(kind="stable").tolist(), table.pass_rate, table.alpha + table.beta
    return [
        [code(table.sample_id[row]), f"{rates[row]:.3f}", f"{counts[row]:.1f}", f"{table.visits[row]:,}"]
        for row in [*order[:3], *order[3:][-3:]]
    ]


def bin_counts(pass_rate: Any) -> IntArray:
    """Return the number of pass rates in [0, 0.1), [0.1, 0.2), ... [0.9, 1], (10,)."""
    return np.histogram(pass_rate, bins=EDGES)[0].astype(np.int64)


def text_histogram(table: PosteriorTable) -> str:
    """Return a line for each bin, of at most 80 characters: its name, its number of rows, and a bar if it has any."""
    counts = bin_counts(table.pass_rate).tolist()
    most = max(*counts, 1)
    bins = zip(EDGES[:-1], EDGES[1:], counts, strict=True)
    lines = (f"{low:.1f} to {high:.1f}  {n:>{len(f'{most:,}')},}  {'#' * -(-50 * n // most)}" for low, high, n in bins)
    return "\n".join(map(str.rstrip, lines))
