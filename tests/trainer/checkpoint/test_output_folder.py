"""One folder, one run: another one is refused there, or takes its place because the user says so."""

import shutil
from pathlib import Path

import pytest

from tests.support.refusals import refused
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.hub.outbox import OUTBOX_FOLDER
from trl_vade.selection.log import SelectionLog

WAYS_OUT = ["resume_from_checkpoint", "output_dir", "vade_overwrite_output_dir=True"]


def contents(folder):
    return {str(path): path.read_bytes() for path in sorted(Path(folder).rglob("*")) if path.is_file()}


@pytest.fixture
def begin(text_model_path, text_rows, make_args):
    """A function that makes a trainer in the folder of `make_args`."""
    return lambda **changes: VADEGRPOTrainer(text_model_path, says_a_digit, make_args(**changes), text_rows)


@pytest.mark.parametrize("sampler", ["thompson", "uniform"])
def test_a_run_in_the_folder_of_another_one_is_refused_and_leaves_it_as_it_is(begin, checkpointed_run, sampler):
    _, folder = checkpointed_run()
    before = contents(folder)
    trainer = begin(vade_sampler=sampler, max_steps=1)
    with refused(ConfigurationError, [folder, "checkpoint-1", "checkpoint-2", "vade_selection.jsonl"], WAYS_OUT):
        trainer.train()
    assert contents(folder) == before


@pytest.mark.parametrize(
    "left", ["trainer_state.json", "vade_posterior.safetensors", "vade_selection.jsonl", "checkpoint-1", "run-0"]
)
def test_each_trace_of_a_run_is_enough(begin, checkpointed_run, left):
    _, folder = checkpointed_run()
    (folder / "run-0").mkdir()  # a trial of a hyperparameter search
    shutil.copytree(folder / "checkpoint-1", folder / "run-0" / "checkpoint-1")
    shutil.copy(folder / "checkpoint-1" / "trainer_state.json", folder)
    for path in folder.iterdir():
        if path.name != left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    with refused(ConfigurationError, [folder, left], WAYS_OUT):
        begin(max_steps=1).train()


def test_a_folder_with_logs_completions_or_a_model_is_no_run(begin, text_model_path, make_args):
    folder = Path(make_args().output_dir)
    shutil.copytree(text_model_path, folder)
    for name in ("completions/completions_00001.parquet", "runs/events.out.tfevents", "vade_selection.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    trainer = begin(max_steps=1)
    trainer.train()
    assert trainer.state.global_step == 1


def test_a_run_that_is_resumed_from_its_own_checkpoint_goes_on(begin, checkpointed_run):
    _, folder = checkpointed_run()
    trainer = begin(max_steps=3, vade_overwrite_output_dir=True)  # which removes nothing of the run that goes on
    trainer.train(resume_from_checkpoint=str(folder / "checkpoint-1"))
    assert trainer.state.global_step == 3
    assert [line["step"] for line in SelectionLog(folder).read()] == [1, 2, 3]
    assert (folder / "_earlier-1" / "checkpoint-2").is_dir()


def test_a_checkpoint_of_another_folder_does_not_open_this_one(begin, checkpointed_run, tmp_path):
    _, folder = checkpointed_run()
    shutil.copytree(folder, tmp_path / "elsewhere")
    with refused(ConfigurationError, [folder, "checkpoint-2"], WAYS_OUT):
        begin(max_steps=3).train(resume_from_checkpoint=str(tmp_path / "elsewhere" / "checkpoint-2"))


def test_an_overwritten_run_is_gone_and_the_log_says_which_files(begin, checkpointed_run, caplog):
    _, folder = checkpointed_run()
    (folder / "notes.txt").write_text("mine")
    (folder / OUTBOX_FOLDER / "waiting").mkdir(parents=True)
    trainer = begin(vade_overwrite_output_dir=True, max_steps=1, save_strategy="steps", save_steps=1)
    trainer.train()
    assert sorted(path.name for path in folder.glob("checkpoint-*")) == ["checkpoint-1"]
    assert [line["step"] for line in SelectionLog(folder).read()] == [1]
    assert (folder / "notes.txt").read_text() == "mine"
    assert not (folder / OUTBOX_FOLDER).exists()
    [message] = [record.message for record in caplog.records if "vade_overwrite_output_dir" in record.message]
    assert "checkpoint-2" in message
    assert "vade_selection.jsonl" in message


def test_evaluation_is_never_refused(begin, checkpointed_run, text_rows):
    checkpointed_run()
    assert begin(per_device_eval_batch_size=8).evaluate(text_rows.select(range(4)))
