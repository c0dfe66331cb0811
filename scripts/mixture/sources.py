"""The sources of the paper's training mixture (VADE, arXiv 2511.18902, Table 3): where each is, and what it must hold.

Schemas and rows were read on the data sets' cards and viewers, in the build script of HuggingFaceM4/the_cauldron and
in public code that reads these repositories. The rows of geo3k, GEOS, GeoQA+, Geometry3K, tabmwp and of the
`llava_format` configurations could be read nowhere word for word, and nothing that could be read says that the pinned
revision of lmms-lab/LLaVA-OneVision-Data has all nine configurations. So the schema is checked before a row is read,
`conversations` knows the formats of the whole family, and what it cannot read is dropped and counted.

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
"""Of the rows of the mixture."""


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
    """The rows of `source` as an `IterableDataset` of the columns that are read, with images as their files' bytes.

    Args:
        mirror: a folder with copies of the repositories; None: the Hub, at the pinned revision.

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
                f"The mirror {mirror} has no folder {source.repo}: each repository is looked for under its name "
                f"there. Run: hf download {source.repo} --repo-type dataset --revision {source.revision} --local-dir "
                f"{folder}"
            )
        place, revision = str(folder), None  # type: ignore[assignment]
    try:
        stream = load_dataset(place, source.config, split=source.split, revision=revision, streaming=True)
    except ValueError as error:  # datasets 5.2: no such BuilderConfig, "Bad split"
        raise SourceSchemaError(
            f"{source.name} ({source.place}) cannot be opened: {error} Expected: the split {source.split}, with the "
            f"columns {', '.join(source.columns)}. Leave it out by --sources, or report it: the table of sources in "
            "scripts/mixture/sources.py is out of date."
        ) from error
    check_schema(source, stream.features)
    return stream.select_columns(list(source.columns)).decode(False)


def check_schema(source: Source, features: Mapping[str, Any] | None) -> None:
    """Refuse a stream without one of the source's columns, or with another type in it; further columns may be there.

    Raises:
        SourceSchemaError: names the column, the expected and the found type.
    """
    found = {name: kind_of(feature) for name, feature in (features or {}).items()}
    for column, expected in source.columns.items():
        if found.get(column) != expected:
            here = f"is of the type {found[column]}" if column in found else f"is not there (columns: {sorted(found)})"
            raise SourceSchemaError(
                f"{source.name} ({source.place}): the column {column!r} {here}; expected: {expected}. The data set "
                "changed, and rows of another form would be read wrongly. Use the pinned revision, or leave this "
                "source out by --sources."
            )


def kind_of(feature: Any) -> str:
    """The type of a column in short; the widths of integers and of string offsets make no difference."""
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
    """Name, size and time of each file of the mirror that `source` may be read from: what was read is not read again
    as long as this stays. [] for the Hub, where the revision says it."""
    if mirror is None:
        return []
    folder = mirror / source.repo
    files = [folder / "README.md", *sorted(folder.rglob("*.parquet"))]
    stats = [(file, os.stat(file)) for file in files if file.is_file()]
    return [[file.relative_to(folder).as_posix(), stat.st_size, stat.st_mtime_ns] for file, stat in stats]
