"""A data set of originals and their variants as a folder that `load_dataset` reads, and as a repository of the Hub.

Two builds from the same rows and replies are equal byte for byte.
"""

import hashlib
import os
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, Features, Value
from huggingface_hub import DatasetCard, DatasetCardData
from tqdm import tqdm

from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_names import RowNames
from trl_vade.data.variant_rows import ORIGINAL
from trl_vade.errors import ConfigurationError, EndpointError, abbreviated
from trl_vade.files import packaged, replace_durably, save_whole
from trl_vade.hub.cards import markdown_table
from trl_vade.hub.uploading import HubTarget, commit_folder

from .making import Columns, Maker, Row
from .replies import Replies

Counts = dict[str, Counter[str]]
REPLIES = ".replies.jsonl"
OURS = ("id", "of", "kind", "variant_source", "variant_model", "variant_request")
USUAL = {
    "prompt": ("prompt", "question", "problem"),
    "image": ("images", "image"),
    "answer": ("answer", "solution"),
    "solution": ("solution",),
    "task": ("task",),
}
"""Names of columns, the first that is there."""
ROW_GROUP = 100  # rows, as datasets writes them for images
THREADS = 4  # Pillow and zlib release the GIL


def columns_of(dataset: Dataset, told: dict[str, str | None]) -> Columns:
    """Return the names of the columns: those that are told, else the first of the usual ones that is there.

    Raises:
        ConfigurationError: a column is missing, or the rows are variants already.
    """
    names = dataset.column_names
    missing = [f"--{what}_column {name}" for what, name in told.items() if name is not None and name not in names]
    taken = [name for name in OURS[1:] if name in names]
    if missing or taken:
        fault = f"has no column for {', '.join(missing)}" if missing else f"has the columns {', '.join(taken)} already"
        raise ConfigurationError(
            f"The data set {fault}. Its columns are {', '.join(names)}. Give a data set of originals and the names of "
            f"its own columns. Rename columns that are called {', '.join(OURS[1:])}."
        )
    found = {what: told[what] or next((name for name in USUAL[what] if name in names), None) for what in USUAL}
    if found["prompt"] is None:
        raise ConfigurationError(
            f"The data set has the columns {', '.join(names)}. Name that of the questions: --prompt_column."
        )
    return Columns(**found)


def build(
    dataset: Dataset, maker: Maker, folder: Path, *, split: str, about: Row, allow_missing: bool = False
) -> Counts:
    """Write the Parquet file and the card, and return the counts by kind: `kept`, and refused by reason.

    Args:
        dataset: the originals. Without ids that tell them apart they are named by their keys.
        maker: what is made of a row.
        folder: a new one, or that of an earlier build, whose replies are used again.
        split: the name of the split.
        about: for the card.
        allow_missing: whether to write without the variants to which no reply came.

    Raises:
        ConfigurationError: the folder has other files, or a row has the id of a variant.
        EndpointError: some replies are missing. Those that came are kept in the folder.
    """
    if folder.exists() and (not folder.is_dir() or (any(folder.iterdir()) and not (folder / REPLIES).is_file())):
        raise ConfigurationError(
            f"--output_dir {folder} exists and was not made by this command: it has no {REPLIES}. Its files would be "
            "overwritten. Name a folder that does not exist, or that of an earlier build."
        )
    replies = Replies(folder / REPLIES)
    names = RowNames(dataset, sample_keys(dataset)[0])
    ids = set(names.of())
    clash = next((f"{id}/{kind}" for id in ids for kind in maker.kinds if f"{id}/{kind}" in ids), None)
    if clash is not None:
        raise ConfigurationError(
            f"The id {abbreviated(clash)} is that of a row, and a variant would get it, too. Give the data set of the "
            "originals, or rename this id."
        )
    if maker.endpoint is not None:
        with tqdm(_rows(dataset, names), total=len(dataset), unit="row", desc="asking the LLM") as rows:
            maker.endpoint.ask_all((request for row in rows for request in maker.requests(row)), replies)
        failures = maker.endpoint.failures
        if failures and not allow_missing:
            reasons = ", ".join(f"{reason} {count:,}" for reason, count in failures.items())
            raise EndpointError(
                f"{failures.total():,} requests have no reply ({reasons}). Those that came are kept in "
                f"{folder / REPLIES}. Run the same command again: it asks only for what is missing. --allow_missing "
                "writes the data set without these variants."
            )
    counts: Counts = {kind: Counter() for kind in maker.kinds}

    def made() -> Iterator[Row]:
        """Yield each original and its variants, and count the variants that it has and has not."""
        with (
            ThreadPoolExecutor(THREADS) as pool,
            tqdm(_rows(dataset, names), total=len(dataset), unit="row", desc="making variants") as rows,
        ):
            for row, variants in _in_order(pool, lambda row: (row, [*maker.variants(row, replies)]), rows):
                yield {**row, "of": row["id"], "kind": ORIGINAL}
                for kind, variant in variants:
                    counts[kind][variant if isinstance(variant, str) else "kept"] += 1
                    if not isinstance(variant, str):
                        yield {**row, **variant, "id": f"{row['id']}/{kind}", "of": row["id"], "kind": kind}

    file = folder / "data" / f"{split}-00000-of-00001.parquet"
    (folder / "README.md").unlink(missing_ok=True)  # it describes the file that is replaced now
    total = _write(file, made(), _features_of(dataset))
    for other in file.parent.iterdir():  # of an earlier build of another split
        if other != file:
            other.unlink()
    save_whole(folder / "README.md", _card(counts, total, file, split, about).encode())
    return counts


