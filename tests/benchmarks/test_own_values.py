"""The benchmark of own values, cut short. Its timings are reported and never tested."""

import queue
import sys

from eval.benchmarks import own_values as benchmark
from eval.benchmarks.loading import photographs


def test_every_arm_loads_what_it_says_and_reports_its_figures(monkeypatch, capsys):
    def here(arm, files, num_generations):
        answer = queue.Queue()
        benchmark.measure(arm, files, num_generations, answer)
        return answer.get()

    monkeypatch.setattr(benchmark, "in_a_process", here)
    flags = ["--rows", "2", "--num_generations", "3", "--megapixels", "0.01", "--repeats", "2"]
    monkeypatch.setattr(sys, "argv", ["own_values.py", *flags])
    benchmark.main()
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]] == ["stock", "shared", "own"]


def test_the_arms_differ_in_what_the_completions_share():
    files = list(photographs(2, 0.01))
    arms = benchmark.loaders(benchmark.data_set(files), 2, 3)
    pictures = {arm: [row["images"][0] for row in load()] for arm, load in arms.items()}
    assert {arm: len({id(each) for each in some}) for arm, some in pictures.items()} == {
        "stock": 6,
        "shared": 2,
        "own": 6,
    }
    assert pictures["stock"] == pictures["own"] == pictures["shared"]
