"""Whole runs of the trainer that push to a loopback Hub."""

import json
import logging
import re
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
from huggingface_hub import HfApi, snapshot_download
from transformers import AutoModelForCausalLM, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

from tests.support.hub import offline
from tests.support.marks import slow
from tests.support.refusals import refused
from tests.support.runs import SMALL_RUN, assert_equal_weights, assert_same_end, says_a_digit, train, weights
from trl_vade import VADEGRPOTrainer, load_posterior, load_snapshot
from trl_vade.errors import ConfigurationError, HubError
from trl_vade.hub import staging
from trl_vade.hub import uploading as hub_module
from trl_vade.hub.push_queue import PushQueue
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.trainer.checkpoint.folders import complete_checkpoints
from trl_vade.trainer.checkpoint.marker import JIT_MARK
from trl_vade.trainer.publishing import publication, publishing_trainer

RUN, BELIEFS = "you/run", "datasets/you/beliefs"
COMMIT = "POST /api/models/you/run/commit"
PUSHING = {"push_to_hub": True, "hub_model_id": RUN, "save_strategy": "steps", "save_steps": 2, "max_steps": 4}


pytestmark = pytest.mark.usefixtures("plain_pictures")


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    monkeypatch.setattr(hub_module, "PATIENCE", (0.0, 0.0))


@pytest.fixture
def run(hub, text_model_path, text_rows, make_args):
    """Trains four steps on the text model with a save, and a push, at every second one."""

    def make(callbacks=(), **settings):
        return train(text_model_path, text_rows, make_args(**{**PUSHING, **settings}), callbacks=[*callbacks])

    return make


@pytest.fixture
def step_4_waits(monkeypatch):
    """An event: the pushes of step 4 are waiting behind those of step 2. Until then an answer can be held back."""
    put, event = PushQueue.put, threading.Event()

    def noting(self, push, *arguments, **named):
        entry = put(self, push, *arguments, **named)
        if push.message.endswith("step 4"):
            event.set()
        return entry

    monkeypatch.setattr(PushQueue, "put", noting)
    return event


class KeepTrainer(TrainerCallback):
    """Keeps the trainer of a run that ends in an error."""

    def on_train_begin(self, args, state, control, **kwargs):
        frame = sys._getframe()
        while not isinstance(frame.f_locals.get("self"), VADEGRPOTrainer):
            frame = frame.f_back
        KeepTrainer.trainer = frame.f_locals["self"]


def commits(hub, key=RUN, revision="main"):
    """The commits from the first of ours to the newest."""
    return list(reversed(hub.repos[key].history(revision)))[1:]


def step_of(files, folder=""):
    """The optimiser step that the posterior in a commit is of."""
    header = files[f"{folder}{POSTERIOR_FILE}"][8:].split(b'},"')[0].decode() + "}}"
    return json.loads(json.loads(header)["__metadata__"]["vade_posterior"])["metadata"]["run"]["global_step"]


def folders(files):
    return sorted({path.split("/")[0] for path in files if "/" in path})


def assert_whole(files, folder, step):
    """A checkpoint that resumes: the files that its marker names are there, and all are of one step."""
    state, marker = (json.loads(files[f"{folder}/{name}.json"]) for name in ("trainer_state", "vade_checkpoint"))
    sizes = {name: size for name, (size, _) in marker["files"].items()}
    assert {name: len(files[f"{folder}/{name}"]) for name in sizes} == sizes
    assert (state["global_step"], step_of(files, f"{folder}/")) == (step, step)


