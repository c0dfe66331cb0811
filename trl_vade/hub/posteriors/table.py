"""A posterior as one Parquet file, with a row for each data-set row that was ever scored.

    sample_id   string    the name of the row: its `id` if that column is unique, else its key
                          (`row_keys.sample_keys`) as 16 hexadecimal digits
    index       int64     its place in the data set of the run
    task        string    its task; the column exists only if tasks are known
    alpha, beta float64   pseudo-counts of right and wrong completions, decayed to the step of the save
    visits      int64     posterior steps in which the row had a score
    pass_rate   float64   expected pass rate, (alpha + 1) / (alpha + beta + 2)
    last_step   int64     posterior step in which the row last had a score

A posterior step is a generation batch, a refill (dynamic sampling), or a warm start, whose counts are one visit. Rows
of the data set that are not in the table are at the prior.

The facts of the run are one JSON object under the key `trl_vade` of the Parquet schema's metadata, with SHA-256
digests of the facts and of the rows. Source of the counts: VADE, arXiv 2511.18902, equations 5 and 6.
"""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trl_vade.checks import FloatArray, IntArray
from trl_vade.errors import SnapshotCorruptError, SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.files import FORMAT_VERSION, encode_document, parse_document, save_whole
from trl_vade.samplers.posterior import beta_mean, posterior_from
from trl_vade.samplers.snapshot import Snapshot
from trl_vade.version import __version__

from ..failures import in_one_line
from ..uploading import is_hub_id
from .bounds import open_bounded
from .columns import AGAIN, ROWS_DIGEST, TYPES, check_table, digest_of_rows, read_columns

Texts = Sequence[Any] | None

METADATA_KEY = b"trl_vade"
PLACE = ("source", "revision")
"""Facts that `load_posterior` adds about where a table was read. They are never written: a path may be private."""


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorTable:
    """The counts of V rows of a data set, in ascending order of `index` if `posterior_table` made it."""

    sample_id: list[str]  # V, all different
    index: IntArray  # (V,) in [0, N), all different
    task: list[str | None] | None  # V
    alpha: FloatArray  # (V,) at least 0
    beta: FloatArray  # (V,) at least 0
    visits: IntArray  # (V,) at least 1
    pass_rate: FloatArray  # (V,) in (0, 1)
    last_step: IntArray  # (V,) at least 1
    metadata: dict[str, Any]  # JSON values

    def __len__(self) -> int:
        return len(self.sample_id)


def posterior_table(
    snapshot: Snapshot, *, sample_id: Texts = None, task: Texts = None, facts: Mapping[str, Any] | None = None
) -> PosteriorTable:
    """Return the counts of `snapshot`, decayed to its step, as a table.

    Args:
        snapshot: the result of `load_snapshot`.
        sample_id: (V,) unique names of the scored rows, in ascending order of rows; None takes the snapshot's keys.
        task: (V,) task of each scored row, or None for a row without one.
        facts: the facts of the run, for the metadata; None takes those of the snapshot. `format_version`,
            `package_version` (of this release), `global_step`, `generation_batches` and `num_samples` are always set.
            A snapshot without a trainer has no optimiser step; its generation batches are used instead.

    Raises:
        SnapshotMismatchError: the snapshot has no keys of its rows, and `sample_id` is None.
        SnapshotCorruptError: the snapshot's numbers are impossible, or two of its keys are equal.
    """
    saved = snapshot.sampler_state["posterior"]
    posterior = posterior_from(saved)
    rows = saved["sample_index"]
    alpha, beta = posterior.counts(rows)
    steps = (_part(snapshot.metadata, "run").get("global_step"), (facts or {}).get("global_step"), posterior.step)
    metadata = {
        **(facts_of(snapshot) if facts is None else facts),
        "format_version": FORMAT_VERSION,
        "package_version": __version__,
        "global_step": next(step for step in steps if step is not None),
        "generation_batches": posterior.step,
        "num_samples": posterior.num_samples,
    }
    table = PosteriorTable(
        sample_id=_keys(snapshot) if sample_id is None else [str(name) for name in sample_id],
        index=rows,
        task=None if task is None else [None if name is None else str(name) for name in task],
        alpha=alpha,
        beta=beta,
        visits=saved["visits"],
        pass_rate=beta_mean(alpha, beta),
        last_step=saved["last_update"],
        metadata=metadata,
    )
    check_table("The snapshot", table)
    return table


