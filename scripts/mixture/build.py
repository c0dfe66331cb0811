"""Build the training mixture of the paper (VADE, arXiv 2511.18902, Table 3) as a folder that `load_dataset` reads.

Two builds from the same sources are equal byte for byte. Rows, splits and files depend on the seed and the names of
the rows only, and not on a clock, a random generator or the name of a folder.
"""

import hashlib
import importlib.metadata
import json
import logging
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from trl_vade.errors import ConfigurationError, SourceShortageError
from trl_vade.files import replace_durably, save_whole

from .card import render_card
from .overlap import report_rows
from .parts import Recipe, read_source
from .question_text import normalised_question
from .rows import DROPPED, features, key
from .sources import VALIDATION_SHARE, Source

FILES = {name: f"data/{name}-00000-of-00001.parquet" for name in ("train", "validation")}


CARD, MANIFEST, PARTS = "README.md", "mixture.json", ".parts"

ROW_GROUP = 100  # rows, as datasets writes them for images

logger = logging.getLogger(__name__)

Place = tuple[pa.Table, int]  # a row: its table, and its number there


def build_mixture(recipe: Recipe, output_dir: str | os.PathLike[str], template: Path, command: str) -> dict[str, Any]:
    """Write two Parquet files, the card and `mixture.json` to `output_dir`, and return the content of the last one.

    Rows that were read are kept in `output_dir/.parts`. A second call with the same recipe continues from them.

    Args:
        recipe: sources and settings.
        output_dir: a new folder, or the folder of an earlier build.
        template: Jinja template of the card.
        command: the command line that the card shows.

    Raises:
        ConfigurationError: the folder holds other files, the mirror lacks a repository, or there are under two rows.
        SourceSchemaError: a source lacks a column, or has another type in it.
        SourceShortageError: a source has fewer usable rows than its count.
    """
    folder = Path(output_dir)
    _check_folder(folder)
    tables, sources = [], []
    for source in recipe.sources:
        table, record = read_source(source, recipe, folder / PARTS)
        sources.append(_counts(source, table, record))
        logger.info("%s", _in_words(sources[-1]))
        if len(table) < source.count and not recipe.allow_fewer:
            raise SourceShortageError(_shortage(sources[-1]))
        tables.append(table)
    for name in (MANIFEST, CARD):  # they describe the files that are replaced now
        (folder / name).unlink(missing_ok=True)
    splits = split_rows(tables, recipe.seed)
    for name, places in splits.items():
        write_split(folder / FILES[name], places)
    manifest = _manifest(recipe, sources, splits, command)
    manifest["files"] = {file: _sha256(folder / file) for file in FILES.values()}
    save_whole(folder / CARD, render_card(manifest, template).encode())
    save_whole(folder / MANIFEST, (json.dumps(manifest, indent=1, sort_keys=True) + "\n").encode())
    return manifest


def split_rows(tables: list[pa.Table], seed: int) -> dict[str, list[Place]]:
    """Deal the rows to the splits, a tenth of them to validation, and return the places of each split in order."""
    places = {name: (table, i) for table in tables for i, name in enumerate(table["id"].to_pylist())}
    by_split = sorted(places, key=lambda name: key(seed, "split", name))
    if len(places) < 2:
        raise ConfigurationError(
            f"The mixture has {len(places)} rows and needs at least one for each of its two splits. Name more "
            "--sources, or look in the log why rows were dropped."
        )
    validation = max(1, round(VALIDATION_SHARE * len(places)))
    names = {"train": by_split[validation:], "validation": by_split[:validation]}
    return {
        split: [places[name] for name in sorted(part, key=lambda name: key(seed, "order", name))]
        for split, part in names.items()
    }


def write_split(path: Path, places: list[Place]) -> None:
    """Write the rows at `places`, in this order, to the Parquet file `path`."""
    schema = features().arrow_schema
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with pq.ParquetWriter(temporary, schema) as writer:
        for start in range(0, len(places), ROW_GROUP):
            # Row by row: pyarrow's `take` over many tables would join them, and a column of images may exceed 2 GiB.
            rows = [table.slice(i, 1).to_pylist()[0] for table, i in places[start : start + ROW_GROUP]]
            writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    replace_durably(temporary, path)


