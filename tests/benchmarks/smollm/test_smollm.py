"""The benchmark with a real language model: its arithmetic, and the whole program in small."""

import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
import torch
import trl.trainer.utils
from transformers import AutoModelForCausalLM

from eval.benchmarks.smollm.__main__ import main
from eval.benchmarks.smollm.model import GGUF, TASKS, complete, exact_reward, load, prepare, questions, rows
from eval.benchmarks.smollm.study import parts_of_variance, useful_shares
from eval.benchmarks.smollm.train import ARMS, RATES, no_logits_of_prompts

pytestmark = [pytest.mark.benchmark, pytest.mark.filterwarnings("ignore:`past_key_values`")]


def test_the_variance_of_pass_rates_is_taken_apart():
    """Half of it is between two tasks that a word names, half between the rows of a task."""
    chance = np.random.default_rng(0)
    task = np.repeat(["sum", "product"], 1000)
    rates = np.repeat([0.7, 0.3], 1000) + np.tile([0.2, -0.2], 1000)
    texts = [f"the {word} of {number}" for number, word in enumerate(task)]
    found = parts_of_variance(chance.binomial(16, rates).astype(float), 16, texts, [*task], [*task])
    assert found["deviation"] ** 2 == pytest.approx(0.08, abs=0.005)
    assert [found[name] for name in ("words", "task")] == [pytest.approx(0.5, abs=0.06)] * 2


def test_draws_of_a_policy_that_stays_find_more_where_words_tell_the_task():
    rates = np.tile([0.0, 0.0, 0.0, 0.5], 64)
    texts = [f"{'easy' if rate else 'hard'} {number}" for number, rate in enumerate(rates)]
    found = useful_shares(rates, texts, 24, seed=0)
    first, last = ({name: each[at] for name, each in found.items()} for at in (0, -1))
    assert first["even"] == pytest.approx(0.25, abs=0.08)
    assert first["even"] < last["default, without words"]
    assert first["default, without words"] < first["default"]  # words tell at once
    assert last["default, without words"] < last["default"] + 0.1 <= last["oracle"] + 0.1


def test_the_first_token_of_an_answer_comes_with_its_probability(monkeypatch):
    monkeypatch.setattr("eval.benchmarks.smollm.model.LONGEST", 1)
    model, prompts = AutoModelForCausalLM.from_pretrained(load(tiny=True)), [[5, 6, 7], [8, 9, 10, 11, 12]]
    model.lm_head.weight.data *= 40  # a model that is sure of a few tokens
    found = complete(model, prompts, 400, torch.Generator().manual_seed(0), eos=1, pad=0)
    for prompt, answers in zip(prompts, found, strict=True):
        rates = model(torch.tensor([prompt])).logits[0, -1].softmax(-1)
        assert answers.count([rates.argmax()]) / 400 == pytest.approx(rates.max().item(), abs=0.1)


def test_answers_that_go_on_after_others_have_ended_are_those_of_transformers(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *kind, **how: nullcontext())  # bfloat16 ties tokens
    model = AutoModelForCausalLM.from_pretrained(load(tiny=True), dtype=torch.float32)
    model.lm_head.weight.data *= 1e6  # a model that is sure
    prompts, sizes = [[5, 6, 7], [8, 9, 10, 11, 12], [13]], {"min_new_tokens": 16, "max_new_tokens": 16}
    found = [model.generate(torch.tensor([each]), do_sample=False, **sizes)[0, -16:].tolist() for each in prompts]
    eos = next(token for token in found[0] if token not in found[1])
    expected = [each[: each.index(eos) + 1] if eos in each else each for each in found]
    assert len(expected[0]) < len(expected[1]) == 16
    assert complete(model, prompts, 2, torch.Generator(), eos=eos, pad=0) == [[each] * 2 for each in expected]


def test_the_head_of_a_model_reads_no_prompt():
    """On a CPU TRL's own loss takes logits of every position; where it no longer does, the program needs no patch."""
    model, (sizes, found) = AutoModelForCausalLM.from_pretrained(load(tiny=True)), ([], [])
    trl.trainer.utils.add_fused_lm_head(model)
    head = trl.trainer.utils._ChunkedLogProbFunction
    ids = torch.arange(16).view(2, 8)
    for context in (nullcontext(), no_logits_of_prompts()):
        with context, patch.object(head, "apply", wraps=head.apply) as applied:
            found.append(model(ids, labels=ids.where(torch.arange(8) > 5, -100), fused_lm_head=True).log_probs)
        sizes.append(len(applied.call_args.args[0]))
    assert sizes == [14, 4]
    torch.testing.assert_close(*found)


