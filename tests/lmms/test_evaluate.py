"""`trl-vade evaluate` with the real lmms-eval: from a checkpoint to its published card, and what goes wrong.

The model is the testbed's, fine-tuned; the benchmarks are stand-ins of four rows in the benchmarks' own columns; judge
and Hub are on the loopback interface. One process of lmms-eval takes about ten seconds to start.
"""

import os
import shutil

import pytest
from huggingface_hub import HfApi

from tests.lmms import stand_ins
from tests.support.commands import run, said
from tests.support.hub import connected_hub
from tests.support.loopback_judge import LoopbackJudge
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.evaluation.results import read_results
from trl_vade.rewards.functions import INSTRUCTION
from trl_vade.testbed import exact_answer_reward, load_testbed_dataset, load_testbed_model

pytestmark = pytest.mark.lmms
STAND_INS = ("chartqa", "scienceqa", "mathvista", "mathverse", "mixture")
THREE = ("chartqa", "scienceqa", "mathvista")
SAMPLING = ("--temperature", "1.0", "--max_new_tokens", "12", "--model_args", "min_pixels=784")


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Folders of four rows each, by benchmark."""
    folder = tmp_path_factory.mktemp("rows")
    found = {name: getattr(stand_ins, name)(folder / name) for name in STAND_INS}
    return found


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """The testbed's model in a folder of its own."""
    return shutil.copytree(load_testbed_model(progress=False), tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def judge():
    with LoopbackJudge() as running:
        yield running


@pytest.fixture(autouse=True)
def good_judge(judge):
    yield
    judge.mode = "good"


def evaluate(model, output, rows, tasks, *options, judge=None):
    """The command, in this process; lmms-eval is in one of its own."""
    words = ["evaluate", str(model), "--output_path", str(output), "--tasks", ",".join(tasks), *SAMPLING]
    words += [word for name in tasks if name in rows for word in ("--data", f"{name}={rows[name]}")]
    words += ["--judge_url", judge.url, "--judge_model", judge.model] if judge else []
    return run(*words, *options)


@pytest.fixture(scope="module")
def published(tmp_path_factory, model, rows, judge):
    """A checkpoint on the Hub, evaluated by its id with four seeds, and its results there; a token is planted."""
    folder = tmp_path_factory.mktemp("published")
    output = folder / "results"
    with connected_hub(folder / "home") as hub, pytest.MonkeyPatch.context() as patch:
        HfApi().create_repo("you/tiny")
        HfApi().upload_folder(repo_id="you/tiny", folder_path=model)
        patch.setenv("HF_TOKEN", os.environ["HF_TOKEN"])
        result = evaluate("you/tiny", output, rows, THREE, "--push_to_hub", "you/tiny", judge=judge)
        assert result.exit_code == 0, result.output + result.stderr
        yield hub, output, result.output


def test_a_checkpoint_is_evaluated_with_four_seeds_and_the_table_has_the_mean_and_the_paper_beside(published):
    _, output, printed = published
    results = read_results(output)
    assert results["seeds"] == [0, 1, 2, 3]
    assert set(results["benchmarks"]) == set(THREE)
    for found in results["benchmarks"].values():
        scores = [run["score"] for run in found["runs"]]
        assert len(scores) == 4
        assert found["mean"] == pytest.approx(sum(scores) / 4)
        assert found["questions"] == 4
    assert "average@4" in printed
    assert "Published: " in printed
    assert results["versions"]["lmms-eval"] == "0.7.3"
    assert results["judge"]["model"] in printed


def test_the_score_of_the_testbed_is_the_trainers_own_validation_reward(model, rows, tmp_path):
    """Greedy ones, of rows in one batch. Of a user's rows the one whose reference cannot be read is left out."""
    options = ("--temperature", "0", "--limit", "16", "--batch_size", "16")
    result = evaluate(model, tmp_path / "out", rows, ["testbed", "mixture"], *options)
    assert result.exit_code == 0, result.output + result.stderr
    found = read_results(tmp_path / "out")["benchmarks"]
    one_each = {"num_generations_eval": 1, "per_device_eval_batch_size": 16, "max_completion_length": 12}
    greedy = {"generation_kwargs": {"top_k": 1}, "report_to": "none", "use_cpu": True}
    validation = load_testbed_dataset(progress=False)["validation"].select(range(16))
    args = VADEGRPOConfig(output_dir=str(tmp_path / "run"), **one_each, **greedy)
    trainer = VADEGRPOTrainer(str(model), exact_answer_reward, args, validation, eval_dataset=validation)
    assert found["testbed"]["mean"] == 100 * trainer.evaluate()["eval_reward"]
    assert 0 < found["testbed"]["mean"] < 100
    assert found["mixture"]["questions"] == 3


def test_a_row_with_its_picture_in_the_column_image_has_the_score_of_one_with_a_list(model, tmp_path):
    single, listed = (stand_ins.mixture(tmp_path / column, 16, column) for column in ("image", "images"))
    scores = []
    for folder in (single, listed):
        result = evaluate(model, folder / "out", {"mixture": folder}, ["mixture"], "--temperature", "0")
        assert result.exit_code == 0, result.output + result.stderr
        scores.append(read_results(folder / "out")["benchmarks"]["mixture"]["mean"])
    assert scores[0] == scores[1] > 0


def test_the_token_reaches_neither_lmms_eval_nor_any_file(published):
    hub, output, printed = published
    token = hub.token.encode()
    written = [path for path in output.rglob("*") if path.is_file()]
    assert [path for path in written if token in path.read_bytes()] == []
    assert [path for path, content in hub.repos["you/tiny"].files().items() if token in content] == []
    assert hub.token not in printed
    assert any(path.suffix == ".log" for path in written)


def test_a_judge_that_fails_on_the_way_ends_the_evaluation_and_publishes_nothing(judge, model, rows, hub, tmp_path):
    output = tmp_path / "out"
    judge.fail_after(4, "dead")  # two are the questions before the start
    options = ("--seeds", "0,1", "--push_to_hub", "you/bad")
    said(evaluate(model, output, rows, ["mathverse"], *options, judge=judge), 1, "is dead")
    assert "README.md" not in hub.repos["you/bad"].files()
    assert not (output / "results.json").exists()


class ServedModel(LoopbackJudge):
    """The judge's server as one of a model that sees: it notes what it is asked, and always answers the same."""

    def __init__(self):
        super().__init__("right", model="served")
        self.asked = []

    def _completion(self, mode, asked):
        self.asked.append(asked)
        texts = [part["text"] for part in asked["messages"][-1]["content"] if part["type"] == "text"]
        return super()._completion(mode, asked | {"messages": [{"role": "user", "content": "".join(texts)}]})


def served(server, rows, output, *options):
    words = ["evaluate", "served", "--output_path", str(output), "--tasks", "chartqa", *map(str, options)]
    words += ["--model_args", "max_retries=1", "--backend", "server", "--server_url", server.url]
    words += ["--data", f"chartqa={rows['chartqa']}"]
    return run(*words)


def test_a_running_server_is_asked_with_seed_settings_and_texts_and_its_failures_are_no_answers(rows, tmp_path):
    """Four questions with seed 0 are answered; of those with seed 1 the second is not."""
    options = ("--seeds", "0,1", "--temperature", 0.7, "--system_prompt", "Be brief.", "--instruction", "mixture")
    with ServedModel() as server:
        server.fail_after(5, "status500")
        said(served(server, rows, tmp_path / "out", *options), 1, "LMMS_EVAL_REQUEST_FAILED")
        first = server.asked[:4]
        assert {(asked["seed"], asked["temperature"], asked["max_tokens"]) for asked in first} == {(0, 0.7, 2048)}
        assert {asked["seed"] for asked in server.asked[4:]} == {1}
        for asked in first:
            system, user = asked["messages"]
            assert system == {"role": "system", "content": [{"type": "text", "text": "Be brief."}]}
            assert [part["type"] for part in user["content"]] == ["image_url", "text"]
            assert user["content"][1]["text"].endswith(f"\n\n{INSTRUCTION}")
    assert (tmp_path / "out" / "runs" / "chartqa-seed0").is_dir()  # is kept
    assert not (tmp_path / "out" / "results.json").exists()
