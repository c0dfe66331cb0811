"""Whole runs of the trainer that push to a loopback Hub."""

import logging
import re
import shutil
import signal
import threading
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from datasets import load_dataset
from huggingface_hub import constants, snapshot_download
from peft import LoraConfig
from transformers import AutoModelForCausalLM, TrainerCallback

from tests.support.hub import offline
from tests.support.marks import slow
from tests.support.refusals import refused, says
from tests.support.runs import assert_equal_weights, says_a_digit, weights
from trl_vade import VADEGRPOTrainer, load_posterior
from trl_vade.checkpoints import JIT_MARK, look_at
from trl_vade.errors import ConfigurationError, HubError
from trl_vade.hub.staging import files_in
from trl_vade.samplers.snapshot import POSTERIOR_FILE

RUN, POSTERIOR = "you/run", "datasets/you/run-posterior"
COMMIT, COMMIT_OF_POSTERIOR = "POST /api/models/you/run/commit", "POST /api/datasets/you/run-posterior/commit"
PUSHING = {"push_to_hub": True, "hub_model_id": RUN, "save_strategy": "steps", "save_steps": 2, "max_steps": 4}


@pytest.fixture
def run(hub, text_model_path, text_rows, make_args):
    """Trains four steps on the text model with a save, and a push, at every second one."""

    def make(callbacks=(), resume=None, peft_config=None, **settings):
        args, more = make_args(**PUSHING | settings), {"callbacks": [*callbacks], "peft_config": peft_config}
        make.trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, **more)
        make.trainer.train(resume_from_checkpoint=resume)
        return make.trainer

    return make


@pytest.fixture
def out(tmp_path):
    return tmp_path / "out"


class Until(TrainerCallback):
    """Holds an answer of the Hub back until the save of step 4 is over."""

    def __init__(self):
        self.event = threading.Event()

    def on_push_begin(self, args, state, control, **kwargs):
        """With `enable_jit_checkpoint` transformers 5.23 takes its mark away only after the push was asked for."""
        (Path(args.output_dir) / f"checkpoint-{state.global_step}" / JIT_MARK).touch()

    def on_train_end(self, args, state, control, **kwargs):
        self.event.set()


def commits(hub, key=RUN, revision="main"):
    """The commits from the first of ours to the newest."""
    return list(reversed(hub.repos[key].history(revision)))[1:]


def titles(hub, key=RUN, revision="main"):
    return [commit.title for commit in commits(hub, key, revision)]


def folders(files):
    return sorted({path.split("/")[0] for path in files if "/" in path})


def assert_model(files, checkpoint):
    """The weights in the root and the posterior beside them are those of the checkpoint."""
    for name in ("model.safetensors", POSTERIOR_FILE):
        assert files[name] == (checkpoint / name).read_bytes()
    assert {"config.json", "tokenizer.json", "README.md"} <= files.keys()
    assert not {"optimizer.pt", "trainer_state.json", "rng_state.pth", "training_args.bin"} & files.keys()
    assert not {"vade_rows.json", "vade_report.html", "vade_run.json", "vade_lock.json"} & files.keys()  # private


def assert_whole(files, folder, checkpoint):
    """A folder of the repository is the checkpoint, file by file, but for what no resume reads."""
    there = {path.removeprefix(f"{folder}/"): data for path, data in files.items() if path.startswith(f"{folder}/")}
    here = {path: file for path, file in files_in(checkpoint).items() if path not in (JIT_MARK, "training_args.bin")}
    assert there == {path: file.read_bytes() for path, file in here.items()}
    assert "trainer_state.json" in there
    with TemporaryDirectory() as downloaded:
        for path, data in there.items():
            (Path(downloaded) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(downloaded) / path).write_bytes(data)
        assert look_at(Path(downloaded)).fault is None


def newest_posterior(hub):
    """The step of the newest posterior, on which all readers agree."""
    files = hub.repos[POSTERIOR].files()
    step = load_posterior("you/run-posterior").metadata["global_step"]
    assert folders(files)[-1] == f"step-{step:06d}"
    assert f"data_files: step-{step:06d}/posterior.parquet" in files["README.md"].decode().split("- config_name")[1]
    return step


