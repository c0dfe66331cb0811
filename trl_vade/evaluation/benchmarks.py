"""The benchmarks with their tasks (`eval/tasks/`) and metrics of lmms-eval 0.7.3, and the results of the paper."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from trl_vade.errors import ConfigurationError


@dataclass(frozen=True)
class Benchmark:
    """A benchmark, by its name for `--tasks` and in `results.json`."""

    name: str
    title: str  # its display name
    scorer: str  # what decides whether an answer is right, for the head of a table
    metric: str  # the metric of the lmms-eval task, 0 to 1, also of each question in the samples file
    judged: bool = False  # whether a language model judges or extracts the answers
    greedy: bool = False  # whether the paper's figures are of greedy answers; else answers are sampled by default
    questions: int | None = None  # the number of questions of the whole split
    dataset: str | None = None  # Hub id of the questions; None if the user must give them (`--data name=folder`)
    config: str | None = None  # configuration of that data set; None is the default one
    split: str = "test"  # split of that data set

    @property
    def task(self) -> str:
        """Return the name of the task in `eval/tasks/`. lmms-eval would prefer a built-in task of the same name."""
        return f"vade_{self.name}"

    @property
    def key(self) -> str:
        """Return the key of the metric in a results file."""
        return f"{self.metric},none"


FIVE = ("mathvista", "mathverse", "mathvision", "scienceqa_img", "chartqa")
"""The paper's benchmarks, in the order of its Table 1."""

_JUDGE = "lmms-eval: judge"
_SCIENCEQA = partial(
    Benchmark, metric="exact_match", scorer="lmms-eval: letter", greedy=True, dataset="lmms-lab-encoder/ScienceQA"
)
_MATHVISION = partial(Benchmark, questions=3040, dataset="MathLLMs/MathVision")
BENCHMARKS = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            *("mathvista", "MathVista (testmini)", "official: judge extracts, rules compare", "llm_as_judge_eval"),
            judged=True,
            questions=1000,
            dataset="AI4Math/MathVista",
            split="testmini",
        ),
        Benchmark(
            *("mathverse", "MathVerse (testmini)", _JUDGE, "gpt_eval_score"),
            judged=True,
            questions=3940,
            dataset="CaraJ/MathVerse-lmmseval",
            config="testmini",
            split="testmini",
        ),
        _MATHVISION("mathvision", "MathVision (test)", _JUDGE, "llm_as_judge_eval", judged=True),
        _SCIENCEQA("scienceqa_img", "ScienceQA-IMG (test)", questions=2017, config="ScienceQA-IMG"),
        Benchmark(
            *("chartqa", "ChartQA (test)", "lmms-eval: relaxed, 5 %", "relaxed_overall"),
            greedy=True,
            questions=2500,
            dataset="lmms-lab-encoder/ChartQA",
        ),
        _MATHVISION("mathvision_rules", "MathVision (test), by rules", "official: rules", "mathvision_standard_eval"),
        _SCIENCEQA("scienceqa", "ScienceQA-FULL (test)", questions=4241, config="ScienceQA-FULL"),
        Benchmark("testbed", "Testbed (validation)", "the reward", "exact_answer", split="validation"),
        Benchmark("mixture", "Training mixture (validation)", "the reward", "vade_accuracy", split="validation"),
    )
}


def find_benchmarks(names: Sequence[str]) -> list[Benchmark]:
    """Return the benchmarks of these names, in this order, each once; no or unknown names: `ConfigurationError`."""
    if not names or set(names) - BENCHMARKS.keys():
        raise ConfigurationError(f"--tasks {','.join(names)}: give some of {', '.join(BENCHMARKS)}.")
    return [BENCHMARKS[name] for name in dict.fromkeys(names)]


_7B, _3B = "Qwen2.5-VL-7B-Instruct", "Qwen2.5-VL-3B-Instruct"
PAPER = {  # arXiv 2511.18902, Table 1: average@4 in per cent, in the order of `FIVE`
    (_7B, "base"): (69.30, 40.36, 18.55, 84.53, 80.40),
    (_7B, "GRPO, vanilla"): (72.85, 41.36, 20.71, 90.08, 84.12),
    (_7B, "GRPO, DAPO"): (71.80, 47.11, 24.16, 89.54, 85.72),
    (_7B, "GRPO, VADE"): (75.10, 45.65, 25.79, 91.67, 85.56),
    (_7B, "GSPO, vanilla"): (71.88, 41.09, 23.29, 91.92, 84.60),
    (_7B, "GSPO, DAPO"): (73.35, 47.01, 24.13, 91.32, 86.04),
    (_7B, "GSPO, VADE"): (73.45, 45.70, 25.68, 91.77, 86.24),
    (_3B, "base"): (63.15, 23.27, 11.29, 76.70, 78.84),
    (_3B, "GRPO, vanilla"): (63.37, 33.40, 19.16, 85.08, 76.80),
    (_3B, "GRPO, DAPO"): (66.88, 38.03, 21.82, 83.64, 82.20),
    (_3B, "GRPO, VADE"): (63.62, 37.22, 18.92, 85.37, 81.48),
    (_3B, "GSPO, vanilla"): (62.80, 33.47, 17.55, 84.09, 82.12),
    (_3B, "GSPO, DAPO"): (64.70, 32.08, 16.00, 81.36, 81.36),
    (_3B, "GSPO, VADE"): (63.82, 32.89, 19.20, 84.58, 81.40),
}
