"""The sources of the paper's training mixture (VADE, arXiv 2511.18902, Table 3): where they are and what they hold.

Schemas and rows were read on the data sets' cards and viewers, in the build script of HuggingFaceM4/the_cauldron, in
the upload script of lmms-lab/LLaVA-OneVision-Data and in public code that reads these repositories. The exact wording
of the rows of geo3k, GEOS, GeoQA+, Geometry3K, tabmwp and of the `llava_format` configurations was not found. So the
schema is checked before a row is read. The module `conversations` knows the formats of the whole family. Rows that it
cannot read are dropped and counted.

Where the revisions were read: LLaVA-OneVision-Data in two public programs, one of which loads `*/train-*.parquet` of
all configurations at it; ChartQA and ScienceQA in the addresses of their cards and as the newest commit of their file
lists. The sizes are those of the Hub's file lists, and estimates where `about` says so.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from trl_vade.errors import VADEError

CONVERSATIONS = {"image": "image", "conversations": "list<{from: string, value: string}>"}
"""The columns that are read (card of lmms-lab/LLaVA-OneVision-Data, CLEVR-Math; it also has id and data_source)."""

CHART = frozenset({"number", "text", "yes_no"})
MATH = frozenset({"choice", "number", "expression"})
"""Kinds of answers, see `conversations.Question.kinds`. No problem of geometry has words for an answer."""

VALIDATION_SHARE = 0.1
"""Share of the mixture's rows in the validation split."""


class SourceSchemaError(VADEError, ValueError):
    """A source of the training mixture lacks a configuration or a column, or a column has another type."""


class SourceShortageError(VADEError, ValueError):
    """A source of the training mixture has fewer usable rows than requested."""


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
    columns: Mapping[str, str]  # name -> `fetch.kind_of`
    kinds: frozenset[str]  # of its answers, see `conversations.Question.kinds`
    megabytes: int
    about: bool = False  # the size is an estimate

    @property
    def files(self) -> str:
        """The pattern of its files in the repository."""
        return f"{self.config or 'data'}/train-*.parquet"

    @property
    def place(self) -> str:
        """Repository, configuration and revision, for messages and tables."""
        config = "" if self.config is None else f", configuration {self.config}"
        return f"{self.repo}{config}, revision {self.revision}"


def _one_vision(
    config: str, task: str, domain: str, count: int, kinds: Iterable[str], megabytes: int, about: bool = False
) -> Source:
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
        kinds=frozenset(kinds),
        megabytes=megabytes,
        about=about,
    )


_ALL = [
    _one_vision("geo3k", "geo3k", "math", 800, MATH, 30, about=True),
    _one_vision("geo170k(qa)", "geo170k", "math", 1778, MATH, 160),
    _one_vision("CLEVR-Math(MathV360K)", "clevr_math", "math", 321, ["integer"], 441),
    _one_vision("GEOS(MathV360K)", "geos", "math", 498, MATH, 1),
    _one_vision("GeoQA+(MathV360K)", "geoqa_plus", "math", 1923, MATH, 50, about=True),
    _one_vision("Geometry3K(MathV360K)", "geometry3k", "math", 350, MATH, 126),
    _one_vision("figureqa(cauldron,llava_format)", "figureqa", "chart", 957, ["yes_no"], 2222),
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
        kinds=CHART,
        megabytes=845,
    ),
    _one_vision("tabmwp(cauldron)", "tabmwp", "chart", 219, CHART, 200, about=True),
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
            "solution": "string",
        },
        kinds=frozenset({"choice"}),
        megabytes=377,
    ),
    _one_vision("ai2d(cauldron,llava_format)", "ai2d", "science", 225, ["choice"], 437),
]

SOURCES = {source.task: source for source in _ALL}
"""By task; 9,471 rows in all."""