@pytest.fixture
def flags(tmp_path):
    made = [
        {"prompt": [{"role": "user", "content": f"What is {n}?"}], "answer": str(n), "task": "t", "level": 1 + n % 2}
        for n in range(64)
    ]
    (tmp_path / "rows.json").write_text(json.dumps({"pool": made, "score": made[:8], "taught": made[:32]}))
    return ["--tiny", "--packed", f"{tmp_path}", "--runs", f"{tmp_path}/runs", "--output", f"{tmp_path}/o.json"]


def odd_reward(completions, answer, **columns):
    texts = [each if isinstance(each, str) else each[0]["content"] for each in completions]
    return [float(len(text) % 2) for text in texts]


def test_the_program_in_small_goes_on_where_it_was(flags, capsys, tmp_path, monkeypatch):
    found = main(["study", *flags, "--seeds", "2"])
    assert found["rows"] == 64
    assert {*found["pass_rates"]} == {"t 1", "t 2"}
    for place in ("model", "train"):  # a random model has no right answer, and so no gradient
        monkeypatch.setattr(f"eval.benchmarks.smollm.{place}.exact_reward", odd_reward)
    shorter = ["train", *flags, "--every", "1", "--batches"]
    whole = main([*shorter, "2", "--runs", str(tmp_path / "whole")])
    main([*shorter, "1"])
    found = main([*shorter, "2"])
    assert [run["arm"] for run in found["runs"]] == [*ARMS]
    for run, other in zip(found["runs"], whole["runs"], strict=True):
        assert [point["batch"] for point in run["points"]] == [0, 1, 2]
        assert [point["rollouts"] for point in run["points"]] == [0, 256, 512]
        assert [point["score"] for point in run["points"]] == [point["score"] for point in other["points"]]
    weights = [path.read_bytes() for path in sorted(tmp_path.rglob("checkpoint-2/model.safetensors"))]
    assert weights[: len(ARMS)] == weights[len(ARMS) :]  # went on, and never stopped
    assert len({*weights}) > 1  # the arms have learned other things
    assert "default, replay: vanilla's last score with" in capsys.readouterr().out


def test_vanilla_and_the_default_are_tuned_alike_and_the_best_runs_on_every_seed(flags, monkeypatch):
    """A made-up score: vanilla is best at the higher rate, the default with more passes."""

    def scored(options, run, batches):
        best = run.rate == RATES[1] if run.arm == "vanilla" else run.passes == 4
        point = dict.fromkeys(("batch", "rollouts", "seconds", "generation", "update"), 1.0)
        return [point | {"rollouts": 256 * n, "score": n * best} for n in (0, 1)]

    monkeypatch.setattr("eval.benchmarks.smollm.train.train_one", scored)
    found = main(["train", *flags, "--tune_batches", "1", "--seeds", "2"])
    assert len(found["tuned"]) == 2 * 2 * len(RATES)
    best = {arm: (1, 4e-5) if arm == "vanilla" else (4, 1e-5) for arm in ARMS}
    runs = [(run["arm"], run["passes"], run["rate"], run["seed"]) for run in found["runs"]]
    assert runs == [(arm, *best[arm], seed) for seed in (1, 2) for arm in ARMS]


def test_a_step_of_a_learning_rate_moves_the_weights(flags):
    """In bfloat16 a step of 1e-5 moves 2 % of them."""
    options = SimpleNamespace(packed=Path(flags[2]), tiny=True, seed=0)
    weights = torch.cat([each.flatten() for each in prepare(options)[0].parameters()])
    assert (weights - RATES[0] != weights).float().mean() > 0.99


def test_weights_of_which_a_part_lacks_are_refused(tmp_path):
    (tmp_path / f"{GGUF}.1").write_bytes(b"GGUF")
    with pytest.raises(SystemExit, match=r"4 of 98,362,432 bytes"):
        load(tmp_path)


def test_rows_have_every_task_and_level_and_no_question_of_another_part():
    pytest.importorskip("reasoning_gym", reason="pip install reasoning-gym")
    taught = rows(96, 1)
    pool = rows(96, 0, frozenset(questions(taught)))
    assert {*zip(pool["task"], pool["level"], strict=True)} == {(t, n) for t in TASKS for n in (1, 2, 3, 4)}
    assert len({*questions(pool)}) == len(pool) == 96
    assert not {*questions(pool)} & {*questions(taught)}


def test_an_answer_is_right_to_the_letter():
    assert exact_reward([[{"content": " 12\n"}], "12."], ["12", "12"]) == [1.0, 0.0]
