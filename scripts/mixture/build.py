"""Build the training mixture of the paper (VADE, arXiv 2511.18902, Table 3) as a folder that `load_dataset` reads.

Two builds from the same sources are equal byte for byte. Rows, splits and files depend on the seed and the names of
the rows only, and not on a clock, a random generator or the name of a folder.
"""

import json
import logging
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets.table import CastError
from tqdm.auto import tqdm

from trl_vade.errors import ConfigurationError
from trl_vade.files import replace_durably, save_whole

from .card import render_card, render_page
from .fetch import local_files, open_stream
from .manifest import in_words, make_manifest
from .rows import Choice, Recipe, Row, features, key
from .sources import VALIDATION_SHARE, Source, SourceSchemaError, SourceShortageError

FILES = {name: f"data/{name}-00000-of-00001.parquet" for name in ("train", "validation")}

CARD, PAGE, MANIFEST = "README.md", "mixture.html", "mixture.json"

LEAST_SHARE = 0.5
"""A source with a smaller share of its rows was most likely read wrongly. One with a larger share is a warning."""

ROW_GROUP = 100  # rows, as datasets writes them for images

logger = logging.getLogger(__name__)


def build_mixture(recipe: Recipe, output_dir: str | os.PathLike[str], command: str) -> dict[str, Any]:
    """Write two Parquet files, the card, a page of examples and `mixture.json`; return the content of the last one.

    All sources are on this machine, and their columns are checked, before the first row is read.

    Args:
        recipe: sources and settings.
        output_dir: a new folder, or the folder of an earlier build.
        command: the command line that the card shows.

    Raises:
        ConfigurationError: the folder holds other files, the mirror lacks a repository, or there are under two rows.
        OSError: the Hub cannot be reached, or a disk is full.
        SourceSchemaError: a source lacks files or a column, or has another type in it.
        SourceShortageError: sources have less than half of their rows, and the recipe does not allow that.
    """
    folder = Path(output_dir)
    _check_folder(folder)
    files = local_files(recipe.sources, recipe.mirror)
    streams = [open_stream(source, files[source.task]) for source in recipe.sources]
    chosen = [_read(source, stream, recipe) for source, stream in zip(recipe.sources, streams, strict=True)]
    _check_shortage(chosen, recipe.allow_fewer)
    splits = split_rows([row for choice in chosen for row in choice.rows], recipe.seed)
    (folder / CARD).unlink(missing_ok=True)  # it describes the files that are replaced now
    save_whole(folder / MANIFEST, b"{}\n")
    for name, rows in splits.items():
        write_split(folder / FILES[name], rows)
    manifest = make_manifest(recipe, chosen, splits, command, [folder / file for file in FILES.values()])
    save_whole(folder / CARD, render_card(manifest).encode())
    save_whole(folder / PAGE, render_page(manifest, [choice.rows for choice in chosen]).encode())
    save_whole(folder / MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    return manifest


def split_rows(rows: list[Row], seed: int) -> dict[str, list[Row]]:
    """Deal the rows to the splits, a tenth of them to validation, each in its order."""
    if len(rows) < 2:
        raise ConfigurationError(
            f"The mixture has {len(rows)} rows and needs at least one for each of its two splits. Name more "
            "--sources, or look in the log why rows were dropped."
        )
    rows = sorted(rows, key=lambda row: key(seed, "split", row["id"]))
    validation = max(1, round(VALIDATION_SHARE * len(rows)))
    parts = {"train": rows[validation:], "validation": rows[:validation]}
    return {name: sorted(part, key=lambda row: key(seed, "order", row["id"])) for name, part in parts.items()}


def write_split(path: Path, rows: list[Row]) -> None:
    """Write the rows, in this order, to the Parquet file `path`."""
    schema = features().arrow_schema
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with pq.ParquetWriter(temporary, schema) as writer:
        for start in range(0, len(rows), ROW_GROUP):
            writer.write_table(pa.Table.from_pylist(rows[start : start + ROW_GROUP], schema=schema))
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    replace_durably(temporary, path)


def _check_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / MANIFEST).is_file())):
        raise ConfigurationError(
            f"--output_dir {folder} exists and was not made by this script: it has no {MANIFEST}. Its files would be "
            "overwritten. Name a folder that does not exist, or the folder of an earlier build."
        )


def _read(source: Source, stream: Any, recipe: Recipe) -> Choice:
    """Choose rows of a source, and log how many there were."""
    choice = Choice(source, recipe)
    try:
        for row in tqdm(stream, desc=source.name, unit=" rows", disable=None):
            choice.read(row)
    except CastError as error:
        raise SourceSchemaError(
            f"{source.name} ({source.place}): a file after the first has the columns {error.table_column_names}, and "
            f"the first has {error.requested_column_names}. Use the pinned revision, or list the other sources "
            "in --sources."
        ) from error
    except Exception as error:
        error.add_note(f"The source was {source.name} ({source.place}). Files that are loaded are kept.")
        raise
    logger.info("%s", in_words(choice))
    return choice


def _check_shortage(chosen: list[Choice], allow_fewer: bool) -> None:
    """Warn of each source with fewer rows than it is asked for; refuse those with less than half."""
    bad = []
    for choice in chosen:
        share = len(choice.rows) / choice.source.count
        if share < LEAST_SHARE and not allow_fewer:
            bad.append(in_words(choice))
        elif share < 1:
            logger.warning("Fewer rows than the paper's mixture has: %s", in_words(choice))
    if bad:
        raise SourceShortageError(
            f"{'; '.join(bad)}. A source with less than {LEAST_SHARE:.0%} of its rows was most likely read wrongly. "
            "Set --allow_fewer to take what there is; no file is loaded again."
        )