@pytest.mark.parametrize(
    ("strategy", "checkpoints"),
    [
        slow("every_save", [[], []]),
        slow("checkpoint", [["last-checkpoint"], ["last-checkpoint"]]),
        ("all_checkpoints", [["checkpoint-2"], ["checkpoint-2", "checkpoint-4"]]),
    ],
)
def test_each_push_is_one_commit_with_the_posterior_of_its_step(hub, run, step_4_waits, strategy, checkpoints, capsys):
    hub.fault(COMMIT, hold=step_4_waits)  # the push of the second save comes while the first is being sent
    trainer = run(hub_strategy=strategy)
    steps = [2, 4]
    events = re.findall(r"'Training in progress, step (\d)' is on the Hub: (\S+)", capsys.readouterr().out)
    assert [(int(step), repository) for step, repository in events] == [(step, trainer.hub_model_id) for step in steps]
    assert [commit.title for commit in commits(hub)] == [f"Training in progress, step {step}" for step in steps]
    for commit, step, found in zip(commits(hub), steps, checkpoints, strict=True):
        assert folders(commit.files) == found
        assert step_of(commit.files) == step
        assert {"model.safetensors", "config.json", "tokenizer.json", "README.md"} <= commit.files.keys()
        for folder in found:
            assert_whole(commit.files, folder, int(folder.split("-")[1]) if strategy == "all_checkpoints" else step)
            if strategy == "checkpoint" or folder == f"checkpoint-{step}":
                assert commit.files[f"{folder}/model.safetensors"] == commit.files["model.safetensors"]
                assert commit.files[f"{folder}/{POSTERIOR_FILE}"] == commit.files[POSTERIOR_FILE]
    assert not (Path(trainer.args.output_dir) / "_hub").exists()


@pytest.mark.slow
def test_with_the_strategy_end_nothing_is_pushed_before_it_is_asked_for(hub, run):
    trainer = run(hub_strategy="end", vade_posterior_hub_id="you/beliefs")
    assert (commits(hub), commits(hub, BELIEFS)) == ([], [])
    pushed = trainer.push_to_hub()
    assert [commit.title for commit in commits(hub)] == ["End of training"]
    assert pushed.oid == hub.repos[RUN].branches["main"]
    assert step_of(hub.repos[RUN].files()) == 4
    assert hub.repos[BELIEFS].tags.keys() == {"step-000004"}


@pytest.mark.slow
def test_pushing_without_having_said_so_before_works_too(hub, run):
    trainer = run(push_to_hub=False)
    assert hub.repos == {}
    trainer.push_to_hub(commit_message="After all")
    assert [commit.title for commit in commits(hub)] == ["After all"]
    assert step_of(hub.repos[RUN].files()) == 4


@pytest.mark.slow
def test_a_model_is_saved_and_set_aside_though_its_repository_cannot_be_made(hub, run, tmp_path):
    trainer = run(push_to_hub=False, save_strategy="no", hub_model_id=None)
    hub.fault("POST /api/repos/create", status=503, times=100)
    with refused(HubError, names=[503], offers=["hf upload out"]) as raised:
        trainer.push_to_hub()
    command = re.search(r"hf upload out (\S+) \.", str(raised.value))
    assert step_of({path.name: path.read_bytes() for path in Path(command[1]).iterdir()}) == 4
    hub.faults.clear()
    trainer.push_to_hub()
    assert step_of(hub.repos["you/out"].files()) == 4
    assert not (tmp_path / "out" / "_hub").exists()


@pytest.mark.slow
def test_a_push_that_is_not_waited_for_is_a_future(hub, run):
    trainer = run(push_to_hub=False)
    future = trainer.push_to_hub(blocking=False)
    assert future.result(timeout=30).oid == hub.repos[RUN].branches["main"]


@pytest.mark.slow
def test_the_old_checkpoint_leaves_nothing_in_the_new_one(hub, run, tmp_path):
    hub.add_repo(RUN)
    repo = hub.repos[RUN]
    repo.add(
        "main", "by two processes", "", repo.files() | {"last-checkpoint/rng_state_1.pth": b"old", "mine.txt": b""}
    )
    run(hub_strategy="checkpoint")
    assert "last-checkpoint/rng_state_1.pth" not in repo.files()
    assert "mine.txt" in repo.files()


@pytest.mark.slow
def test_a_branch_that_is_not_there_is_made(hub, run):
    run(hub_revision="seed-3")
    assert [commit.title for commit in commits(hub, revision="seed-3")][-1] == "Training in progress, step 4"
    assert '"you/run", revision="seed-3"' in hub.repos[RUN].files("seed-3")["README.md"].decode()
    assert commits(hub) == []


@pytest.mark.slow
def test_a_card_names_the_branch_that_it_is_pushed_to(hub, run):
    trainer = run(push_to_hub=False, save_strategy="no")
    trainer.push_to_hub(revision="main")
    hub.repos[RUN].branches["exp"] = hub.repos[RUN].branches["main"]
    trainer.push_to_hub(revision="exp")
    cards = [hub.repos[RUN].files(branch)["README.md"].decode() for branch in ("main", "exp")]
    assert ['revision="exp"' in card for card in cards] == [False, True]
    assert trainer.publication.revision is None


