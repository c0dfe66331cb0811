"""How often does the verdict of a reward differ from that of a careful person, and how long does it take?

    python -m eval.benchmarks.rewards --half report

`eval/rewards/cases.jsonl` has ordinary answers with the verdict of a person: 1.0 for right, 0.0 for wrong, null where
the reference itself cannot be read. The sentences were written for this table, in the forms of the sets that the
rewards are for. Each case was put into one of two halves at random (`random.Random(29)`) before the code was changed:
rules are developed on the half `develop`, and the half `report` is for the figures alone. The cases `later` were
written when the rules were done; what they showed was mended, too. So were `stranger`, by two others,
and `fresh`, after the mends for `stranger`.

Beside ours are math-verify alone and `trl.rewards.accuracy_reward`, which knows no choices, types and sources.
"""

import argparse
import json
import logging
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from math_verify import parse, verify
from trl.rewards import accuracy_reward as trl_reward

from trl_vade.rewards import accuracy_reward

CASES = Path(__file__).parents[1] / "rewards" / "cases.jsonl"
COLUMNS = ("answer", "answer_type", "choices", "source")
ERROR = "error"  # a verdict that no person has
Verdict = float | None | str


def read_cases(half: str = "all") -> list[dict[str, Any]]:
    """Return the cases of a half or of a part that was written afterwards, or "all"."""
    cases = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    return [case for case in cases if half in ("all", case["half"])]


def ours(case: dict[str, Any]) -> Verdict:
    return accuracy_reward([case["completion"]], **{name: [case.get(name)] for name in COLUMNS})[0]


def trl(case: dict[str, Any]) -> Verdict:
    return trl_reward([[{"content": text_of(case["completion"])}]], [str(case["answer"])])[0]


def math_verify(case: dict[str, Any]) -> Verdict:
    reference = parse(f"${case['answer']}$")
    return float(verify(reference, parse(text_of(case["completion"])))) if reference else None


def text_of(completion: str | list[dict[str, Any]]) -> str:
    """Return a completion as the text that a reward without turns reads."""
    return completion if isinstance(completion, str) else "\n".join(str(turn["content"]) for turn in completion)


CONTENDERS: dict[str, Callable[[dict[str, Any]], Verdict]] = {"ours": ours, "trl": trl, "math-verify": math_verify}


def verdicts(judge: Callable[[dict[str, Any]], Verdict], cases: list[dict[str, Any]]) -> list[Verdict]:
    """Return the verdict of each case, with `ERROR` for those that raise."""
    given: list[Verdict] = []
    for case in cases:
        try:
            given.append(judge(case))
        except Exception:
            given.append(ERROR)
    return given


def table(cases: list[dict[str, Any]], given: list[Verdict]) -> str:
    """Return the lines of a table: by kind, the cases, the disagreements, and of which sort they are."""
    counts: dict[str, Counter[str]] = defaultdict(Counter)
    for case, verdict in zip(cases, given, strict=True):
        sort = "agreed"
        if verdict != case["verdict"]:
            sort = "wrong earns 1" if verdict == 1.0 else "right earns 0" if case["verdict"] == 1.0 else "other"
        for kind in (case["kind"], "all"):
            counts[kind][sort] += 1
    lines = ["| kind | cases | disagree | wrong earns 1 | right earns 0 | other |", "| --- |" + " ---: |" * 5]
    for kind, sorts in sorted(counts.items(), key=lambda entry: entry[0] == "all"):
        total = sum(sorts.values())
        share = 100 * (total - sorts["agreed"]) / total
        others = " | ".join(str(sorts[sort]) for sort in ("wrong earns 1", "right earns 0", "other"))
        lines.append(f"| {kind} | {total} | {share:.1f} % | {others} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--half", choices=["develop", "report", "later", "stranger", "fresh", "all"], default="all")
    parser.add_argument("--show", action="store_true", help="list each case whose verdict differs")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    cases = read_cases(options.half)
    for name, judge in CONTENDERS.items():
        start = time.perf_counter()
        given = verdicts(judge, cases)
        print(f"\n{name}, half {options.half}: {time.perf_counter() - start:.1f} s\n\n{table(cases, given)}")
        if options.show:
            for case, verdict in zip(cases, given, strict=True):
                if verdict != case["verdict"]:
                    print(f"{verdict} for {case['verdict']}: {json.dumps(case, ensure_ascii=False)}")


if __name__ == "__main__":
    main()
