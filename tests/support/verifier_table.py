"""`python -m tests.support.verifier_table`: the verifier cases as figures: verdicts by type, slow cases, throughput.

Wall seconds, the process that compares expressions included; it is started before the clock. The throughput is that of
plain answers, as most are; the table is full of hostile ones.
"""

import statistics
import time
from collections import Counter

from tests.support.verifier_cases import CASES
from trl_vade.rewards.expressions import JUDGE
from trl_vade.rewards.functions import accuracy_reward
from trl_vade.rewards.verifiers import ANSWER_TYPES, judge

PLAIN = {
    "choice": ("<think>{}</think><answer>B</answer>", "B", ["London", "Paris", "Rome"]),
    "number": ("<think>{}</think><answer>{} cm</answer>", "42", None),
    "text": ("<think>{}</think><answer>Mercury {}</answer>", "Mercury", None),
    "expression": (r"<think>{}</think><answer>{}\sqrt{{12}}</answer>", r"2\sqrt{3}", None),
}
THOUGHT = "The triangle has a right angle, so I square both sides and add them. " * 60


def main() -> None:
    judge("x", "1+x", "expression")
    timed = []
    wrong = 0
    for kind, case in CASES:
        start = time.perf_counter()
        verdict = judge(case.completion, case.answer, kind, case.choices, relaxed=case.relaxed)
        timed.append((time.perf_counter() - start, kind, case))
        wrong += verdict != case.verdict
    verdicts = Counter((kind, case.verdict) for kind, case in CASES)
    print(f"{len(CASES)} cases, {wrong} not as worked out by hand")
    print(
        "| type | right | wrong | not scored | median seconds | slowest |\n| --- | ---: | ---: | ---: | ---: | ---: |"
    )
    for kind in ANSWER_TYPES:
        seconds = [second for second, of, _ in timed if of == kind]
        counts = " | ".join(str(verdicts[kind, verdict]) for verdict in (1.0, 0.0, None))
        print(f"| {kind} | {counts} | {statistics.median(seconds):.5f} | {max(seconds):.2f} |")
    print(f"Ended by a limit of time or memory: {JUDGE.ended}. The slowest:")
    for second, kind, case in sorted(timed, key=lambda entry: -entry[0])[:5]:
        print(f"  {second:.2f} s  {kind}  {case.completion[:60]!r}")
    for kind, (completion, answer, choices) in PLAIN.items():
        completions = [completion.format(THOUGHT, number) for number in range(1024)]  # all different
        start = time.perf_counter()
        accuracy_reward(completions, [answer] * 1024, [kind] * 1024, [choices] * 1024)
        print(f"1,024 different plain answers of type {kind}: {time.perf_counter() - start:.2f} s")


if __name__ == "__main__":
    main()