@pytest.mark.slow
def test_an_organisation_and_a_private_repository(hub, run):
    hub.orgs = ("acme",)
    run(hub_model_id="acme/run", vade_posterior_hub_id="acme/beliefs", hub_private_repo=True)
    assert {key: repo.private for key, repo in hub.repos.items()} == {"acme/run": True, "datasets/acme/beliefs": True}
    assert load_posterior("acme/beliefs").metadata["global_step"] == 4


def test_the_posterior_of_each_save_is_in_its_own_repository(hub, run):
    trainer = run(push_to_hub=False, vade_posterior_hub_id="you/beliefs")
    assert hub.repos.keys() == {BELIEFS}
    assert hub.repos[BELIEFS].tags.keys() == {"step-000002", "step-000004"}
    newest, earlier = load_posterior("you/beliefs"), load_posterior("you/beliefs@step-000002")
    assert (newest.metadata["global_step"], earlier.metadata["global_step"]) == (4, 2)
    posterior = trainer.selection.sampler.posterior
    assert newest.index.tolist() == [row for row in range(24) if posterior.visits[row]]
    assert newest.sample_id == [f"row-{row}" for row in newest.index]
    assert newest.pass_rate.tolist() == posterior.posterior_mean[newest.index].tolist()
    assert newest.metadata["num_generations"] == 4


def test_a_posterior_that_arrives_late_is_not_the_latest(hub, run, step_4_waits):
    # All attempts of the first one, of which none is answered before the second one is waiting behind it.
    hub.fault("POST /api/datasets/you/beliefs/commit", status=503, times=3, hold=step_4_waits)
    run(push_to_hub=False, vade_posterior_hub_id="you/beliefs")
    assert hub.repos[BELIEFS].tags.keys() == {"step-000002", "step-000004"}
    assert [commit.title for commit in commits(hub, BELIEFS)] == ["Posterior at step 4", "Posterior at step 2"]
    assert load_posterior("you/beliefs").metadata["global_step"] == 4
    pictures = [commit.files["pass_rates.png"] for commit in commits(hub, BELIEFS)]
    assert pictures[0] == pictures[1]
    assert load_posterior("you/beliefs", step=2).metadata["global_step"] == 2


@pytest.mark.slow
def test_a_run_that_was_downloaded_goes_on_to_the_same_end(hub, run, text_model_path, text_rows, make_args, tmp_path):
    whole = run(push_to_hub=False, max_steps=8, output_dir=str(tmp_path / "whole"))
    hub.fault(COMMIT, status=500)
    run(hub_strategy="checkpoint", max_steps=8, output_dir=str(tmp_path / "first"), save_steps=3)
    # What is on the Hub is of step 6 once that push is undone: the last one never was.
    repo = hub.repos[RUN]
    repo.branches["main"] = next(c.oid for c in repo.history() if c.title == "Training in progress, step 6")
    fresh = snapshot_download(RUN, local_dir=tmp_path / "fresh")
    resumed = VADEGRPOTrainer(
        text_model_path, says_a_digit, make_args(output_dir=fresh, max_steps=8, save_strategy="no"), text_rows
    )
    resumed.train(resume_from_checkpoint=True)
    assert resumed.state.global_step == 8
    assert_same_end(resumed, whole)


def test_a_failed_push_is_followed_by_the_next_and_the_run_ends_well(hub, run, caplog):
    hub.fault(COMMIT, status=500, times=3)  # all attempts of the first push
    run(hub_strategy="checkpoint")
    assert step_of(hub.repos[RUN].files(), "last-checkpoint/") == 4
    assert "Not on the Hub: 'Training in progress, step 2'" in caplog.text


