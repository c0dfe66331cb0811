"""Do the rewards and the evaluation read the same answers as right?

    python -m eval.benchmarks.readers        # needs the extra `eval`, but neither a model nor a judge

The same answers in `<answer>` tags are scored by `accuracy_reward` and by the benchmark's own scorer in lmms-eval,
with our corrections. MathVista's judge is taken to extract the answer as it stands. MathVerse and MathVision's default
have a judge alone and are not here. Disagreements are listed by kind, with who calls the answer right.
"""

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from trl_vade.cli.tables import print_columns
from trl_vade.evaluation import tasks as scoring
from trl_vade.evaluation.benchmarks import BENCHMARKS
from trl_vade.evaluation.corrections import close_eval
from trl_vade.rewards.functions import accuracy_reward

ANIMALS = ["cat", "oak tree", "zooplankton"]
CHOICE = {"choices": ANIMALS, "answer_type": "choice"}
LETTERS = {
    "the letter": (["B"], ["A"]),
    "the letter, dressed": (["(B)", "B.", "b", "**B**"], ["(A)", "a."]),
    "letter and choice": (["B. oak tree", "(B) oak tree", "B: oak tree"], ["A. cat", "C. oak tree"]),
    "the choice": (["oak tree", "Oak tree"], ["cat"]),
    "a sentence": (["The answer is B.", "Option B"], ["The answer is A."]),
}
NUMBERS = {
    "the number": (["40"], ["20", "4", "0"]),
    "another form": (["40.0", "+40", "4e1"], ["-40"]),
    "a sentence": (["The answer is 40.", "It is 40"], ["The answer is 20."]),
    "an expression": (["80/2", "8 * 5"], ["80/4"]),
}


@dataclass(frozen=True)
class Case:
    """An answer to a question, and what a careful person says of it."""

    benchmark: str
    kind: str
    row: dict[str, Any]  # of the benchmark
    reference: dict[str, Any]  # the same question in the columns of the rewards
    said: str
    right: bool

    def by_reward(self) -> bool:
        """Return whether `accuracy_reward` gives 1."""
        columns = {name: [value] for name, value in self.reference.items()}
        return accuracy_reward([f"<answer>{self.said}</answer>"], **columns) == [1.0]

    def by_benchmark(self) -> bool:
        """Return whether the scorer of the benchmark finds the answer right."""
        found = getattr(scoring, self.benchmark)(self.row, [f"<answer>{self.said}</answer>"])
        return bool(found[BENCHMARKS[self.benchmark].metric] == 1)


def cases() -> Iterator[Case]:
    """Yield the cases, benchmark by benchmark."""
    for benchmark, row, reference, kinds in QUESTIONS:
        for kind, (right, wrong) in kinds.items():
            for said in (*right, *wrong):
                yield Case(benchmark, kind, row, reference, said, said in right)


def chartqa(answer: str, kind: str) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a question of ChartQA."""
    reference = {"answer": answer, "answer_type": kind, "source": "ChartQA"}
    return "chartqa", {"answer": answer, "type": "human_test"}, reference


def mathvista(answer: str, form: str, kind: str, **more: Any) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a question of MathVista with a free answer, or with `choices`."""
    row = {"pid": "1", "query": "", "answer": answer, "answer_type": form, "metadata": {}, "choices": None}
    row |= {"question_type": "free_form", "precision": float("nan")} | more
    return "mathvista", row, {"answer": answer, "answer_type": kind, "choices": more.get("choices")}


