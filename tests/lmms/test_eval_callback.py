"""`VADEEvalCallback` with the real lmms-eval inside real trainings of the testbed's Qwen2.5-VL."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import warnings
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.lmms import stand_ins
from tests.support.refusals import refused, says
from tests.support.runs import assert_equal_weights, logged, weights

pytestmark = pytest.mark.lmms
ROWS = 16
RUN = {
    "per_device_train_batch_size": 8,
    "num_generations": 4,
    "max_completion_length": 12,
    "max_steps": 4,
    "learning_rate": 1e-3,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "use_cpu": True,
    # The trainer's own evaluation, greedy: one completion a row.
    "num_generations_eval": 1,
    "per_device_eval_batch_size": ROWS,
    "generation_kwargs": {"top_k": 1},
}


@pytest.fixture(scope="module")
def make_trainer(tmp_path_factory):
    from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
    from trl_vade.testbed import exact_answer_reward, load_testbed_dataset, load_testbed_model

    rows, path = load_testbed_dataset(progress=False), str(load_testbed_model(progress=False))

    def make(**changes):
        args = VADEGRPOConfig(output_dir=str(tmp_path_factory.mktemp("run")), **(RUN | changes))
        validation = rows["validation"].select(range(ROWS))
        return VADEGRPOTrainer(path, exact_answer_reward, args, rows["train"], eval_dataset=validation)

    return make


@pytest.fixture(scope="module")
def runs(make_trainer):
    """The same training with sampled completions: without evaluations, and with one after every step."""
    from trl_vade.evaluation.callback import VADEEvalCallback
    from trl_vade.evaluation.settings import Generation

    generation, found = Generation(temperature=1.0, max_new_tokens=12), []
    for watched in (False, True):
        trainer = make_trainer(generation_kwargs=None)  # which seeds all generators
        if watched:
            trainer.add_callback(VADEEvalCallback(trainer, ["testbed"], every_steps=1, limit=8, generation=generation))
        trainer.train()
        found.append((trainer, random.random(), np.random.random(), torch.rand(1).item()))
    return found


def test_a_training_with_evaluations_is_bit_for_bit_the_one_without(runs):
    (plain, *numbers), (watched, *others) = runs
    assert numbers == others  # each generator is where it was
    assert_equal_weights(weights(plain), weights(watched))
    left, right = (trainer.selection.sampler.posterior for trainer in (plain, watched))
    assert np.array_equal(left.alpha, right.alpha)
    assert np.array_equal(left.beta, right.beta)
    for name in ("loss", "reward", "vade/effective_gradient_ratio"):
        assert logged(plain, name) == logged(watched, name)
        assert len(logged(plain, name)) == RUN["max_steps"]
    entries = [entry for entry in watched.state.log_history if "lmms/testbed" in entry]
    assert [entry["step"] for entry in entries] == [1, 2, 3, 4]
    assert all(0 <= entry["lmms/testbed"] <= 100 for entry in entries)


def test_the_score_of_a_task_is_the_trainers_own_validation_reward_for_the_same_completions(make_trainer):
    """Greedy completions of the same rows, of the weights as they are and of others."""
    from trl_vade.evaluation.callback import VADEEvalCallback

    trainer = make_trainer()
    callback = VADEEvalCallback(trainer, ["testbed"], every_steps=100, limit=ROWS, batch_size=ROWS)
    scores = [(callback.evaluate()["testbed"], 100 * trainer.evaluate()["eval_reward"])]
    with torch.no_grad():
        for weight in trainer.model.parameters():
            weight.add_(0.02 * torch.randn_like(weight))
    scores.append((callback.evaluate()["testbed"], 100 * trainer.evaluate()["eval_reward"]))
    assert [ours for ours, _ in scores] == [theirs for _, theirs in scores]
    assert len({ours for ours, _ in scores}) == 2, "the noise changed nothing, so the second is no other case"


@pytest.mark.parametrize("where", ["its questions", "its answers"])
def test_an_evaluation_that_fails_is_logged_and_the_training_goes_on_as_it_was(
    make_trainer, caplog, monkeypatch, where
):
    from trl_vade.evaluation import tasks as scoring
    from trl_vade.evaluation.callback import Policy, VADEEvalCallback

    def broken(*args):
        assert where == "its questions" or not args[1].is_gradient_checkpointing
        raise RuntimeError("out of order")

    trainer = make_trainer(max_steps=2, gradient_checkpointing=True)
    trainer.add_callback(VADEEvalCallback(trainer, ["testbed"], every_steps=1, limit=4))
    monkeypatch.setattr(*((scoring, "row_messages") if where == "its questions" else (Policy, "_answers")), broken)
    trainer.train()
    assert trainer.state.global_step == 2
    assert says(caplog.text, "step 1")
    assert says(caplog.text, "out of order")
    assert logged(trainer, "lmms/testbed") == []
    parts = [part for part in trainer.model.modules() if hasattr(part, "gradient_checkpointing")]
    assert parts
    assert all(part.gradient_checkpointing for part in parts)


def test_what_lmms_eval_sets_for_the_whole_process_is_put_back(monkeypatch):
    """Importing it reads a `.env` file, and one is imported in a process once: so this sets what it would."""
    from torch.distributed import distributed_c10d

    from trl_vade.evaluation.callback import unchanged_process

    monkeypatch.delenv("RANK", raising=False)
    before, patience, filters = dict(os.environ), distributed_c10d.default_pg_timeout, list(warnings.filters)
    with unchanged_process():
        assert os.environ["RANK"] == "0"
        os.environ.update(HF_TOKEN="hf_planted", VADE_PLANTED="1")
        os.environ.pop("PATH")
        distributed_c10d.default_pg_timeout = timedelta(seconds=60000)
        warnings.simplefilter("ignore")
    assert dict(os.environ) == before
    assert distributed_c10d.default_pg_timeout == patience
    assert warnings.filters == filters


def test_a_signal_during_an_evaluation_ends_it_and_the_last_checkpoint_is_written(make_trainer, caplog, monkeypatch):
    from trl_vade.evaluation.callback import Policy, VADEEvalCallback

    batches, answers = [], Policy._answers

    def signalled(policy, model, requests):
        batches.append(len(requests))
        os.kill(os.getpid(), signal.SIGTERM)
        return answers(policy, model, requests)

    trainer = make_trainer(save_strategy="steps", save_steps=100)
    trainer.add_callback(VADEEvalCallback(trainer, ["testbed"], every_steps=2, limit=8, batch_size=4))
    monkeypatch.setattr(Policy, "_answers", signalled)
    monkeypatch.setattr(signal, "raise_signal", batches.append)  # what would end this process
    trainer.train()
    assert batches == [4, signal.SIGTERM]
    assert trainer.state.global_step == 2
    assert (Path(trainer.args.output_dir) / "checkpoint-2" / "vade_posterior.safetensors").is_file()
    assert logged(trainer, "lmms/testbed") == []
    assert says(caplog.text, "step 2")


def test_two_processes_of_the_script_train_on_while_the_first_evaluates(tmp_path):
    """On rows of the user's, by the metric modules of `evaluate`: beside the script is another `evaluate`.

    There is no limit of time here, which a busy machine would exceed: processes that wait for each other end by
    themselves, with an error, after the given timeout.
    """
    rows, given = stand_ins.mixture(tmp_path / "rows"), {"lmms_steps": 1, "lmms_limit": 4, "max_steps": 1}
    given |= {"eval_strategy": "no", "eval_on_start": "false", "report_to": "none", "save_strategy": "no"}
    given |= {"output_dir": tmp_path / "out", "ddp_timeout": 600}
    options = ["--lmms_tasks", "testbed", "mixture", "--lmms_data", f"mixture={rows}"]
    options += [str(word) for name, value in given.items() for word in (f"--{name}", value)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = ["torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1", f"--master_port={port}"]
    script = Path(__file__).parents[2] / "scripts" / "train_vade.py"
    finished = subprocess.run([sys.executable, "-m", *launcher, script, *options], capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr[-3000:]
    assert finished.stderr.count("Postprocessing: 100%") == 2  # two benchmarks, in one process of the two
    history = json.loads((tmp_path / "out" / "trainer_state.json").read_text())["log_history"]
    for name in ("testbed", "mixture"):
        (score,) = [entry[f"lmms/{name}"] for entry in history if f"lmms/{name}" in entry]
        assert 0 <= score <= 100


def test_what_cannot_work_is_refused_when_it_is_made(make_trainer):
    from trl_vade.errors import ConfigurationError
    from trl_vade.evaluation.callback import VADEEvalCallback

    trainer = make_trainer()
    for tasks, name in ((["mathvista"], "mathvista"), (["chartqas"], "chartqas"), (["mixture"], "--data")):
        with refused(ConfigurationError, [name]):
            VADEEvalCallback(trainer, tasks, every_steps=1)