def _check_folder(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / PARTS).is_dir())):
        raise ConfigurationError(
            f"--output_dir {folder} exists and was not made by this script: it has no {PARTS}. Its files would be "
            "overwritten. Name a folder that does not exist, or the folder of an earlier build."
        )
    (folder / PARTS).mkdir(parents=True, exist_ok=True)


def _counts(source: Source, table: pa.Table, record: dict[str, Any]) -> dict[str, Any]:
    """Return the entry of a source in the manifest."""
    counts = Counter(record["counts"])
    return {
        "name": source.name,
        "task": source.task,
        "domain": source.domain,
        "repo": source.repo,
        "config": source.config,
        "revision": source.revision,
        "licence": source.licence,
        "asked": source.count,
        "read": counts["read"],
        "dropped": {reason: counts[reason] for reason in DROPPED if counts[reason]},
        "usable": counts["usable"],
        "taken": len(table),
        "removed": record["removed"],
    }


def _manifest(
    recipe: Recipe, sources: list[dict[str, Any]], splits: dict[str, list[Place]], command: str
) -> dict[str, Any]:
    tasks = {split: Counter(table["task"][i].as_py() for table, i in places) for split, places in splits.items()}
    removed = {source["name"]: source.pop("removed") for source in sources}
    for source in sources:
        source |= {split: counts[source["task"]] for split, counts in tasks.items()}
    overlap = None
    if recipe.evaluation is not None:
        report = [
            dict(zip(("source", "evaluation_set", "by_image", "by_question"), row, strict=True))
            for row in report_rows(removed)
        ]
        overlap = {"min_words": recipe.evaluation.min_words, "sets": recipe.evaluation.names, "removed": report}
    packages = ("trl-vade", "datasets", "huggingface_hub", "pillow", "pyarrow")
    return {
        "paper": "arXiv 2511.18902, Table 3",
        "command": command,
        "seed": recipe.seed,
        "read_from": "the Hub" if recipe.mirror is None else "local copies, whose revisions were not checked",
        "sources": sources,
        "splits": {split: len(places) for split, places in splits.items()},
        "shared": _shared(splits),
        "overlap": overlap,
        "versions": {name: importlib.metadata.version(name) for name in packages},
    }


def _shared(splits: dict[str, list[Place]]) -> dict[str, int]:
    """Count the validation rows whose image, or image and question, is in the training split, too.

    Sources ask several questions about an image, and some contain the same data (geo3k and Geometry3K).
    """
    seen: dict[str, list[tuple[bytes, str]]] = {}
    for split, places in splits.items():
        rows = (table.slice(i, 1).select(["images", "prompt"]).to_pylist()[0] for table, i in places)
        seen[split] = [
            (hashlib.sha256(row["images"][0]["bytes"]).digest(), normalised_question(row["prompt"][0]["content"]))
            for row in rows
        ]
    images, pairs = {image for image, _ in seen["train"]}, set(seen["train"])
    return {
        "image": sum(image in images for image, _ in seen["validation"]),
        "image_and_prompt": sum(pair in pairs for pair in seen["validation"]),
    }


def _in_words(counts: dict[str, Any]) -> str:
    dropped = ", ".join(f"{reason} {number:,}" for reason, number in counts["dropped"].items()) or "none"
    return (
        f"{counts['name']}: {counts['read']:,} rows read, {counts['usable']:,} usable, {counts['taken']:,} of "
        f"{counts['asked']:,} taken; dropped: {dropped}"
    )


def _shortage(counts: dict[str, Any]) -> str:
    return (
        f"{_in_words(counts)}. The paper's mixture has {counts['asked']:,} rows of this source. Set --allow_fewer to "
        "build a smaller mixture. The rows that were read are kept."
    )


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