def mathvision(answer: str, kind: str, options: Sequence[str] = ()) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return a question of MathVision."""
    reference = {"answer": answer, "answer_type": kind, "choices": list(options) or None}
    return "mathvision_rules", {"answer": answer, "options": list(options)}, reference


QUESTIONS = (
    ("scienceqa", {"answer": 1, "choices": ANIMALS}, {"answer": "B", **CHOICE}, LETTERS),
    (
        *chartqa("40", "number"),
        NUMBERS
        | {
            "within 5 %": (["41", "38.5"], ["43", "37"]),
            "with a unit": (["40%", "$40", "40 million"], ["60%"]),
        },
    ),
    (*chartqa("1200", "number"), {"thousands": (["1,200", "1 200"], ["1,500", "1.2"])}),
    (*chartqa("25%", "number"), {"a reference in per cent": (["25%", "25 %", "25", "0.25"], ["0.3", "35%"])}),
    (
        *chartqa("Germany", "text"),
        {
            "the label": (["Germany"], ["France", ""]),
            "the label, dressed": (["germany", "Germany.", '"Germany"'], ["German"]),
            "a sentence": (["The answer is Germany."], ["It is France, and no other."]),
        },
    ),
    (*mathvista("oak tree", "text", "choice", choices=ANIMALS, question_type="multi_choice"), LETTERS),
    (*mathvista("40", "integer", "number"), NUMBERS | {"with a unit": (["40 cm"], ["60 cm"])}),
    (
        *mathvista("1.5", "float", "number", precision=1.0),
        {
            "the number": (["1.5"], ["1.6", "15"]),
            "more digits": (["1.50", "1.53"], ["1.57"]),
            "an expression": (["3/2"], ["2/3"]),
        },
    ),
    (*mathvista("[1, 3]", "list", "expression"), {"a list": (["[1, 3]", "[1,3]"], ["[3, 1]", "[1, 2]"])}),
    (*mathvision("B", "choice", ANIMALS), LETTERS | {"in a box": ([r"\boxed{B}"], [r"\boxed{A}"])}),
    (*mathvision("40", "number"), NUMBERS | {"in a box": ([r"\boxed{40}"], [r"\boxed{4}"])}),
    (
        *mathvision(r"\frac{3}{4}", "expression"),
        {
            "the expression": ([r"\frac{3}{4}"], [r"\frac{4}{3}"]),
            "an equal number": (["3/4", "0.75", r"\frac{6}{8}", "75%"], ["0.7", "4/3"]),
        },
    ),
    (
        *mathvision(r"2\sqrt{5}", "expression"),
        {
            "the expression": ([r"2\sqrt{5}"], [r"5\sqrt{2}"]),
            "an equal root": ([r"\sqrt{20}", r"2 \times \sqrt{5}"], [r"\sqrt{10}"]),
        },
    ),
)


def prepare() -> None:
    """Correct lmms-eval in this process, and let MathVista's judge extract each answer as it stands."""
    os.environ.setdefault("OPENAI_API_KEY", "EMPTY")  # a client is made at the import, and never used
    close_eval()
    from lmms_eval.tasks.mathvista.mathvista_evals import MathVistaEvaluator

    MathVistaEvaluator.extract_answer = lambda self, response, problem, quick_extract=False: response


def compared(all_cases: Sequence[Case]) -> list[list[Any]]:
    """Return a row for each benchmark and kind: answers, how often the two agree, the errors of each, and examples."""
    rows: dict[tuple[str, str], list[Any]] = {}
    for case in all_cases:
        ours, theirs = case.by_reward(), case.by_benchmark()
        row = rows.setdefault((case.benchmark, case.kind), [case.benchmark, case.kind, 0, 0, 0, 0, 0, 0, []])
        row[2] += 1
        row[3] += ours == theirs
        for place, found in ((4, ours), (6, theirs)):
            row[place] += found and not case.right
            row[place + 1] += case.right and not found
        if ours != theirs:
            row[8].append(f"{case.said} ({'reward' if ours else 'benchmark'})")
    return [[*row[:8], "; ".join(row[8])] for row in rows.values()]


HEAD = ["Benchmark", "Kind", "Answers", "Agree", "Reward: wrong as right", "right as wrong"]
HEAD += ["Benchmark: wrong as right", "right as wrong ", "Right for one alone"]


def main() -> None:
    """Print the table and its sums."""
    prepare()
    rows = compared(list(cases()))
    sums = [sum(row[place] for row in rows) for place in range(2, 8)]
    print_columns(
        "The rewards and the benchmarks' scorers", HEAD, [[*map(str, row)] for row in [*rows, ["all", "", *sums, ""]]]
    )


if __name__ == "__main__":
    main()