def test_a_look_at_the_run_that_fails_is_a_push_that_failed_and_ends_no_save(hub, run, monkeypatch, tmp_path):
    def failing(trainer):
        raise OSError("the cache cannot be read")

    monkeypatch.setattr(publishing_trainer, "RunFacts", SimpleNamespace(of=failing))
    with refused(HubError, names=["Posterior at step 2", "Posterior at step 4", "the cache cannot be read"]):
        run(hub_strategy="checkpoint", vade_posterior_hub_id="you/beliefs")
    assert {path.name for path in (tmp_path / "out").glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", 4)


@pytest.mark.slow
def test_every_checkpoint_arrives_when_all_were_asked_for(hub, run):
    hub.fault(COMMIT, status=500, times=3)
    run(hub_strategy="all_checkpoints")
    assert folders(hub.repos[RUN].files()) == ["checkpoint-2", "checkpoint-4"]


@pytest.mark.slow
def test_a_last_state_that_is_not_on_the_hub_is_an_error_that_says_how_to_send_it(hub, run, tmp_path):
    fault = hub.fault(COMMIT, status=503, times=1000)
    with refused(HubError, names=[tmp_path / "out"], offers=["hf upload"]) as raised:
        run(hub_strategy="checkpoint")
    command = re.search(r"hf upload (\S+) (\S+) \.", str(raised.value))
    assert (raised.value.status, command[1]) == (503, RUN)
    assert {path.name for path in (tmp_path / "out").glob("checkpoint-*")} == {"checkpoint-2", "checkpoint-4"}
    fault.times = 0
    HfApi().upload_folder(repo_id=command[1], folder_path=command[2])  # what the command does
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", 4)
    assert step_of(hub.repos[RUN].files()) == 4


@pytest.mark.slow
def test_what_failed_is_whole_when_it_is_pushed_again(hub, run):
    """The same step three times over, as scripts/train_vade.py does when the Hub comes back late."""
    fault = hub.fault(COMMIT, status=500, times=1000)
    with pytest.raises(HubError):
        trainer = run(hub_strategy="checkpoint", callbacks=[KeepTrainer()])
    trainer = KeepTrainer.trainer
    with pytest.raises(HubError):
        trainer.save_model()
    fault.times = 0
    trainer.push_to_hub()
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", 4)
    assert step_of(hub.repos[RUN].files()) == 4
    assert not (Path(trainer.args.output_dir) / "_hub").exists()


@pytest.mark.slow
def test_an_older_push_that_failed_late_does_not_undo_the_newer_one(hub, run, step_4_waits):
    hub.fault(COMMIT, status=503, times=3, hold=step_4_waits)
    run(hub_strategy="checkpoint")
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", 4)
    assert step_of(hub.repos[RUN].files()) == 4


@pytest.mark.slow
def test_a_checkpoint_that_arrives_late_leaves_the_newer_model_as_it_is(hub, run, step_4_waits):
    hub.fault(COMMIT, status=503, times=3, hold=step_4_waits)
    run(hub_strategy="all_checkpoints")
    assert step_of(hub.repos[RUN].files()) == 4
    for step in (2, 4):
        assert_whole(hub.repos[RUN].files(), f"checkpoint-{step}", step)


@pytest.mark.slow
def test_the_mark_of_an_unfinished_save_is_not_pushed(hub, run):
    """With `enable_jit_checkpoint` transformers 5.23 takes it away only after the push was asked for."""

    class Mark(TrainerCallback):
        def on_push_begin(self, args, state, control, **kwargs):
            (Path(args.output_dir) / f"checkpoint-{state.global_step}" / JIT_MARK).touch()

    run(hub_strategy="checkpoint", callbacks=[Mark()])
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", 4)
    assert not [path for path in hub.repos[RUN].files() if JIT_MARK in path]


def test_rows_of_the_data_stay_here_and_the_settings_are_pushed(hub, run):
    trainer = run(vade_report=True, hub_strategy="every_save")
    trainer.push_to_hub()
    trainer.publication.finish()
    private = {"vade_rows.json", "vade_report.html"}
    assert private <= {path.name for path in Path(trainer.args.output_dir).iterdir()}
    for commit in commits(hub):  # each holds all files
        assert not private & commit.files.keys()
    assert {"vade_run.json", "vade_report.png"} <= hub.repos[RUN].files().keys()


@pytest.mark.slow
def test_what_trl_writes_last_into_a_checkpoint_is_pushed_with_it(hub, run):
    run(hub_strategy="checkpoint", use_adaptive_entropy=True)
    assert "last-checkpoint/entropy_ctrl_state.json" in hub.repos[RUN].files()


@pytest.mark.slow
def test_a_disk_too_full_to_set_files_aside_ends_no_run_and_is_an_error_at_its_end(hub, run, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(staging.shutil, "copy2", refuse)
    with refused(HubError, names=["OSError", "No space left"]):
        run(hub_strategy="checkpoint", vade_posterior_hub_id="you/beliefs")
    assert len(complete_checkpoints(tmp_path / "out")) == 2


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["checkpoint", "all_checkpoints"])
def test_what_a_full_disk_kept_from_the_hub_is_sent_once_there_is_room(hub, run, monkeypatch, strategy):
    def refuse(*_, **__):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(staging.shutil, "copy2", refuse)
        full.setattr(publication, "new_folder", refuse)
        with refused(HubError, offers=["trainer.push_to_hub()"]):
            run([KeepTrainer()], hub_strategy=strategy, vade_posterior_hub_id="you/beliefs")
    KeepTrainer.trainer.push_to_hub()
    files = hub.repos[RUN].files()
    for folder, step in {"checkpoint": [("last-checkpoint", 4)]}.get(
        strategy, [("checkpoint-2", 2), ("checkpoint-4", 4)]
    ):
        assert_whole(files, folder, step)
    assert step_of(files) == 4
    assert [load_posterior(f"you/beliefs@step-00000{step}").metadata["global_step"] for step in (2, 4)] == [2, 4]


@pytest.mark.slow
def test_a_checkpoint_that_is_set_aside_late_brings_no_older_weights(hub, run, monkeypatch, tmp_path):
    def refuse_at_first(*paths, copy=staging.shutil.copy2):
        if KeepTrainer.trainer.state.global_step == 2:
            raise OSError(28, "No space left on device")
        return copy(*paths)

    monkeypatch.setattr(staging.shutil, "copy2", refuse_at_first)
    monkeypatch.setattr(staging, "LARGE", 1)  # as real weights are
    run([KeepTrainer()], hub_strategy="all_checkpoints")
    assert [commit.title[-1] for commit in commits(hub)] == ["4", "2"]
    files = hub.repos[RUN].files()
    assert_whole(files, "checkpoint-2", 2)
    assert files["checkpoint-2/model.safetensors"] != files["model.safetensors"]
    assert files["model.safetensors"] == (tmp_path / "out" / "model.safetensors").read_bytes()


@pytest.mark.slow
def test_an_old_failure_does_not_end_a_training_that_goes_on(hub, run, caplog):
    """`save_model`, called by a callback, pushes (transformers 5.23) and waits."""

    class SaveInBetween(TrainerCallback):
        def on_step_end(self, args, state, control, **kwargs):
            if state.global_step == 3:
                KeepTrainer.trainer.save_model(f"{args.output_dir}/best")

    hub.fault("POST /api/datasets/you/beliefs/commit", status=403, times=100)
    with refused(HubError, names=["Posterior at step 4"]):
        run([KeepTrainer(), SaveInBetween()], hub_strategy="checkpoint", vade_posterior_hub_id="you/beliefs")
    assert KeepTrainer.trainer.state.global_step == 4
    assert "Model save" in [commit.title for commit in commits(hub)]


@pytest.mark.slow
def test_the_commands_for_later_make_private_repositories_where_these_were_asked_for(hub, run, caplog):
    with offline():
        run(hub_strategy="checkpoint", vade_posterior_hub_id="you/beliefs", hub_private_repo=True)
    commands = re.findall(r"Send them by hand: (.+)", caplog.text)
    assert {command.split()[0] for command in commands} == {"hf", "trl-vade"}
    assert all(command.endswith("--private") for command in commands)


def test_a_posterior_that_nobody_keeps_cannot_be_published(hub, text_model_path, text_rows, make_args):
    args = make_args(vade_sampler="uniform", vade_posterior_hub_id="you/beliefs", shuffle_dataset=False)
    with refused(ConfigurationError, names=["vade_posterior_hub_id", "shuffle_dataset"]):
        VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    assert hub.requests == []


@pytest.mark.slow
def test_what_an_earlier_process_could_not_send_is_named_at_the_next_start(hub, run, make_args, caplog, tmp_path):
    left = tmp_path / "out" / "_hub" / "checkpoint-000002"
    left.mkdir(parents=True)
    run(max_steps=1)
    assert f"before it had uploaded {left}" in caplog.text
    assert left.is_dir()


def test_offline_the_run_goes_on_and_says_how_to_push_later(hub, run, caplog, tmp_path):
    with offline(), caplog.at_level(logging.WARNING):
        run(hub_strategy="checkpoint", vade_posterior_hub_id="you/beliefs")
    assert hub.requests == []
    assert "HF_HUB_OFFLINE is set" in caplog.text
    kept = sorted(path.name for path in (tmp_path / "out" / "_hub").iterdir())
    assert kept == ["checkpoint-000004", "posterior-000002", "posterior-000004"]
    for name in kept:
        assert str(tmp_path / "out" / "_hub" / name) in caplog.text
    assert f"trl-vade posterior push {tmp_path / 'out' / '_hub' / 'posterior-000004'} you/beliefs" in caplog.text
    assert load_posterior(tmp_path / "out" / "_hub" / "posterior-000004").metadata["global_step"] == 4


def test_an_interrupted_run_is_on_the_hub_before_the_signal_takes_its_course(
    hub, text_model_path, text_rows, make_args, ctrl_c
):
    class Interrupt(TrainerCallback):
        def on_step_begin(self, args, state, control, **kwargs):
            if state.global_step == 2:
                signal.raise_signal(signal.SIGINT)

    args = make_args(**PUSHING | {"save_steps": 100, "hub_strategy": "checkpoint", "max_steps": 6})
    hub.fault(COMMIT, delay=0.1)
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows, callbacks=[Interrupt()])
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert_whole(hub.repos[RUN].files(), "last-checkpoint", 3)


