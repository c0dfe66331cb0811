"""A posterior to begin with, from another run: what its rows have shown, for those of them that are here.

    vade_posterior_init="user/repo"             a data-set or model repository on the Hub
    vade_posterior_init="user/repo@revision"    the same at a branch, a tag or a commit
    vade_posterior_init="outputs/first-run"     a folder: a checkpoint, an output directory, such a repository's layout

A row that is found again starts with `vade_warm_start_discount` of its counts, observed in one step before the first
draw; all others start from the prior. In the sampler such a row counts as visited once. It need not rest: nobody here
trained on it.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from accelerate.logging import get_logger
from datasets import Dataset
from numpy.typing import NDArray
from trl import GRPOConfig

from trl_vade.checks import MOST_TRIALS
from trl_vade.data.row_names import find_samples, sample_ids
from trl_vade.errors import SnapshotCorruptError, SnapshotMismatchError, abbreviated

from .outcomes import GroupOutcomes
from .signal import AUTO, SPREAD

if TYPE_CHECKING:
    from trl_vade.hub.posteriors.table import PosteriorTable

logger = get_logger(__name__)


@dataclass(frozen=True, eq=False)
class WarmStart:
    """Evidence about M rows of the training set."""

    source: str  # as it was asked for, with the commit where that is known
    sample_index: NDArray[np.int64]  # (M,) distinct rows
    successes: NDArray[np.float64]  # (M,) discounted
    trials: NDArray[np.float64]  # (M,) discounted, at least the successes

    @property
    def outcomes(self) -> GroupOutcomes:
        """The evidence as a sampler observes it. No group was generated, so none has a gradient."""
        none = np.zeros(len(self.sample_index), dtype=np.bool_)
        return GroupOutcomes(self.sample_index, self.successes, self.trials, none)


def evidence(
    table: "PosteriorTable",
    dataset: Dataset,
    keys: NDArray[np.int64],
    *,
    discount: float,
    min_match: float = 0.0,
    source: str = "the posterior",
) -> WarmStart:
    """Join a posterior with the rows of a data set, by their names.

        successes_i = discount * alpha_i    trials_i = discount * (alpha_i + beta_i)

    so a row begins with the mean (discount alpha + 1) / (discount (alpha + beta) + 2).

    Args:
        table: V rows of the other run.
        dataset: N rows.
        keys: (N,) of `row_keys.sample_keys`.
        discount: in (0, 1].
        min_match: in [0, 1]. M rows in common must be at least this share of min(V, N).
        source: what to call the posterior in messages.

    Raises:
        SnapshotMismatchError: fewer are in common.
        SnapshotCorruptError: two rows of the table are one row here, or a row has more counts than a sampler takes.
    """
    rows = find_samples(dataset, keys, table.sample_id)
    found = rows >= 0
    matched, fewer = int(found.sum()), min(len(rows), len(dataset))
    if matched < min_match * fewer or (min_match > 0 and not matched):
        first = sample_ids(dataset, keys, range(min(2, len(dataset))))
        raise SnapshotMismatchError(
            f"vade_posterior_init={abbreviated(source)}: of its {len(rows)} rows {matched} are among the "
            f"{len(dataset)} of this training set. That is {matched / max(fewer, 1):.0%} of the smaller number, and "
            f"vade_warm_start_min_match={min_match} asks for more. Rows are found by their id, or by their content: "
            f"there {abbreviated(table.sample_id[:2])}, here {abbreviated(first)}. If that is another "
            "data set, set vade_posterior_init='prior'; if so few are expected, lower vade_warm_start_min_match."
        )
    if np.unique(rows[found]).size < matched:
        raise SnapshotCorruptError(
            f"vade_posterior_init={abbreviated(source)} has several rows that are one row of this training set, so it "
            "is not known which counts hold for it. Make the posterior again from a checkpoint of its run."
        )
    alpha, beta = table.alpha[found], table.beta[found]
    trials = discount * (alpha + beta)
    if (trials > MOST_TRIALS).any():
        raise SnapshotCorruptError(
            f"vade_posterior_init={abbreviated(source)} counts {trials.max():g} completions of a row, and no run has "
            "more than 2**53. Take another copy, or an earlier step."
        )
    return WarmStart(source, rows[found], discount * alpha, trials)


def summary(warm: WarmStart, table: "PosteriorTable", args: GRPOConfig, num_rows: int) -> str:
    """One line for the log."""
    facts = table.metadata
    about = {
        "step": facts.get("global_step"),
        "model": facts.get("base_model"),
        "reward": facts.get("success_reward"),
        "generations a group": facts.get("num_generations"),
    }
    known = ", ".join(f"{name} {_plain(value)}" for name, value in about.items() if value is not None)
    matched = len(warm.sample_index)
    return (
        f"Warm start from {warm.source}{f' ({known})' if known else ''}: {matched} of its {len(table.sample_id)} rows "
        f"are here, and {100 * args.vade_warm_start_discount:g} % of their counts are taken over; "
        f"{len(table.sample_id) - matched} are not here. {num_rows - matched} of the {num_rows} rows here start from "
        "the prior."
    )


def _plain(value: Any) -> str:
    """A fact from a file that may be a stranger's: short, and no sign that a terminal obeys."""
    text = abbreviated(value)
    return value if isinstance(value, str) and value.isprintable() and len(value) < len(text) < 200 else text


def doubts(warm: WarmStart, table: "PosteriorTable", args: GRPOConfig, success_reward: str | None) -> list[str]:
    """Warnings: pass rates that mean something else there, or no evidence at all."""
    here = {
        "success_reward": args.vade_success_reward or success_reward,
        "success_threshold": args.vade_success_threshold,
        "num_generations": args.num_generations,
    }
    known = {"success_reward"} if here["success_reward"] is None else set()
    if here["success_threshold"] == AUTO and table.metadata.get("success_threshold") != SPREAD:
        known.add("success_threshold")  # it follows from the rewards to come
    differing = {
        name: value
        for name, value in here.items()
        if name in table.metadata and name not in known and table.metadata[name] != value
    }
    doubts = []
    if differing:
        there = {name: table.metadata[name] for name in differing}
        doubts.append(
            f"{warm.source} was learned with {abbreviated(there)}, and this run has {differing}: its pass rates are "
            "evidence of another kind. It is taken over all the same; a smaller vade_warm_start_discount lets it "
            "weigh less."
        )
    if not len(warm.sample_index):
        doubts.append(
            f"No row of {warm.source} is in this training set (vade_warm_start_min_match=0 accepts that), so every "
            "row starts from the prior."
        )
    return doubts
