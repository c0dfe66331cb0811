"""The posterior before the first update: rollouts of every row, or the counts of another run.

Source: arXiv 2511.18902, Algorithm 1, lines 1-4, for `vade_posterior_init="rollout"`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from accelerate.logging import get_logger
from datasets import Dataset
from numpy.typing import NDArray
from tqdm import tqdm
from trl import GRPOConfig

from trl_vade.data.row_keys import sample_keys
from trl_vade.hub.uploading import is_hub_id

from .main_process import on_main_process
from .presets import setting, warm_start_source
from .warm_start import WarmStart, evidence, what_to_say

logger = get_logger(__name__)

LOCAL = "a local posterior"
MIN_MATCH = 0.5
"""The smallest share of rows that the other run and the data set must have in common, counted in the smaller of the
two. A posterior of other rows says nothing, and a slip in its name must not pass for one."""
VISIBLE = ("prompt", "image", "images")
"""The columns that `remove_unused_columns` leaves in TRL 1.16. Row keys are then made from these."""


def read_warm_start(args: GRPOConfig, dataset: Any, *, success_reward: str | None = None) -> WarmStart | None:
    """Read the posterior that `vade_posterior_init` names, before a model is loaded. All processes must take part.

    The main process reads and broadcasts, because a branch on the Hub may move between two reads. `success_reward` is
    the name of the reward function that decides success, where `args` leave it open.

    Returns:
        The evidence. None if `vade_posterior_init` names no source, or if this run may resume, and so has its own. If
        it starts anew after all, `warm_start_of` reads the source later.

    Raises:
        SnapshotError: on all processes: the source has no posterior, it is damaged, or too few of its rows match.
        HubError: on all processes: the Hub refused, or could not be reached.
    """
    if warm_start_source(args) is None or not isinstance(dataset, Dataset):  # a stream is refused elsewhere
        return None

    def read() -> WarmStart | None:
        return None if _may_resume(args) else _read(args, dataset, lambda: _keys(args, dataset), success_reward)

    return on_main_process(read)


def warm_start_of(trainer: Any) -> WarmStart:
    """Return the evidence that `trainer` starts with. Read it now if `read_warm_start` did not; same errors."""
    if trainer._warm_start is not None:
        return trainer._warm_start
    selection, reward = trainer.selection, trainer.selection.feedback.signal.facts["success_reward"]
    rows = trainer.train_dataset
    return on_main_process(lambda: _read(trainer.args, rows, lambda: selection.sample_keys[0], reward))


def initial_posterior_facts(args: GRPOConfig) -> dict[str, Any]:
    """Return the initial posterior and its discount as JSON values. The discount is None without a warm start.

    These facts are published, so the name of a local folder is left out.
    """
    source = warm_start_source(args)
    if source is None:
        return {"posterior_init": setting(args, "posterior_init"), "warm_start_discount": None}
    on_the_hub = is_hub_id(source.partition("@")[0]) and not Path(source).exists()
    return {
        "posterior_init": source if on_the_hub else LOCAL,
        "warm_start_discount": setting(args, "warm_start_discount"),
    }


def _read(
    args: GRPOConfig, dataset: Dataset, keys: Callable[[], NDArray[np.int64]], success_reward: str | None
) -> WarmStart:
    """Return the evidence. Log its summary, then the doubts about it."""
    from trl_vade.hub.posteriors.repository import load_posterior  # the Hub's client

    source = warm_start_source(args)
    table = load_posterior(source)
    commit = table.metadata.get("revision")
    named = source if not commit or Path(source).exists() else f"{source.partition('@')[0]}@{commit}"
    warm = evidence(table, keys(), named, discount=args.vade_warm_start_discount, min_match=MIN_MATCH)
    for message in what_to_say(warm, table, args, len(dataset), success_reward):
        logger.warning(message)  # a level that is shown by default
    return warm


def _keys(args: GRPOConfig, dataset: Dataset) -> NDArray[np.int64]:
    """Return the keys of the rows, (N,), as the selection will make them."""
    if args.remove_unused_columns:
        dataset = dataset.select_columns([name for name in VISIBLE if name in dataset.column_names])
    return sample_keys(dataset)[0]


def _may_resume(args: GRPOConfig) -> bool:
    asked = str(args.resume_from_checkpoint).lower() not in ("none", "false", "auto")
    return asked or any(Path(args.output_dir).glob("*checkpoint*/"))


def initialise_posterior(trainer: Any) -> None:
    """Fill the posterior of `trainer` as `vade_posterior_init` says. Updates no weights and logs no metrics."""
    if warm_start_source(trainer.args) is None:
        _roll_out_every_row(trainer)
    else:
        warm, local = warm_start_of(trainer), initial_posterior_facts(trainer.args)["posterior_init"] == LOCAL
        trainer.selection.feedback.warm_start(warm.outcomes, LOCAL if local else warm.source)  # the log is pushed
        trainer._warm_start = None  # frees memory: it is as large as the data set


def _roll_out_every_row(trainer: Any) -> None:
    """Generate and score `num_generations` rollouts of every row."""
    metrics, trainer._metrics["train"] = trainer._metrics["train"], defaultdict(list)
    batch, trainer._batch = trainer._batch, None  # nothing is trained on
    num_batches = -(-len(trainer.train_dataset) // trainer.selection.num_groups)
    batches = tqdm(
        trainer.selection.initial_batches(),
        total=num_batches,
        desc="Initial rollouts of every row",
        disable=trainer.args.disable_tqdm or not trainer.is_world_process_zero(),
    )
    for rows in batches:
        with generating(trainer):
            trainer._generate_and_score_completions(rows)
    trainer.selection.feedback.finish_initialisation()
    trainer._metrics["train"], trainer._batch = metrics, batch


@contextmanager
def generating(trainer: Any) -> Iterator[None]:
    """Time a generation batch. Leave its images out of the completions table if some process has none."""
    trainer.log_multimodal = trainer.args.log_multimodal and trainer.selection.loader.images_on_all_processes
    try:
        with trainer.selection.feedback.timed("generation"):
            yield
    finally:
        trainer.log_multimodal = trainer.args.log_multimodal
