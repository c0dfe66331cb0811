"""A posterior as a table that anyone can read: one Parquet file, a row for each data-set row ever visited.

    sample_id   string    who the row is: its `id`, where that column tells all rows apart, else its key
                          (`row_keys.sample_keys`) as 16 hexadecimal digits
    index       int64     its place in the data set of the run; -1 in every row where the file does not say
    task        string    its task; this column is there only where tasks are known
    alpha, beta float64   pseudo-counts of right and wrong completions, decayed to the step of the save
    visits      int64     steps of the posterior in which it had a score
    pass_rate   float64   expected pass rate, (alpha + 1) / (alpha + beta + 2)
    last_step   int64     step of the posterior in which it last had a score; 0 where the file does not say

A step of the posterior is a generation batch, a refill of one (dynamic sampling), or a warm start: the counts that the
run took over from another posterior are one visit. A row of the data set that is not in the table is at the prior.

What else is known of the run is one JSON object under the key `trl_vade` of the Parquet schema's metadata, with
SHA-256 digests of itself and of the rows. Source of the counts: VADE, arXiv 2511.18902, equations 5 and 6.
"""

import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trl_vade.checks import FloatArray, IntArray, check_whole_number
from trl_vade.errors import ConfigurationError, SnapshotCorruptError, SnapshotMismatchError, SnapshotNotFoundError
from trl_vade.files import save_whole
from trl_vade.samplers.posterior import beta_mean, posterior_from
from trl_vade.samplers.snapshot import Snapshot
from trl_vade.version import __version__

from ..uploading import is_hub_id
from .columns import (
    AGAIN,
    FORMAT_VERSION,
    MOST_STEPS,
    TYPES,
    check_facts,
    check_rows,
    digest_of_rows,
    encode_facts,
    first_line,
    parse_facts,
    read_columns,
)

METADATA_KEY = b"trl_vade"
PLACE = ("source", "revision")
"""Facts of where a table was read from, which `load_posterior` adds. They are no facts of the run: not written."""


@dataclass(frozen=True, slots=True, eq=False)
class PosteriorTable:
    """What is known of V rows of a data set, in ascending order of `index` as `posterior_table` makes it."""

    sample_id: list[str]  # V, all different
    index: IntArray  # (V,) in [0, N), all different; -1 throughout: not known
    task: list[str | None] | None  # V
    alpha: FloatArray  # (V,) at least 0
    beta: FloatArray  # (V,) at least 0
    visits: IntArray  # (V,) at least 1
    pass_rate: FloatArray  # (V,) in (0, 1)
    last_step: IntArray  # (V,) at least 0
    metadata: dict[str, Any]  # JSON values

    def __len__(self) -> int:
        return len(self.sample_id)