@pytest.mark.parametrize(
    ("strategy", "first", "last"),
    [
        slow("every_save", [], []),
        slow("checkpoint", ["last-checkpoint"], ["last-checkpoint"]),
        ("all_checkpoints", ["checkpoint-2"], ["checkpoint-2", "checkpoint-4"]),
    ],
)
def test_each_save_is_one_commit(hub, run, out, strategy, first, last, capsys, monkeypatch, tmp_path):
    """By Xet, too. Files behind a link do not go along, but a checkpoint that was moved away does."""
    monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", False)
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "id_rsa").write_text("secret")
    (out / "notes").mkdir(parents=True)
    (out / "notes" / "mine.txt").write_text("mine")
    for folder in (out, out / "notes"):
        (folder / "data").symlink_to(tmp_path / "home")
        (folder / "key").symlink_to(tmp_path / "home" / "id_rsa")
    waiting = Until()
    # The second save comes while the first is being sent, and before the client has read its files.
    hub.fault("POST /api/models/you/run/preupload", hold=waiting.event)
    trainer = run([waiting], hub_strategy=strategy)
    assert titles(hub) == [f"Training in progress, step {step}" for step in (2, 4)]
    events = re.findall(r"'Training in progress, step (\d)' is on the Hub: (\S+)", capsys.readouterr().out)
    assert events == [("2", trainer.hub_model_id), ("4", trainer.hub_model_id)]
    for commit, step, found in zip(commits(hub), (2, 4), (first, last), strict=True):
        assert_model(commit.files, out / f"checkpoint-{step}")
        assert folders(commit.files) == sorted([*found, "notes"])
        assert [path for path, data in commit.files.items() if data in (b"secret", b"mine")] == ["notes/mine.txt"]
        assert commit.files["vade_selection.jsonl"].count(b"\n") == step  # a file that grows
        assert not [path for path in commit.files if JIT_MARK in path]
        for folder in found:
            assert_whole(commit.files, folder, out / folder.replace("last-checkpoint", f"checkpoint-{step}"))
    assert not [*out.glob("_hub*")]
    assert hub.xorbs
    moved = shutil.move(out / "checkpoint-4", tmp_path / "disk")
    (out / "checkpoint-4").symlink_to(moved)
    trainer.push_to_hub()
    for folder in last[-1:]:
        assert_whole(hub.repos[RUN].files(), folder, moved)


@pytest.mark.slow
def test_a_model_is_pushed_with_the_arguments_of_the_call_though_the_settings_did_not_say_so(hub, run, out):
    trainer = run(push_to_hub=False, save_strategy="no")
    assert hub.repos == {}
    trainer.push_to_hub("After all", private=True, dataset_name="you/rows", tags="mine")
    files = hub.repos[RUN].files()
    assert (titles(hub), hub.repos[RUN].private) == (["After all"], True)
    assert_equal_weights(AutoModelForCausalLM.from_pretrained(RUN).state_dict(), weights(trainer))
    assert "you/rows" in files["README.md"].decode()
    assert "- mine" in files["README.md"].decode()
    here = {"vade_rows.json", "vade_report.html", "vade_run.json"}  # rows of the data and paths of this machine
    assert here <= {path.name for path in out.iterdir()}
    assert not here & files.keys()
    assert "vade_report.png" in files
    assert [path for path, data in files.items() if str(out).encode() in data] == []
    future = trainer.push_to_hub(blocking=False, revision="exp")
    assert future.result(timeout=30).oid == hub.repos[RUN].branches["exp"]
    cards = [hub.repos[RUN].files(branch)["README.md"].decode() for branch in ("main", "exp")]
    assert ['revision="exp"' in card for card in cards] == [False, True]
    assert trainer.publication.model.revision is None


@pytest.mark.slow
def test_organisations_private_repositories_and_branches_are_made_for_both(hub, run):
    where = {"hub_model_id": "acme/run", "hub_revision": "seed-3", "hub_private_repo": True}
    run(**where, vade_posterior_hub_id="acme/beliefs")
    posterior = "datasets/acme/beliefs"
    assert {key: repo.private for key, repo in hub.repos.items()} == {"acme/run": True, posterior: True}
    assert load_posterior("acme/beliefs@seed-3").metadata["global_step"] == 4
    assert titles(hub, "acme/run", "seed-3")[-1] == "Training in progress, step 4"
    assert '"acme/run", revision="seed-3"' in hub.repos["acme/run"].files("seed-3")["README.md"].decode()
    assert (titles(hub, "acme/run"), titles(hub, posterior)) == ([], [])


