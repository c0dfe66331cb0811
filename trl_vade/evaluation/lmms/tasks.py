"""A temporary folder with the tasks of `eval/tasks/` for lmms-eval.

lmms-eval 0.7.3 looks for an `include` beside the file that names it. The place of its own tasks differs between
installations, so our files are linked into a new folder, beside a link to lmms-eval's tasks.
"""

import importlib.util
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from trl_vade.errors import ConfigurationError, abbreviated
from trl_vade.files import packaged

from ..benchmarks import Benchmark
from ..models import digest_of


def _words(**words: str) -> dict[str, Any]:
    return {"lmms_eval_specific_kwargs": {"default": words}}


_LETTER = "Answer with the option's letter from the given choices."
_SCIENCEQA = _words(format="default", pre_prompt="", post_prompt=f"\n{_LETTER}")
THOUGHTFUL = {
    "chartqa": _words(pre_prompt="", post_prompt=""),
    "scienceqa": _SCIENCEQA,
    "scienceqa_img": _SCIENCEQA,
    **dict.fromkeys(
        ("mathvision", "mathvision_rules"),
        _words(prompt_format="solution", mc_prompt=_LETTER, short_answer_prompt="Answer the question with a number."),
    ),
}
"""Words around a question that fit an instruction. lmms-eval's own ask for a single word (ChartQA), or for a letter
"directly"."""


@contextmanager
def task_folder(
    benchmarks: Sequence[Benchmark], data: Mapping[str, Path], *, asked_to_think: bool = False
) -> Iterator[Path]:
    """Yield a folder with a task for each benchmark, for lmms-eval's `--include_path`; delete it after the block.

    `data` has, by benchmark, the folder with its rows; the others come from the Hub. `asked_to_think` says that an
    instruction follows the questions, so that their own words must not contradict it.
    """
    with tempfile.TemporaryDirectory(prefix="vade-tasks-") as name:
        base, tasks = Path(name, "base"), Path(name, "tasks")
        base.mkdir()
        tasks.mkdir()
        (base / "lmms_eval").symlink_to(builtin_tasks())
        for benchmark in benchmarks:
            file = f"{benchmark.task}.yaml"
            (base / file).symlink_to(packaged(f"eval/tasks/{file}").resolve())
            rows: dict[str, Any] = {}
            if folder := data.get(benchmark.name):
                saved = {"load_from_disk": True} if _saved_to_disk(folder) else {"token": False}
                rows = {"dataset_path": str(folder.resolve()), "dataset_name": None, "dataset_kwargs": saved}
            words = THOUGHTFUL.get(benchmark.name, {}) if asked_to_think else {}
            text = yaml.safe_dump({"include": str(base / file), "task": benchmark.task, **rows, **words})
            (tasks / file).write_text(text, encoding="utf-8")
        yield tasks


def default_rows(names: Sequence[str]) -> dict[str, Path]:
    """Return the folder of the testbed's validation split, made if needed, if the testbed is among `names`."""
    if "testbed" not in names:
        return {}
    from trl_vade.testbed import load_testbed_dataset
    from trl_vade.testbed.cache import cached_directory
    from trl_vade.testbed.dataset import FORMAT_VERSION

    def build(directory: Path) -> None:
        load_testbed_dataset()["validation"].to_parquet(directory / "validation-00000-of-00001.parquet")

    return {"testbed": cached_directory("testbed-validation", {"format": FORMAT_VERSION}, build)}


def check_rows(benchmark: Benchmark, folder: Path) -> None:
    """Raise `ConfigurationError` unless a folder is a data set with the split and the column of `benchmark`."""
    given = f"--data {benchmark.name}={folder}"
    needed = f"the split {benchmark.split!r} with a column {benchmark.column!r}"
    if not folder.is_dir():
        raise ConfigurationError(f"{given}: there is no such folder. Give a data set with {needed}.")
    try:
        splits = _columns(folder)
    except Exception as error:  # any error of `datasets`
        raise ConfigurationError(
            f"{given}: `datasets` cannot read this folder ({type(error).__name__}: {abbreviated(str(error))}). Give a "
            f"data set as Parquet or from save_to_disk(), with {needed}."
        ) from error
    if benchmark.column not in splits.get(benchmark.split, ()):
        found = "; ".join(f"{name}: {', '.join(columns)}" for name, columns in splits.items())
        # datasets 5.2 puts a file `testmini-00000-of-00001.parquet` outside of `data` into the split train.
        raise ConfigurationError(
            f"{given} needs {needed}, but has {found or 'no splits'}. Name a Parquet file of this split "
            f"data/{benchmark.split}-00000-of-00001.parquet."
        )


def rows_digest(folder: Path) -> str:
    """Return 16 hexadecimal digits of a folder's files, from every byte. Other rows are another evaluation."""
    return digest_of(folder, [path for path in folder.rglob("*") if path.is_file() and not path.name.startswith(".")])


def _columns(folder: Path) -> dict[str, list[str]]:
    import datasets

    if _saved_to_disk(folder):
        loaded = datasets.load_from_disk(str(folder))
        splits = loaded if isinstance(loaded, datasets.DatasetDict) else {}
        return {name: list(rows.column_names) for name, rows in splits.items()}
    return {name: list(rows.column_names) for name, rows in datasets.load_dataset(str(folder)).items()}


def _saved_to_disk(folder: Path) -> bool:
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def builtin_tasks() -> Path:
    """Return the folder of lmms-eval's own tasks, or raise `ConfigurationError` if it is not installed."""
    found = importlib.util.find_spec("lmms_eval")
    if found is None or not found.submodule_search_locations:
        raise ConfigurationError('lmms-eval is not installed: pip install "trl-vade[eval]".')
    return Path(found.submodule_search_locations[0]) / "tasks"
