"""How many labels of the mixture's reader are wrong, on problems of TabMWP whose true answers are known.

    python -m eval.benchmarks.labels --tabmwp problems.jsonl --show wrong

Each line of the file is a problem as JSON with `question`, `solution` and `answer`: lines made of the problems_*.json
of https://github.com/lupantech/PromptPG (CC BY-NC-SA 4.0, so no problem is in this repository). The reader gets the
question and the worked solution, as tabmwp(cauldron) has them, and no answer.
"""

import argparse
import json
from collections import Counter
from pathlib import Path

from scripts.mixture.conversations import Dropped, read_turn
from trl_vade.rewards.notation import normalised_text
from trl_vade.rewards.quantities import read_quantity


def verdict(problem: dict) -> tuple[str, str]:
    """Return "right", "wrong" or the reason why the row is dropped, and the label."""
    try:
        label = read_turn(f"<image>\n{problem['question']}", problem["solution"]).answer
    except Dropped as dropped:
        return str(dropped), ""
    return ("right" if same(label, problem["answer"]) else "wrong"), label


def same(label: str, answer: str) -> bool:
    """Tell whether label and answer are the same number, or else the same words; no rounding, unit or tolerance."""
    one, other = read_quantity(label), read_quantity(answer)
    if one is None or other is None:
        return normalised_text(label) == normalised_text(answer)
    return abs(one.value - other.value) <= 1e-9 * abs(other.value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tabmwp", type=Path, required=True, help="a file of problems, one as JSON on each line")
    parser.add_argument("--show", metavar="VERDICT", help="print the rows of a verdict, such as wrong or no_answer")
    options = parser.parse_args()
    found: Counter[str] = Counter()
    for line in options.tabmwp.read_text(encoding="utf-8").splitlines():
        problem = json.loads(line)
        name, label = verdict(problem)
        found[name] += 1
        if name == options.show:
            print(f"{problem['question']} | {problem['solution'][-120:]!r} | true {problem['answer']} | label {label}")
    kept = found["right"] + found["wrong"]
    print(f"{found.total():,} problems, {kept:,} kept, {found['wrong']:,} wrong ({found['wrong'] / max(kept, 1):.2%})")
    for name, number in sorted(found.items()):
        if name not in ("right", "wrong"):
            print(f"dropped, {name}: {number:,}")


if __name__ == "__main__":
    main()