def test_posteriors_are_in_their_own_repository_with_the_names_of_their_rows(hub, run):
    trainer = run()
    assert newest_posterior(hub) == 4
    newest, earlier = load_posterior("you/run-posterior"), load_posterior("you/run-posterior", step=2)
    assert (newest.metadata["rollouts"], earlier.metadata["rollouts"]) == (64, 32)
    posterior = trainer.selection.sampler.posterior
    assert newest.index.tolist() == [row for row in range(24) if posterior.visits[row]]
    assert newest.pass_rate.tolist() == posterior.posterior_mean[newest.index].tolist()
    table = load_dataset("you/run-posterior", split="train")
    assert (table["index"], table["sample_id"]) == (newest.index.tolist(), [f"row-{row}" for row in newest.index])


def test_a_run_that_begins_anew_takes_the_place_of_an_earlier_one(hub, run, caplog, tmp_path):
    run(hub_strategy="all_checkpoints")
    hub.fault(COMMIT, status=500, times=3)  # its second push is the first to arrive
    run(hub_strategy="checkpoint", output_dir=str(tmp_path / "other"), max_steps=3, save_steps=1)
    assert folders(hub.repos[RUN].files()) == ["last-checkpoint"]
    assert folders(hub.repos[POSTERIOR].files()) == [f"step-00000{step}" for step in (1, 2, 3)]
    assert newest_posterior(hub) == 3
    assert says(caplog.text, "checkpoint-2, checkpoint-4")


def test_a_posterior_has_the_names_of_its_own_rows_whatever_comes_next(hub, run, text_rows):
    trainer = run(max_steps=2)
    trainer.train_dataset = text_rows.select(range(23, -1, -1))
    trainer.push_to_hub()
    table = load_dataset("you/run-posterior", split="train")
    assert table["sample_id"] == [f"row-{row}" for row in table["index"]]


def test_another_training_of_a_trainer_is_pushed_from_its_own_folder(hub, run, tmp_path):
    trainer = run(hub_strategy="checkpoint", max_steps=2)
    trainer.args.output_dir = str(tmp_path / "other")
    trainer.train()
    assert hub.repos[RUN].files()["vade_selection.jsonl"] == (tmp_path / "other" / "vade_selection.jsonl").read_bytes()


def test_the_card_of_an_adapter_is_that_of_its_run(hub, run):
    """PEFT writes an empty one into each checkpoint."""
    run(max_steps=2, peft_config=LoraConfig(target_modules="all-linear"))
    files = hub.repos[RUN].files()
    assert "adapter_model.safetensors" in files
    assert f"datasets/{RUN}-posterior" in files["README.md"].decode()


class LoseTheBest(TrainerCallback):
    def on_save(self, args, state, control, **kwargs):
        if state.global_step == state.max_steps:
            shutil.rmtree(state.best_model_checkpoint)


@pytest.mark.slow
def test_a_best_checkpoint_that_is_gone_ends_no_run(hub, text_model_path, text_rows, make_args, caplog, out, tmp_path):
    """In the run itself, and in one that is downloaded, with which it was not pushed."""

    def make(*callbacks, **settings):
        best = {"load_best_model_at_end": True, "eval_strategy": "steps", "metric_for_best_model": "eval_score"}
        args = make_args(**PUSHING | best | {"eval_steps": 2, "save_total_limit": 1} | settings)
        rows = {"train_dataset": text_rows, "eval_dataset": text_rows.select(range(4))}
        falling = iter((3.0, 2.0, 1.0))
        score = {"compute_metrics": lambda _: {"score": next(falling)}}
        return VADEGRPOTrainer(text_model_path, says_a_digit, args, callbacks=[*callbacks], **rows, **score)

    trainer = make(LoseTheBest(), hub_strategy="checkpoint")
    assert says(caplog.text, "all_checkpoints")
    trainer.train()
    assert says(caplog.text, f"{out}/checkpoint-2")
    caplog.clear()
    trainer = make(output_dir=snapshot_download(RUN, local_dir=tmp_path / "downloaded"), max_steps=6)
    assert not says(caplog.text, "all_checkpoints")
    trainer.train(resume_from_checkpoint="auto")
    assert trainer.state.global_step == 6
    assert says(caplog.text, f"{out}/checkpoint-2")


