"""The protocol for a GPU: its schedule, and the whole program with the tiny model. No timing is tested."""

import json

import pytest

from eval.benchmarks.gpu import __main__ as benchmark
from eval.benchmarks.gpu.parts import HELD, IMAGES_SCORED, KEPT, WHOLE
from eval.benchmarks.gpu.schedule import Schedule


class Clock:
    seconds = 100.0

    def __call__(self):
        return self.seconds


def test_a_part_that_would_end_too_late_is_left_out_and_a_shorter_kind_still_runs():
    clock, saved = Clock(), []
    schedule = Schedule(1.0, saved.append, clock)

    def work(seconds):
        clock.seconds += seconds
        return seconds

    for number in range(4):
        schedule.run("long", f"long {number}", work, 25)
    schedule.run("short", "short", work, 1)
    assert schedule.found["long"] == [25, 25]
    assert schedule.found["short"] == [1]
    assert schedule.found["left out"] == ["long 2", "long 3"]
    assert len(saved) == 3


def test_a_part_that_fails_is_named_and_the_others_run():
    schedule = Schedule(1.0, lambda found: None)

    def fails():
        raise RuntimeError("out of memory")

    schedule.run("memory", "memory, stock", fails)
    schedule.run("memory", "memory, live", lambda: 7)
    assert schedule.found["failed"] == {"memory, stock": "RuntimeError: out of memory"}
    assert schedule.found["memory"] == [7]


@pytest.mark.slow
def test_the_whole_program_runs_with_the_tiny_model(tmp_path, capsys):
    asked = [[{"role": "user", "content": str(n)}] for n in range(64)]
    rows = [{"prompt": prompt, "answer": "1", "task": "t", "level": 1} for prompt in asked]
    (tmp_path / "rows.json").write_text(json.dumps({"pool": rows, "score": rows[:8], "taught": rows[:16]}))
    benchmark.main(["--tiny", "--packed", str(tmp_path), "--output", str(tmp_path / "gpu.json")])
    found = json.loads((tmp_path / "gpu.json").read_text())
    assert found["failed"] == {}
    assert found["left out"] == []
    assert [(each["rows"], each["chosen"]) for each in found["selection"]] == [(9_471, 8), (1_000_000, 8)]
    [pictures] = found["pictures"]
    assert pictures["TRL"]["bytes"] == pictures["generations"] * pictures["once"]["bytes"] > 0

    stock, live = ({(line["phase"], line["part"]): line["bytes"] for line in run["lines"]} for run in found["memory"])
    assert stock.keys() == live.keys()
    assert min(*stock.values(), *live.values()) > 0
    bytes_a_parameter = [round(stock["training", part] / found["parameters"], 2) for part in HELD[:4]]
    assert bytes_a_parameter == [4, 8, 4, 4]  # float32: weights, two moments, reference model, gradients
    assert stock["scoring", IMAGES_SCORED] == 2 * stock["training", HELD[4]]
    assert stock["training", KEPT] > live["training", KEPT]
    for phase in ("training", "scoring"):
        assert stock[phase, WHOLE] > live[phase, WHOLE]
        assert stock[phase, WHOLE] > sum(stock["training", part] for part in HELD[:3])

    trained = {(each["share"], each["trainer"]): each["counts"]["completions"] for each in found["update"]}
    completions = found["sizes"]["rows"] * found["sizes"]["generations"]
    assert {trained[share, name] for share in benchmark.SHARES for name in ("stock", "vade")} == {completions}
    passes = completions // found["sizes"]["micro_batch"]  # a pass has one completion at least
    for share in benchmark.SHARES:
        assert trained[share, "lossless"] == max(round(share * completions), passes)

    assert [each["trainer"] for each in found["images"]] == [*benchmark.IMAGES]
    for each in found["images"]:
        assert each["counts"]["completions"] == completions
    ways = {each["trainer"]: each["counts"] for each in found["images"]}
    same = ("processed", "encoded by the trainer", "buffered")
    assert [ways["stock"][count] for count in same] == [ways["repeated"][count] for count in same]

    [smollm] = found["smollm"]
    assert [[point["rollouts"] for point in run["points"]] for run in smollm["runs"]] == [[0, 512]] * 9

    printed = capsys.readouterr().out
    for name in ("stock TRL", "trl_vade lossless", "log-probabilities", "1,000,000", "each 2 times"):
        assert name in printed
