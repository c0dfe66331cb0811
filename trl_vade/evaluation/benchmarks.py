"""The benchmarks: their lmms-eval tasks, how a task's result becomes per cent, and what the paper reports.

Names of tasks and metrics are those of lmms-eval 0.7.3; our tasks (`eval/tasks/`) are built on its own by `include`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trl_vade.errors import ConfigurationError


@dataclass(frozen=True)
class Benchmark:
    """One benchmark, as `--tasks` names it.

    Attributes:
        name: of the command line and of `results.json`.
        title: for people.
        metric: of the lmms-eval task; its key in a results file is `"<metric>,none"`.
        scale: the value of the metric that is 100 %.
        score: where the score of a question, 0 to 1, is in the samples file: the keys below `metric`.
        judged: whether a language model judges the answers.
        extracted: whether it extracts them from the responses; what it found is then below `metric`, as `extraction`.
        dataset: Hub id of the questions; None: they have to be given (`--data name=folder`).
        config, split: of that data set.
        column: the column that lmms-eval cannot do without; a folder given by `--data` must have it.
        none_is_zero: lmms-eval 0.7.3 returns None for this metric where no answer is right (mathvista/utils.py).
    """

    name: str
    title: str
    metric: str
    scale: float
    score: tuple[str | int, ...] = ()
    judged: bool = False
    extracted: bool = False
    dataset: str | None = None
    config: str | None = None
    split: str = "test"
    column: str = "answer"
    none_is_zero: bool = False

    @property
    def task(self) -> str:
        """The name of the task in `eval/tasks/`: not a built-in one, which lmms-eval 0.7.3 would prefer to ours."""
        return f"vade_{self.name}"

    @property
    def key(self) -> str:
        """The key of the metric in a results file."""
        return f"{self.metric},none"

    def question_score(self, sample: Mapping[str, Any]) -> float | None:
        """The score of one question, 0 to 1, from its line of the samples file; None: it does not count.

        Raises:
            KeyError, IndexError, TypeError: the line has no such score.
        """
        value: Any = sample[self.metric]
        for key in self.score:
            value = value[key]
        return None if value is None else float(value)


FIVE = ("mathvista", "mathverse", "mathvision", "scienceqa", "chartqa")
"""The paper's benchmarks, in the order of its Table 1."""

BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            *("mathvista", "MathVista (testmini)", "llm_as_judge_eval", 100.0, ("true_false",)),
            judged=True,
            extracted=True,
            dataset="AI4Math/MathVista",
            split="testmini",
            none_is_zero=True,
        ),
        Benchmark(
            *("mathverse", "MathVerse (testmini)", "gpt_eval_score", 1.0),
            judged=True,
            dataset="CaraJ/MathVerse-lmmseval",
            config="testmini",
            split="testmini",
        ),
        Benchmark(
            *("mathvision", "MathVision (test)", "llm_as_judge_eval", 1.0), judged=True, dataset="MathLLMs/MathVision"
        ),
        Benchmark(
            *("scienceqa", "ScienceQA (test)", "exact_match", 1.0),
            dataset="lmms-lab-encoder/ScienceQA",
            config="ScienceQA-FULL",
        ),
        Benchmark(*("chartqa", "ChartQA (test)", "relaxed_overall", 1.0), dataset="lmms-lab-encoder/ChartQA"),
        Benchmark(
            *("mathvision_rules", "MathVision (test), by rules", "mathvision_standard_eval", 100.0, ("scores", 0)),
            dataset="MathLLMs/MathVision",
        ),
        Benchmark(
            *("scienceqa_img", "ScienceQA (test, with images)", "exact_match", 1.0),
            dataset="lmms-lab-encoder/ScienceQA",
            config="ScienceQA-IMG",
        ),
        Benchmark("testbed", "Testbed (validation)", "exact_answer", 1.0, split="validation"),
        Benchmark("mixture", "Training mixture (validation)", "vade_accuracy", 1.0, ("verdict",), split="validation"),
    )
}


def find_benchmarks(names: Sequence[str]) -> list[Benchmark]:
    """The benchmarks of these names, in this order, each once.

    Raises:
        ConfigurationError: there is none, or one of them is unknown.
    """
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or not names:
        raise ConfigurationError(
            f"--tasks {','.join(names)}: {', '.join(unknown) or 'nothing'} is no benchmark here. There are "
            f"{', '.join(BENCHMARKS)}."
        )
    return [BENCHMARKS[name] for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class PaperRow:
    """A row of the paper's Table 1: average@4 in per cent, in the order of `FIVE`."""

    model: str
    algorithm: str
    method: str
    scores: tuple[float, float, float, float, float]

    @property
    def average(self) -> float:
        """The mean of the five, to two digits: what the paper prints as "AVG"."""
        return round(sum(self.scores) / len(self.scores), 2)


_7B, _3B = "Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL-3B-Instruct"
PAPER = (
    PaperRow(_7B, "-", "base", (69.30, 40.36, 18.55, 84.53, 80.40)),
    PaperRow(_7B, "GRPO", "vanilla", (72.85, 41.36, 20.71, 90.08, 84.12)),
    PaperRow(_7B, "GRPO", "DAPO", (71.80, 47.11, 24.16, 89.54, 85.72)),
    PaperRow(_7B, "GRPO", "VADE", (75.10, 45.65, 25.79, 91.67, 85.56)),
    PaperRow(_7B, "GSPO", "vanilla", (71.88, 41.09, 23.29, 91.92, 84.60)),
    PaperRow(_7B, "GSPO", "DAPO", (73.35, 47.01, 24.13, 91.32, 86.04)),
    PaperRow(_7B, "GSPO", "VADE", (73.45, 45.70, 25.68, 91.77, 86.24)),
    PaperRow(_3B, "-", "base", (63.15, 23.27, 11.29, 76.70, 78.84)),
    PaperRow(_3B, "GRPO", "vanilla", (63.37, 33.40, 19.16, 85.08, 76.80)),
    PaperRow(_3B, "GRPO", "DAPO", (66.88, 38.03, 21.82, 83.64, 82.20)),
    PaperRow(_3B, "GRPO", "VADE", (63.62, 37.22, 18.92, 85.37, 81.48)),
    PaperRow(_3B, "GSPO", "vanilla", (62.80, 33.47, 17.55, 84.09, 82.12)),
    PaperRow(_3B, "GSPO", "DAPO", (64.70, 32.08, 16.00, 81.36, 81.36)),
    PaperRow(_3B, "GSPO", "VADE", (63.82, 32.89, 19.20, 84.58, 81.40)),
)
"""arXiv 2511.18902, Table 1."""
