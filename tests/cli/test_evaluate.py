"""`trl-vade evaluate`: its options, what it refuses and how, and what it prints at the end."""

import inspect
import json
import signal
import sys
from pathlib import Path

import pytest

from tests.support.commands import run, said
from tests.support.evaluations import FILES, RUNNER, finish, install_lmms_eval, logs, write, write_runner
from tests.support.refusals import says
from trl_vade.cli.evaluate import evaluate
from trl_vade.evaluation.benchmarks import FIVE
from trl_vade.evaluation.results import read_results
from trl_vade.evaluation.settings import Evaluation, Generation
from trl_vade.rewards.functions import INSTRUCTION


@pytest.fixture(autouse=True)
def no_lmms_eval(tmp_path, monkeypatch):
    """In a folder of its own, without lmms-eval; the command's signal handlers do not outlive the test."""
    monkeypatch.setitem(sys.modules, "lmms_eval", None)
    monkeypatch.chdir(tmp_path)
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def model(tmp_path, monkeypatch):
    """A model's folder; lmms-eval seems to be installed, and its process leaves the runs in `made`."""
    monkeypatch.delitem(sys.modules, "lmms_eval")
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site"))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    write_runner(tmp_path, RUNNER)
    return write(tmp_path / "models" / "tiny", FILES)


def command(*options, model="you/model", tasks="chartqa"):
    return run("evaluate", model, "--output_path", "out", "--tasks", tasks, "--temperature", 0.6, *options)


def made(seeds=(0, 1), tasks=("chartqa",), limit=None):
    """Put the runs where lmms-eval's process finds them."""
    finish(Evaluation("", Path("made"), tasks=tasks, seeds=seeds, limit=limit, generation=Generation(0.6)))


def test_what_is_left_out_has_the_defaults_of_an_evaluation():
    options = {name: option.default for name, option in inspect.signature(evaluate).parameters.items()}
    evaluation, generation = Evaluation("m", Path("o")), Generation()
    assert tuple(options["tasks"].split(",")) == evaluation.tasks == FIVE
    assert tuple(map(int, options["seeds"].split(","))) == evaluation.seeds
    assert {name: options[name] for name in vars(generation)} == vars(generation)
    for name in ("backend", "limit", "server_url", "revision", "instruction", "system_prompt"):
        assert options[name] == getattr(evaluation, name), name


def test_what_cannot_work_is_one_message_that_names_the_option_and_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(install_lmms_eval(tmp_path / "site"))
    for words in (
        *(
            "--judge_url http://127.0.0.1:1/v1",
            "--judge_model judge",
            "--seeds 0,one",
            "--seeds 0.5",
            "--data chartqa",
        ),
        *("--data =rows", "--data mixture=rows", "--model_args max_pixels=9,device_map", "--backend sglang"),
        *("--push_to_hub you/model --limit 4", "--temperature hot", "--judge x", "--tasks mathvista"),
    ):
        text = said(command(*words.split()), 2, *words.split()[:1])
        assert text.count("Error:") == 1, words
        assert not Path("out").exists(), words
    said(run("evaluate", "you/model"), 2, "'--output_path'")


def test_at_the_end_the_table_is_printed_and_the_files_are_there(model, monkeypatch):
    made()
    words = ["trl-vade", "evaluate", str(model), "--output_path", "out", "--seeds", "0,1"]
    monkeypatch.setattr(sys, "argv", words)
    result = command("--seeds", "0,1", model=model)
    assert result.exit_code == 0, (result.output, result.exception)
    assert result.stdout.strip() == Path("out/results.md").read_text(encoding="utf-8").strip()
    assert "62.50" in result.stdout
    assert all(says(result.stderr, word) for word in ("chartqa", "seed 1", "50.00 %"))  # the bar
    assert read_results(Path("out"))["command"] == " ".join(words)


def test_every_option_reaches_the_evaluation(model, tmp_path):
    made(seeds=(3,), limit=4)
    options = ["--limit", 4, "--temperature", 0.7, "--top_p", 0.9, "--top_k", 20, "--max_new_tokens", 9]
    options += ["--seeds", 3, "--instruction", "mixture", "--system_prompt", "Be brief."]
    options += ["--batch_size", 3, "--model_args", "max_pixels=9,use_cache=true"]
    result = command(*options, model=model)
    assert result.exit_code == 0, (result.output, result.exception)
    plan = json.loads(Path("last-plan.json").read_text())
    assert (plan["instruction"], plan["system_prompt"]) == (INSTRUCTION, "Be brief.")
    assert plan["arguments"] == {"pretrained": str(model), "batch_size": 3, "max_pixels": 9, "use_cache": True}
    words = plan["runs"][0]["options"]
    given = dict(zip(words[:-1:2], words[1:-1:2], strict=True))
    assert given["--gen_kwargs"] == "temperature=0.7,top_p=0.9,top_k=20,max_new_tokens=9,repetition_penalty=1.0"
    assert (given["--seed"], given["--limit"], given["--batch_size"]) == ("3", "4", "3")


def test_the_results_are_published_where_that_was_asked_for(model, hub, monkeypatch):
    made()
    options = ["--push_to_hub", "you/tiny", "--hub_revision", "try", "--private"]
    result = command("--seeds", "0,1", *options, model=model)
    assert result.exit_code == 0, (result.output, result.exception)
    assert f"{hub.url}/you/tiny" in result.stdout
    assert hub.repos["you/tiny"].private
    assert "README.md" not in hub.repos["you/tiny"].files()
    files = hub.repos["you/tiny"].files("try")
    assert b"62.5" in files["README.md"]
    assert [path for path in files if path.endswith("/results.json")]

    def deleted_meanwhile(*arguments):
        del hub.repos["you/tiny"]

    monkeypatch.setattr("trl_vade.evaluation.measuring.evaluate", deleted_meanwhile)
    said(command("--seeds", "0,1", "--push_to_hub", "you/tiny", model=model), 1, "you/tiny", "404")
    assert not hub.repos  # it would be public


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_job_that_is_told_to_end_leaves_no_process_behind_and_can_be_continued(model, ctrl_c, number):
    """By a cluster, by a terminal that is closed, by Ctrl-C. lmms-eval's process is in a group of its own, and would
    not hear of it.
    """
    if number == signal.SIGHUP:
        signal.signal(number, signal.SIG_DFL)  # these tests may run under `nohup`
    made()
    code = f"if number: os.kill(os.getppid(), {int(number)}); time.sleep(600)"
    write_runner(model.parent.parent, RUNNER.replace("    print(", f"    {code}\n    print(", 1))
    result = command("--seeds", "0,1", model=model)
    assert result.exit_code == 128 + number, (result.output, result.exception)
    assert says(result.stderr, "same command")
    assert "Traceback" not in result.output
    assert not Path("out", "results.json").exists()
    write_runner(model.parent.parent, RUNNER)
    assert command("--seeds", "0,1", model=model).exit_code == 0
    done = logs(Evaluation("", Path("out")))
    assert sum(lines == ["evaluating chartqa-seed1"] for lines in done) == 1


def test_under_nohup_a_closed_terminal_ends_nothing(model):
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as `nohup` leaves it to the command
    made()
    code = "os.kill(os.getppid(), signal.SIGHUP)"
    write_runner(model.parent.parent, RUNNER.replace("    print(", f"    {code}\n    print(", 1))
    result = command("--seeds", "0,1", model=model)
    assert result.exit_code == 0, (result.output, result.exception)
    assert not says(result.stderr, "same command")