@pytest.mark.parametrize(
    ("token", "message"),
    [("hf_read_only", "may not write there"), ("hf_unknown", "hf auth login"), (None, "hf auth login")],
)
def test_a_login_that_may_not_write_is_refused_before_the_model_is_loaded(
    hub, text_rows, make_args, monkeypatch, token, message
):
    monkeypatch.delenv("HF_TOKEN") if token is None else monkeypatch.setenv("HF_TOKEN", token)
    for settings in (PUSHING, {"vade_posterior_hub_id": "you/beliefs"}):
        with refused(HubError, offers=[message]):
            VADEGRPOTrainer("no-such-model", says_a_digit, make_args(**settings), text_rows)


def test_the_token_is_in_no_file_no_log_and_no_commit(hub, run, caplog, capfd, tmp_path):
    hub.fault(COMMIT, status=500, times=4)
    with caplog.at_level(logging.DEBUG):
        trainer = run(hub_strategy="all_checkpoints", vade_posterior_hub_id="you/beliefs")
        trainer.push_to_hub()
        hub.fault("preupload", status=403, times=100)
        with pytest.raises(HubError):
            trainer.push_to_hub(commit_message="refused")
    secret = hub.token.encode()
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) > 20
    assert [path for path in files if secret in path.read_bytes()] == []
    pushed = [
        data for repo in hub.repos.values() for c in repo.history() for data in (*c.files.values(), c.title.encode())
    ]
    assert len(pushed) > 50
    assert not any(secret in data for data in pushed)
    output = capfd.readouterr()
    assert hub.token not in caplog.text + output.out + output.err
    assert hub.tokens == {hub.token}  # it was used


def test_stock_still_loses_a_push_without_a_word(hub, text_model_path, text_rows, tmp_path):
    """transformers 5.23: when this fails, `publication` may be needless."""
    settings = {**SMALL_RUN, **PUSHING, "hub_strategy": "checkpoint", "output_dir": str(tmp_path / "out")}
    hub.fault(COMMIT, status=400, times=1000)
    trainer = GRPOTrainer(text_model_path, says_a_digit, GRPOConfig(**settings), text_rows)
    trainer.train()
    assert commits(hub) == []


@pytest.mark.slow
def test_the_snapshot_on_the_hub_is_the_one_that_is_here(hub, run, tmp_path):
    trainer = run(hub_strategy="checkpoint")
    there = snapshot_download(RUN, local_dir=tmp_path / "fresh")
    digests = {load_snapshot(folder).digest for folder in (there, f"{there}/last-checkpoint", trainer.args.output_dir)}
    assert len(digests) == 1
    pulled = AutoModelForCausalLM.from_pretrained(RUN)
    assert_equal_weights(pulled.state_dict(), weights(trainer))
    assert load_posterior(RUN).metadata["global_step"] == 4
