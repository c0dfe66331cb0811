"""A temporary folder with the tasks of `eval/tasks/` for lmms-eval, which include lmms-eval's own by their path."""

import importlib.util
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from trl_vade.files import packaged

from .benchmarks import Benchmark
from .settings import Evaluation


def _words(**words: str) -> dict[str, Any]:
    return {"lmms_eval_specific_kwargs": {"default": words}}


_LETTER = "Answer with the option's letter from the given choices."
_SCIENCEQA = _words(format="default", pre_prompt="", post_prompt=f"\n{_LETTER}")
_MATHS = _words(prompt_format="solution", mc_prompt=_LETTER, short_answer_prompt="Answer the question with a number.")
THOUGHTFUL = {
    "chartqa": _words(pre_prompt="", post_prompt=""),
    **dict.fromkeys(("scienceqa", "scienceqa_img"), _SCIENCEQA),
    **dict.fromkeys(("mathvision", "mathvision_rules"), _MATHS),
}
"""Words around a question that fit an instruction. lmms-eval's own ask for a single word (ChartQA), or for a letter
"directly"."""


@contextmanager
def task_folder(evaluation: Evaluation, benchmarks: Sequence[Benchmark]) -> Iterator[Path]:
    """Yield a folder with a task for each benchmark, for lmms-eval's `--include_path`; delete it after the block."""
    (package,) = importlib.util.find_spec("lmms_eval").submodule_search_locations  # type: ignore[union-attr, misc]
    with tempfile.TemporaryDirectory(prefix="vade-tasks-") as tasks:
        for benchmark in benchmarks:
            text = packaged(f"eval/tasks/{benchmark.task}.yaml").read_text(encoding="utf-8")
            changes = dict(THOUGHTFUL.get(benchmark.name, {}) if evaluation.instruction else {})
            if folder := testbed_rows() if benchmark.name == "testbed" else evaluation.data.get(benchmark.name):
                saved = {"load_from_disk": True} if (folder / "dataset_dict.json").is_file() else {"token": False}
                changes |= {"dataset_path": str(folder.resolve()), "dataset_name": None, "dataset_kwargs": saved}
            text = text.replace("include: lmms_eval", f"include: {package}/tasks")
            text += yaml.safe_dump(changes) if changes else ""  # of two equal keys the last one counts
            Path(tasks, f"{benchmark.task}.yaml").write_text(text, encoding="utf-8")
        yield Path(tasks)


def testbed_rows() -> Path:
    """Return the folder of the testbed's validation split, made if needed."""
    from trl_vade.testbed import load_testbed_dataset
    from trl_vade.testbed.cache import cached_directory
    from trl_vade.testbed.dataset import FORMAT_VERSION

    def build(directory: Path) -> None:
        load_testbed_dataset()["validation"].to_parquet(directory / "validation-00000-of-00001.parquet")

    return cached_directory("testbed-validation", {"format": FORMAT_VERSION}, build)