def _features_of(dataset: Dataset) -> Features:
    """Return the columns of the built data set: the names first, the provenance last."""
    own = {name: feature for name, feature in dataset.features.items() if name != "id"}
    names, provenance = ({name: Value("string") for name in part} for part in (OURS[:3], OURS[3:]))
    return Features({**names, **own, **provenance})


def push(folder: Path, target: HubTarget) -> str:
    """Upload the data set, without the replies, and return the address of the commit."""
    commit = commit_folder(
        target, folder, message="Originals and their variants", render=lambda files: {REPLIES: None}, mirror=["data"]
    )
    return str(commit.commit_url)


def _rows(dataset: Dataset, names: RowNames) -> Iterator[Row]:
    """Yield the rows as Arrow holds them, with the files of their images read and their names as `id`."""
    table = dataset.with_format("arrow")
    for start in range(0, len(dataset), ROW_GROUP):
        ids = names.of(range(start, min(start + ROW_GROUP, len(dataset))))
        for name, row in zip(ids, table[start : start + ROW_GROUP].to_pylist(), strict=True):
            yield {column: _with_bytes(value) for column, value in row.items()} | {"id": name}


def _with_bytes(value: Any) -> Any:
    if isinstance(value, list):
        return [_with_bytes(part) for part in value]
    if isinstance(value, dict) and value.keys() == {"bytes", "path"} and value["bytes"] is None and value["path"]:
        return {"bytes": Path(value["path"]).read_bytes(), "path": None}
    return value


def _in_order(pool: ThreadPoolExecutor, work: Callable[[Row], Any], rows: Iterable[Row]) -> Iterator[Any]:
    """Yield the results of `work` in the order of the rows, with few of them in memory."""
    begun: deque[Any] = deque()
    for row in rows:
        begun.append(pool.submit(work, row))
        if len(begun) > 4 * THREADS:
            yield begun.popleft().result()
    while begun:
        yield begun.popleft().result()


def _write(path: Path, rows: Iterator[Row], features: Features) -> int:
    """Write the rows to a Parquet file, and return their number."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary, total, group = path.with_name(path.name + ".tmp"), 0, list[Row]()
    with pq.ParquetWriter(temporary, features.arrow_schema) as writer:
        for row in rows:
            group.append(row)
            if len(group) == ROW_GROUP:
                writer.write_table(pa.Table.from_pylist(group, schema=features.arrow_schema))
                total, group = total + len(group), []
        writer.write_table(pa.Table.from_pylist(group, schema=features.arrow_schema))
    with temporary.open("rb+") as file:
        os.fsync(file.fileno())
    replace_durably(temporary, path)
    return total + len(group)


def _card(counts: Counts, total: int, file: Path, split: str, about: Row) -> str:
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    # datasets 5.2 caches a local folder by its last name and these entries: a digest tells builds apart.
    config = {"config_name": "default", "description": digest}
    config |= {"data_files": [{"split": split, "path": f"data/{split}-*"}]}
    data = DatasetCardData(
        pretty_name="Variants",
        tags=["trl-vade", "grpo", "trl"],
        configs=[config],
    )
    made = ", ".join(f"{name} {version(name)}" for name in ("trl-vade", "datasets", "pillow", "numpy", "pyarrow"))
    table = markdown_table(*counts_table(counts))
    template = str(packaged("model_cards/variants.md"))
    facts = {"total": total, "digest": digest, "made_with": made, "table": table, **about}
    return str(DatasetCard.from_template(data, template_path=template, **facts))


def counts_table(counts: Counts) -> tuple[list[str], list[list[str]]]:
    """Return head and rows of the table of what was kept and refused."""
    rows = []
    for kind, one in counts.items():
        reasons = sorted((-count, reason) for reason, count in one.items() if reason != "kept")
        why = ", ".join(f"{reason} {-count:,}" for count, reason in reasons)
        rows.append([kind, why or "none", f"{one['kept']:,}", f"{-sum(count for count, _ in reasons):,}"])
    return ["kind", "why refused (rows)", "kept (rows)", "refused (rows)"], rows