def facts_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return the known facts of a snapshot's run."""
    state, saved = snapshot.sampler_state, snapshot.metadata
    settings, posterior, run = _part(state, "settings"), state["posterior"], _part(saved, "run")
    of_run = ("dataset_fingerprint", "success_reward", "success_threshold", "num_generations", "posterior_init")
    facts = {
        # `posterior.save_posterior` leaves local folders out; only the machine of the run can recognise them.
        "base_model": saved.get("base_model") if is_hub_id(saved.get("base_model")) else None,
        **{name: saved.get(name) for name in (*of_run, "warm_start_discount")},
        **{"rollouts": run.get("rollouts"), "seed": state.get("seed"), "prior": settings.get("prior")},
        "sampler": "greedy" if settings.get("greedy") is True else state.get("kind"),
        "information_gain": settings.get("gain"),
        **{name: posterior[name] for name in ("decay_sampled", "decay_unsampled", "signal_aware_decay")},
    }
    return {name: value for name, value in facts.items() if value is not None}


def write_table(table: PosteriorTable, path: str | os.PathLike[str]) -> None:
    """Write `table` to the file `path` atomically. Errors are those of `encode_table`, and `OSError`."""
    save_whole(Path(path), encode_table(table))


def encode_table(table: PosteriorTable) -> bytes:
    """Return the bytes of the file of `table`, without the facts `PLACE`. Equal tables give equal bytes.

    Raises:
        ConfigurationError: the metadata are not strict JSON.
        SnapshotCorruptError: the table breaks a rule that `read_table` checks.
    """
    facts = {name: value for name, value in table.metadata.items() if name not in PLACE}
    check_table("The posterior", replace(table, metadata=facts))
    described = {METADATA_KEY: encode_document(facts | {ROWS_DIGEST: digest_of_rows(table)})} if facts else None
    content = io.BytesIO()
    # The Hub's client checks no hash of a download (huggingface_hub 2.4), so the pages have checksums.
    # Without a compression, which would save 20 %, `bounds` takes a table of any size.
    plain: dict[str, Any] = {"compression": "none", "use_dictionary": ["task"]}
    columns = arrow_of(table).replace_schema_metadata(described)
    pq.write_table(columns, content, write_page_checksum=True, **plain)
    return content.getvalue()


def arrow_of(table: PosteriorTable) -> pa.Table:
    """Return the columns. A task that is not known is null; `task` is left out where no row's is known."""
    columns = {name: getattr(table, name) for name in TYPES if name != "task" or table.task is not None}
    return pa.table(columns, schema=pa.schema([(name, TYPES[name]) for name in columns]))


def read_table(path: str | os.PathLike[str]) -> PosteriorTable:
    """Read a table that `write_table` wrote, and check all of it.

    A table that another tool has written again (such as `datasets`) lacks the metadata. It is read with an empty
    `metadata`. Columns of other names are ignored.

    Raises:
        SnapshotNotFoundError: the file does not exist.
        SnapshotCorruptError: the file is not such a table; the message names the broken rule.
        SnapshotMismatchError: a newer release of trl_vade wrote it.
    """
    try:
        with open_bounded(path) as file:
            described = (file.schema_arrow.metadata or {}).get(METADATA_KEY)
            metadata = {} if described is None else parse_document(f"{path}: the metadata trl_vade", described, ())
            columns = read_columns(path, file)
    except FileNotFoundError as error:
        raise SnapshotNotFoundError(f"{path} does not exist. The table of a posterior is one Parquet file.") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SnapshotCorruptError(f"{path} cannot be read as Parquet ({in_one_line(error)}). {AGAIN}") from error
    table = PosteriorTable(**columns, metadata=metadata)
    check_table(path, table)
    if metadata.pop(ROWS_DIGEST, None) not in (None, digest_of_rows(table)):
        raise SnapshotCorruptError(
            f"{path}: its rows differ from those that its metadata were written with. {AGAIN} A tool that changes "
            "rows on purpose must remove the metadata trl_vade."
        )
    return table


def _keys(snapshot: Snapshot) -> list[str]:
    """Return the keys of the scored rows as texts, (V,)."""
    if snapshot.sample_key is None:
        raise SnapshotMismatchError(
            "The snapshot has no sample_key, so the rows of its counts are unknown. Pass sample_id, a name for each "
            "scored row of that run's data set, or save the snapshot with "
            "sample_key=trl_vade.data.row_keys.sample_keys(rows)[0]."
        )
    return [f"{key & (2**64 - 1):016x}" for key in snapshot.sample_key.tolist()]


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}
