"""A posterior to begin with, from another run: what its rows have shown, for those of them that are here.

    vade_posterior_init="user/repo"             a data-set or model repository on the Hub
    vade_posterior_init="user/repo@revision"    the same at a branch, a tag or a commit
    vade_posterior_init="outputs/first-run"     a folder: a checkpoint, an output directory, such a repository's layout

A row that is found again starts with `vade_warm_start_discount` of its counts, observed in one step before the first
draw; all others start from the prior. In the sampler such a row counts as visited once. It need not rest: nobody here
trained on it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from accelerate.logging import get_logger
from datasets import Dataset
from numpy.typing import NDArray
from transformers.trainer_utils import get_last_checkpoint
from trl import GRPOConfig

from .checks import MOST_TRIALS, shown
from .data import sample_keys
from .errors import SnapshotCorruptError, SnapshotMismatchError
from .feedback import GroupOutcomes
from .main_process import on_main_process
from .posterior_table import is_hub_id
from .presets import vade, warm_start_source
from .sample_ids import find_samples, sample_ids

if TYPE_CHECKING:
    from .posterior_table import PosteriorTable

logger = get_logger(__name__)

VISIBLE = ("prompt", "image", "images")
"""The columns that TRL 1.16 leaves with `remove_unused_columns`: the keys of the rows are then made of these."""


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


def read_warm_start(args: GRPOConfig, dataset: Any, *, success_reward: str | None = None) -> WarmStart | None:
    """Read what `vade_posterior_init` names, before a model is loaded. All processes must take part.

    The main process reads, and all have what it read: a branch on the Hub may move meanwhile.

    None where it names no source, and where this run may be about to resume (`resume_from_checkpoint` is set, or the
    output directory has a checkpoint): a resume has its posterior from there and must not need the source, which
    may be gone. `warm_start_of` reads it then, should the run begin anew after all.

    Args:
        args: with VADE's fields.
        dataset: N rows, the training set.
        success_reward: the name of the reward function that means success, where `args` leave it open.

    Raises:
        SnapshotError: on all processes: there is no posterior, it is damaged, or too few of its rows are here.
        HubError: on all processes: the Hub refused, or could not be reached.
    """
    if warm_start_source(args) is None or not isinstance(dataset, Dataset):  # a stream is refused elsewhere
        return None

    def read() -> WarmStart | None:
        return None if _may_resume(args) else _read(args, dataset, lambda: _keys(args, dataset), success_reward)

    return _reported(on_main_process(read))


def warm_start_of(trainer: Any) -> WarmStart:
    """The evidence that `trainer` begins with, read now where `read_warm_start` did not. Errors are the same."""
    early: WarmStart | None = trainer._warm_start
    if early is not None:
        return early
    selection, reward = trainer.selection, trainer.reward_func_names[trainer._success_column]
    rows = trainer.train_dataset
    return _reported(on_main_process(lambda: _read(trainer.args, rows, lambda: selection.sample_keys[0], reward)))


def beginning(args: GRPOConfig) -> dict[str, Any]:
    """Return the facts of what the posterior begins with; without a warm start the discount is None.

    The name of a folder of this machine is nobody else's business, and tells them nothing.
    """
    source = warm_start_source(args)
    if source is None:
        return {"posterior_init": vade(args, "posterior_init"), "warm_start_discount": None}
    on_the_hub = is_hub_id(source.partition("@")[0]) and not Path(source).exists()
    return {
        "posterior_init": source if on_the_hub else "a local posterior",
        "warm_start_discount": vade(args, "warm_start_discount"),
    }


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
        keys: (N,) of `data.sample_keys`.
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
            f"vade_posterior_init={shown(source)}: of its {len(rows)} rows {matched} are among the {len(dataset)} of "
            f"this training set. That is {matched / max(fewer, 1):.0%} of the smaller number, and "
            f"vade_warm_start_min_match={min_match} asks for more. Rows are found by their id, or by their content: "
            f"there {shown(table.sample_id[:2])}, here {shown(first)}. If that is another "
            "data set, set vade_posterior_init='prior'; if so few are expected, lower vade_warm_start_min_match."
        )
    if np.unique(rows[found]).size < matched:
        raise SnapshotCorruptError(
            f"vade_posterior_init={shown(source)} has several rows that are one row of this training set, so it is "
            "not known which counts hold for it. Make the posterior again from a checkpoint of its run."
        )
    alpha, beta = table.alpha[found], table.beta[found]
    trials = discount * (alpha + beta)
    if (trials > MOST_TRIALS).any():
        raise SnapshotCorruptError(
            f"vade_posterior_init={shown(source)} counts {trials.max():g} completions of a row, and no run has more "
            "than 2**53. Take another copy, or an earlier step."
        )
    return WarmStart(source, rows[found], discount * alpha, trials)


def _read(
    args: GRPOConfig, dataset: Dataset, keys: Callable[[], NDArray[np.int64]], success_reward: str | None
) -> tuple[WarmStart, list[str]]:
    """The evidence, and what is to be said of it: first what it is, then what makes it doubtful."""
    from .posterior_source import load_posterior  # the Hub's client

    source = warm_start_source(args)
    table = load_posterior(source)
    commit = table.metadata.get("revision")
    named = source if not commit or Path(source).exists() else f"{source.partition('@')[0]}@{commit}"
    warm = evidence(
        table,
        dataset,
        keys(),
        discount=args.vade_warm_start_discount,
        min_match=args.vade_warm_start_min_match,
        source=named,
    )
    return warm, [_summary(warm, table, args, len(dataset)), *_doubts(warm, table, args, success_reward)]


def _reported(read: tuple[WarmStart, list[str]] | None) -> Any:
    if read is None:
        return None
    warm, messages = read
    for message in messages:
        logger.warning(message)  # at a level that is shown by default
    return warm


def _summary(warm: WarmStart, table: "PosteriorTable", args: GRPOConfig, num_rows: int) -> str:
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
    text = shown(value)
    return value if isinstance(value, str) and value.isprintable() and len(value) < len(text) < 200 else text


def _doubts(warm: WarmStart, table: "PosteriorTable", args: GRPOConfig, success_reward: str | None) -> list[str]:
    """Warnings: pass rates that mean something else there, or no evidence at all."""
    here = {
        "success_reward": args.vade_success_reward or success_reward,
        "success_threshold": args.vade_success_threshold,
        "num_generations": args.num_generations,
    }
    known = {"success_reward"} if here["success_reward"] is None else set()
    differing = {
        name: value
        for name, value in here.items()
        if name in table.metadata and name not in known and table.metadata[name] != value
    }
    doubts = []
    if differing:
        there = {name: table.metadata[name] for name in differing}
        doubts.append(
            f"{warm.source} was learned with {shown(there)}, and this run has {differing}: its pass rates are "
            "evidence of another kind. It is taken over all the same; a smaller vade_warm_start_discount lets it "
            "weigh less."
        )
    if not len(warm.sample_index):
        doubts.append(
            f"No row of {warm.source} is in this training set (vade_warm_start_min_match=0 accepts that), so every "
            "row starts from the prior."
        )
    return doubts


def _keys(args: GRPOConfig, dataset: Dataset) -> NDArray[np.int64]:
    """The keys that the selection will know the rows by."""
    if args.remove_unused_columns:
        dataset = dataset.select_columns([name for name in VISIBLE if name in dataset.column_names])
    return sample_keys(dataset)[0]


def _may_resume(args: GRPOConfig) -> bool:
    asked = str(args.resume_from_checkpoint).lower() not in ("none", "false")
    return asked or (Path(args.output_dir).is_dir() and get_last_checkpoint(args.output_dir) is not None)