def posterior_table(
    snapshot: Snapshot,
    *,
    sample_id: Sequence[Any] | None = None,
    task: Sequence[Any] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> PosteriorTable:
    """Return the counts of `snapshot` as they are at its step, row by row.

    Args:
        snapshot: as `load_snapshot` returns it.
        sample_id: (N,) a name of its own for each row of the data set; None takes the snapshot's keys.
        task: (N,) task of each row; None as an entry: it has none.
        facts: of the run, for the metadata; None takes those that the snapshot has. In any case `format_version`,
            `package_version` (of this release), `global_step`, `generation_batches` and `num_samples` are set. The
            snapshot of no trainer has no optimiser step: its generation batches then stand for it.

    Raises:
        SnapshotMismatchError: the snapshot does not say which rows it is about, and no `sample_id` is given.
        SnapshotCorruptError: it holds what no run can have saved.
        ConfigurationError: `sample_id` or `task` does not have N entries, or two rows have the same name.
    """
    saved = snapshot.sampler_state["posterior"]
    posterior = posterior_from(saved)
    rows = saved["sample_index"]
    alpha, beta = posterior.counts(rows)
    return PosteriorTable(
        sample_id=_names(snapshot, rows, sample_id, posterior.num_samples),
        index=rows,
        task=None if task is None else _tasks(task, rows, posterior.num_samples),
        alpha=alpha,
        beta=beta,
        visits=saved["visits"],
        pass_rate=beta_mean(alpha, beta),
        last_step=saved["last_update"],
        metadata={
            **(facts_of(snapshot) if facts is None else facts),
            "format_version": FORMAT_VERSION,
            "package_version": __version__,
            "global_step": _global_step(snapshot, facts or {}),
            "generation_batches": posterior.step,
            "num_samples": posterior.num_samples,
        },
    )


def facts_of(snapshot: Snapshot) -> dict[str, Any]:
    """Return what a snapshot itself says of its run; what it does not say is left out."""
    state, saved, run = snapshot.sampler_state, snapshot.metadata, _part(snapshot.metadata, "run")
    settings, posterior = _part(state, "settings"), state["posterior"]
    base_model = saved.get("base_model")
    facts = {
        # `posterior.save_posterior` has kept local folders out: only where the run is can be seen what is one.
        "base_model": base_model if is_hub_id(base_model) else None,
        **{name: saved.get(name) for name in ("dataset_fingerprint", "success_reward", "success_threshold")},
        **{name: saved.get(name) for name in ("num_generations", "posterior_init", "warm_start_discount")},
        "rollouts": run.get("rollouts"),
        "sampler": "greedy" if settings.get("greedy") is True else state.get("kind"),
        "seed": state.get("seed"),
        "information_gain": settings.get("gain"),
        "prior": settings.get("prior"),
        **{name: posterior[name] for name in ("decay_sampled", "decay_unsampled", "signal_aware_decay")},
    }
    return {name: value for name, value in facts.items() if value is not None}


def write_table(table: PosteriorTable, path: str | os.PathLike[str]) -> None:
    """Write `table` to the file `path`, whole or not at all; equal tables give equal bytes.

    `PLACE` is left out of the metadata: where a table was read from is no fact of the run, and may be a private path.

    Raises:
        ConfigurationError: the metadata is not strict JSON.
        SnapshotCorruptError: the table breaks a rule that `read_table` checks.
        OSError: the disk refused.
    """
    metadata = {name: value for name, value in table.metadata.items() if name not in PLACE}
    if metadata:
        check_facts(path, metadata)
    check_rows(path, table)
    described = {METADATA_KEY: encode_facts(metadata, digest_of_rows(table))} if metadata else None
    columns = {name: getattr(table, name) for name in TYPES if name != "task" or table.task is not None}
    fields = [pa.field(name, TYPES[name]) for name in columns]
    schema = pa.schema(fields, metadata=described)
    content = io.BytesIO()
    # The Hub's client compares no hash of what it downloads (huggingface_hub 2.4): the pages have sums of their own.
    pq.write_table(pa.table(columns, schema=schema), content, write_page_checksum=True)
    save_whole(Path(path), content.getvalue())


def read_table(path: str | os.PathLike[str]) -> PosteriorTable:
    """Read what `write_table` wrote, and trust nothing of it.

    A Parquet file that some other tool made of such a table (pushed again with `datasets`, say) has lost the
    metadata. It is read all the same, with an empty `metadata`; of its columns only `sample_id`, `alpha` and `beta`
    are then needed, and the others stand for what is not known: `index` -1, `visits` 1, `last_step` 0, no `task`,
    and `pass_rate` is worked out. Columns of other names are ignored.

    Raises:
        SnapshotNotFoundError: there is no such file.
        SnapshotCorruptError: it is not such a table; the message names the file and the rule that it breaks.
        SnapshotMismatchError: a newer release of trl_vade wrote it.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            metadata, digest = parse_facts(path, (file.schema_arrow.metadata or {}).get(METADATA_KEY))
            columns = read_columns(path, file.read(), all_needed=bool(metadata))
    except FileNotFoundError as error:
        raise SnapshotNotFoundError(f"{path} is not there; the table of a posterior is one Parquet file.") from error
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise SnapshotCorruptError(f"{path} cannot be read as Parquet ({first_line(error)}). {AGAIN}") from error
    table = PosteriorTable(**columns, metadata=metadata)
    check_rows(path, table)
    if digest not in (None, digest_of_rows(table)):
        raise SnapshotCorruptError(
            f"{path}: the rows are not those that its metadata was written with. {AGAIN} A tool that changes rows on "
            "purpose must leave the metadata trl_vade out."
        )
    return table


def _names(snapshot: Snapshot, rows: IntArray, sample_id: Sequence[Any] | None, num_samples: int) -> list[str]:
    """(V,) names of the rows visited."""
    if sample_id is not None:
        names = [str(sample_id[row]) for row in _of_all("sample_id", sample_id, rows, num_samples)]
    elif snapshot.sample_key is None:
        raise SnapshotMismatchError(
            "The snapshot has no sample_key, so it does not say which rows its counts are about. Pass sample_id, a "
            "name for each row of that run's data set, or save it with "
            "sample_key=trl_vade.data.row_keys.sample_keys(rows)[0]."
        )
    else:
        names = [f"{key & (2**64 - 1):016x}" for key in snapshot.sample_key.tolist()]
    if len(set(names)) < len(names):
        error = SnapshotCorruptError if sample_id is None else ConfigurationError
        raise error(
            f"{len(names) - len(set(names))} of the {len(names)} rows have the name of another one; each needs its "
            "own, or their counts could not be told apart later. Leave sample_id out to take the snapshot's keys."
        )
    return names


def _tasks(task: Sequence[Any], rows: IntArray, num_samples: int) -> list[str | None]:
    """(V,) tasks of the rows visited."""
    values = [task[row] for row in _of_all("task", task, rows, num_samples)]
    return [None if value is None else str(value) for value in values]


def _of_all(name: str, values: Sequence[Any], rows: IntArray, num_samples: int) -> list[int]:
    if len(values) != num_samples:
        raise ConfigurationError(
            f"{name} has {len(values)} entries; it must have one for each of the {num_samples} rows of the data set "
            "that the snapshot is about. Pass that data set's column."
        )
    return rows.tolist()


def _part(whole: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    part = whole.get(name)
    return part if isinstance(part, Mapping) else {}


def _global_step(snapshot: Snapshot, facts: Mapping[str, Any]) -> int:
    known = (_part(snapshot.metadata, "run").get("global_step"), facts.get("global_step"))
    step = next((value for value in known if value is not None), snapshot.sampler_state["posterior"]["step"])
    return check_whole_number(
        "The global_step", step, minimum=0, maximum=MOST_STEPS, advice=AGAIN, error=SnapshotCorruptError
    )
