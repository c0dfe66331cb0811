"""The sources of the paper's training mixture (VADE, arXiv 2511.18902, Table 3): where they are and what they hold.

Schemas and rows were read on the data sets' cards and viewers, in the build script of HuggingFaceM4/the_cauldron and
in public code that reads these repositories. The exact wording of the rows of geo3k, GEOS, GeoQA+, Geometry3K, tabmwp
and of the `llava_format` configurations was not found. Nor was a proof that the pinned revision of
lmms-lab/LLaVA-OneVision-Data has all nine configurations. So the schema is checked before a row is read. The module
`conversations` knows the formats of the whole family. Rows that it cannot read are dropped and counted.

Where the revisions were read: LLaVA-OneVision-Data in NVIDIA's nemotron-stitch (examples/llava/llava_example.py, which
streams its CLEVR-Math); ChartQA and ScienceQA in the addresses of their cards on the Hub and as the newest commit of
their file lists, and in public code that pins them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trl_vade.errors import ConfigurationError, SourceSchemaError

CONVERSATIONS = {"image": "image", "conversations": "list<{from: string, value: string}>"}
"""The columns that are read (card of lmms-lab/LLaVA-OneVision-Data, CLEVR-Math; it also has id and data_source)."""

VALIDATION_SHARE = 0.1
"""Share of the mixture's rows in the validation split."""


@dataclass(frozen=True)
class Source:
    """A part of the mixture: `count` rows of one configuration."""

    name: str  # as Table 3 has it; the column `source`
    task: str  # the column `task`
    domain: str  # math, chart or science
    count: int
    repo: str
    revision: str
    config: str | None
    licence: str
    reader: str  # which function of `conversations` reads a row
    columns: Mapping[str, str]  # name -> `kind_of`
    split: str = "train"

    @property
    def place(self) -> str:
        """Repository, configuration and revision, for messages and tables."""
        config = "" if self.config is None else f", configuration {self.config}"
        return f"{self.repo}{config}, revision {self.revision}"


def _one_vision(config: str, task: str, domain: str, count: int) -> Source:
    return Source(
        config,
        task,
        domain,
        count,
        repo="lmms-lab/LLaVA-OneVision-Data",
        revision="7ca5e5bf8b2006d5dfa0549756198474f0897f63",
        config=config,
        licence="apache-2.0",
        reader="conversations",
        columns=CONVERSATIONS,
    )


_ALL = [
    _one_vision("geo3k", "geo3k", "math", 800),
    _one_vision("geo170k(qa)", "geo170k", "math", 1778),
    _one_vision("CLEVR-Math(MathV360K)", "clevr_math", "math", 321),
    _one_vision("GEOS(MathV360K)", "geos", "math", 498),
    _one_vision("GeoQA+(MathV360K)", "geoqa_plus", "math", 1923),
    _one_vision("Geometry3K(MathV360K)", "geometry3k", "math", 350),
    _one_vision("figureqa(cauldron,llava_format)", "figureqa", "chart", 957),
    Source(
        "ChartQA",
        "chartqa",
        "chart",
        1300,
        repo="HuggingFaceM4/ChartQA",
        revision="b605b6e08b57faf4359aeb2fe6a3ca595f99b6c5",
        config=None,
        licence="gpl-3.0",
        reader="chartqa",
        columns={"image": "image", "query": "string", "label": "list<string>"},
    ),
    _one_vision("tabmwp(cauldron)", "tabmwp", "chart", 219),
    Source(
        "ScienceQA",
        "scienceqa",
        "science",
        1100,
        repo="derek-thomas/ScienceQA",
        revision="f18b0a70359ebfb41f658fd564208d0355b013f4",
        config=None,
        licence="cc-by-sa-4.0",
        reader="scienceqa",
        columns={
            "image": "image",
            "question": "string",
            "choices": "list<string>",
            "answer": "int",
            "hint": "string",
        },
    ),
    _one_vision("ai2d(cauldron,llava_format)", "ai2d", "science", 225),
]

SOURCES = {source.task: source for source in _ALL}
"""By task; 9,471 rows in all."""


def open_stream(source: Source, mirror: Path | None = None) -> Any:
    """Open `source` as an `IterableDataset` of its expected columns, with images as the bytes of their files.

    Args:
        mirror: a folder with copies of the repositories; None reads the Hub at the pinned revision.

    Raises:
        ConfigurationError: the mirror has no such folder.
        SourceSchemaError: the configuration, the split or a column is not there, or a column is of another type.
    """
    from datasets import load_dataset

    place, revision = source.repo, source.revision
    if mirror is not None:
        folder = mirror / source.repo
        if not folder.is_dir():
            raise ConfigurationError(
                f"The mirror {mirror} has no folder {source.repo}. It must hold each repository under its name. "
                f"Run: hf download {source.repo} --repo-type dataset --revision {source.revision} --local-dir "
                f"{folder}"
            )
        place, revision = str(folder), None  # type: ignore[assignment]
    try:
        stream = load_dataset(place, source.config, split=source.split, revision=revision, streaming=True)
    except ValueError as error:  # datasets 5.2: no such BuilderConfig, "Bad split"
        raise SourceSchemaError(
            f"{source.name} ({source.place}) cannot be opened: {error} Expected: the split {source.split}, with the "
            f"columns {', '.join(source.columns)}. List the other sources in --sources, or report that "
            "scripts/mixture/sources.py is out of date."
        ) from error
    check_schema(source, stream.features)
    return stream.select_columns(list(source.columns)).decode(False)


def check_schema(source: Source, features: Mapping[str, Any] | None) -> None:
    """Refuse a stream that lacks a column of the source or has another type in it; more columns are allowed.

    Raises:
        SourceSchemaError: names the column, the expected and the found type.
    """
    found = {name: kind_of(feature) for name, feature in (features or {}).items()}
    for column, expected in source.columns.items():
        if found.get(column) != expected:
            here = f"is of the type {found[column]}" if column in found else f"is not there (columns: {sorted(found)})"
            raise SourceSchemaError(
                f"{source.name} ({source.place}): the column {column!r} {here}; expected: {expected}. The data set "
                "changed, and rows of another form would be read wrongly. Use the pinned revision, or list the "
                "other sources in --sources."
            )


def kind_of(feature: Any) -> str:
    """Return the type of a column in short, without the widths of integers and of string offsets."""
    from datasets import Image, LargeList, List, Value

    if isinstance(feature, Image):
        return "image"
    if isinstance(feature, List | LargeList):
        return f"list<{kind_of(feature.feature)}>"
    if isinstance(feature, Mapping):
        return "{" + ", ".join(f"{name}: {kind_of(part)}" for name, part in sorted(feature.items())) + "}"
    if not isinstance(feature, Value):
        return type(feature).__name__
    if feature.dtype in ("string", "large_string", "string_view"):
        return "string"
    return "int" if feature.dtype.lstrip("u").startswith("int") else str(feature.dtype)


def state_of_mirror(source: Source, mirror: Path | None) -> list[list[Any]]:
    """Return name, size and time of the mirror's files of `source`; a change has it read again. [] for the Hub."""
    if mirror is None:
        return []
    folder = mirror / source.repo
    files = [folder / "README.md", *sorted(folder.rglob("*.parquet"))]
    stats = [(file, os.stat(file)) for file in files if file.is_file()]
    return [[file.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns] for file, stat in stats]