@pytest.mark.slow
def test_a_last_state_that_is_not_on_the_hub_is_an_error_until_it_is_pushed_again(hub, run, out):
    fault = hub.fault(COMMIT, status=507, reason="No room left", times=1000)
    with refused(HubError, names=["No room left"], offers=["trainer.push_to_hub()"]) as raised:
        run(hub_strategy="checkpoint")
    assert raised.value.status == 507
    with pytest.raises(HubError):
        run.trainer.save_model()
    fault.times = 0
    run.trainer.push_to_hub()
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", out / "checkpoint-4")
    assert_model(hub.repos[RUN].files(), out / "checkpoint-4")
    assert not [*out.glob("_hub*")]


@pytest.mark.slow
def test_an_old_failure_does_not_end_a_training_that_goes_on(hub, run):
    """`save_model`, called by a callback, pushes (transformers 5.23) and waits."""

    class SaveInBetween(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                run.trainer.save_model(f"{args.output_dir}/best")

    hub.fault(COMMIT_OF_POSTERIOR, status=403, times=100)
    with refused(HubError, names=["you/run-posterior", 403]):
        run([SaveInBetween()], hub_strategy="checkpoint")
    assert run.trainer.state.global_step == 4
    assert "Model save" in titles(hub)


def test_a_posterior_that_nobody_keeps_has_no_repository(hub, run, text_model_path, text_rows, make_args):
    plain = {"vade_sampler": "uniform", "shuffle_dataset": False}
    args = make_args(**plain, push_to_hub=True, vade_posterior_hub_id="you/beliefs")
    with refused(ConfigurationError, names=["vade_posterior_hub_id", "shuffle_dataset"]):
        VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    assert hub.requests == []
    run(**plain)
    assert list(hub.repos) == [RUN]


def test_a_run_that_lost_its_choice_with_its_rows_pushes_the_model_alone(hub, text_model_path, text_rows, make_args):
    for steps in (2, 4):
        args = make_args(**PUSHING | {"max_steps": steps}, hub_strategy="checkpoint")
        trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
        trainer.train_dataset = list(text_rows)
        trainer.train("auto")
    assert titles(hub) == ["Training in progress, step 2", "Training in progress, step 4"]
    assert titles(hub, POSTERIOR) == []
    files = hub.repos[RUN].files()
    assert not [path for path in files if "posterior" in path]
    assert "-posterior" not in files["README.md"].decode()


@pytest.mark.slow
def test_offline_the_run_goes_on_and_a_later_start_with_a_network_sends_it(hub, run, caplog, out):
    with offline(), caplog.at_level(logging.WARNING):
        run(hub_strategy="checkpoint")
    assert hub.requests == []
    assert says(caplog.text, "HF_HUB_OFFLINE")
    run(hub_strategy="checkpoint", resume=True)
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", out / "checkpoint-4")
    assert newest_posterior(hub) == 4
    assert not [*out.glob("_hub*")]


def test_an_interrupted_run_is_on_the_hub_before_the_signal_takes_its_course(hub, run, ctrl_c, tmp_path):
    class Interrupt(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 2:
                signal.raise_signal(signal.SIGINT)

    hub.fault(COMMIT, status=500, times=3)  # all attempts of the push; the end of the run makes another
    with pytest.raises(KeyboardInterrupt):
        run([Interrupt()], save_steps=100, hub_strategy="checkpoint", max_steps=6)
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", tmp_path / "out" / "checkpoint-3")


def test_a_login_that_may_not_write_is_refused_before_the_model_is_loaded(hub, text_rows, make_args, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_read_only")
    with refused(HubError, [403], ["write access"]):
        VADEGRPOTrainer("no-such-model", says_a_digit, make_args(**PUSHING), text_rows)


def test_the_token_is_in_no_file_no_log_and_no_commit(hub, run, caplog, capfd, tmp_path):
    hub.fault(COMMIT, status=500, times=3)
    with caplog.at_level(logging.DEBUG):
        trainer = run(hub_strategy="all_checkpoints")
        trainer.push_to_hub()
        hub.fault("preupload", status=403, times=100)
        with pytest.raises(HubError):
            trainer.push_to_hub(commit_message="refused")
    secret = hub.token.encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if secret in path.read_bytes()] == []
    history = [commit for repo in hub.repos.values() for commit in repo.history()]
    pushed = [data for commit in history for data in (*commit.files.values(), commit.title.encode())]
    assert len(pushed) > 50
    assert not any(secret in data for data in pushed)
    output = capfd.readouterr()
    assert hub.token not in caplog.text + output.out + output.err
    assert hub.tokens == {hub.token}  # it was used
