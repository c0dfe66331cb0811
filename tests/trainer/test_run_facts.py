"""What a run says of itself: its settings, its counts, and where its rows come from."""

import json
import shlex
from dataclasses import replace

import pytest

from tests.support.own_samplers import OWN
from tests.support.rows import make_text_rows
from tests.support.runs import always_half, make_trainer, says_a_digit
from trl_vade import load_posterior
from trl_vade.errors import SnapshotCorruptError
from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.report.record import read_run
from trl_vade.selection.report.summary import summarise
from trl_vade.trainer import run_facts
from trl_vade.trainer.report import live_run
from trl_vade.trainer.run_facts import card_facts, describe_run
from trl_vade.version import __version__


@pytest.fixture(scope="module")
def trained(text_model_path, tmp_path_factory):
    """A trainer after three steps."""
    trainer = make_trainer(tmp_path_factory.mktemp("run"), text_model_path, make_text_rows(), max_steps=3)
    trainer.train()
    return trainer


# -------------------------------------------------------------------------------------------------------- the facts


def test_a_run_says_what_it_was_asked_and_what_it_has_done(trained):
    facts = card_facts(trained)
    expected = {"package_version": __version__, "seed": 3, "rewards": ["says_a_digit"]}
    expected |= {"generation_batches": 3, "num_samples": 24}
    expected |= {"success_reward": "says_a_digit", "success_threshold": 0.5, "num_generations": 4, "temperature": 1.0}
    expected |= {"sampler": "thompson", "preset": "balanced", "information_gain": "asymmetric", "cooldown": 0.5}
    expected |= {"decay_sampled": 0.2, "decay_unsampled": 0.999, "signal_aware_decay": True}
    assert {name: facts[name] for name in expected} == expected
    assert len(facts["dataset_fingerprint"]) == 64
    recipe = {"learning_rate": 1e-2, "max_steps": 3, "lr_scheduler_type": "linear", "num_processes": 1, "bf16": False}
    assert {name: facts["recipe"][name] for name in recipe} == recipe


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("you/rows", ("you/rows", None)),
        ("you/rows@main", ("you/rows", "main")),
        *((unknown, (None, None)) for unknown in ("testbed", None, ["you/rows", "you/others"], "../rows@main")),
    ],
)
def test_the_data_set_is_called_what_the_user_calls_it_and_nothing_is_guessed(trained, monkeypatch, name, found):
    monkeypatch.setattr(trained, "dataset_name", name)
    for facts in (card_facts(trained), describe_run(trained)):
        assert (facts["dataset"], facts["dataset_revision"]) == found
    assert card_facts(trained, "you/others")["dataset"] == "you/others"


def test_settings_that_do_not_reach_the_sampler_are_no_facts(made):
    facts = card_facts(made(vade_sampler=OWN, vade_cooldown=0.1))
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    assert facts["sampler"] == OWN
    assert facts["preset"] is facts["information_gain"] is facts["cooldown"] is None


def test_a_run_without_a_posterior_has_no_facts_of_one(made):
    changes = {"vade_sampler": "uniform", "shuffle_dataset": False, "max_steps": -1, "num_train_epochs": 2}
    facts = card_facts(made([always_half, says_a_digit], hub_model_id="run", **changes))
    assert facts["rewards"] == ["always_half", "says_a_digit"]
    assert facts["model_repo"] is facts["recipe"]["max_steps"] is None  # not known before training begins
    assert not facts.keys() & {"generation_batches", "num_samples", "success_reward", "decay_sampled"}


def test_a_posterior_tells_the_facts_of_its_run_and_no_path_of_this_machine(trained, tmp_path, monkeypatch):
    monkeypatch.setattr(trained.args, "vade_posterior_init", str(tmp_path))
    monkeypatch.setattr(trained, "dataset_name", str(tmp_path / "rows"))
    trained.save_model(str(tmp_path / "saved"))
    found = load_posterior(tmp_path / "saved").metadata
    known = {name: value for name, value in run_facts.run_facts(trained).items() if value is not None}
    assert {name: found[name] for name in known} == known
    assert {"global_step": 3, "rollouts": 48}.items() <= found.items()
    content = (tmp_path / "saved" / POSTERIOR_FILE).read_bytes()
    assert not [path for path in (tmp_path, trained.args.output_dir) if str(path).encode() in content]


def test_a_report_names_command_settings_and_versions(trained, text_model_path, monkeypatch):
    monkeypatch.setattr(trained, "eval_dataset", {"a": make_text_rows(), "b": make_text_rows()})
    about = describe_run(trained)
    assert (about["model"], about["rows"], about["rewards"]) == (text_model_path, 24, ["says_a_digit"])
    assert about["validation_answers"] == {"a": 24 * 4, "b": 24 * 4}
    assert {"learning_rate", "seed"} <= {*about["changed_settings"]}
    assert "vade_cooldown" not in about["changed_settings"]
    assert about["settings"]["vade_cooldown"] == 0.5  # the preset's
    assert {"trl_vade", "trl", "torch", "transformers"} <= about["versions"].keys()
    assert about["hardware"] == "1 x CPU"
    assert shlex.split(about["command"])[0].startswith(("python", "pytest"))


# -------------------------------------------------------------------------------------------------------- so far


def test_a_run_that_goes_on_is_told_from_memory_as_from_its_files(trained):
    trained.save_model()
    trained.save_state()
    from_files = replace(read_run(trained.args.output_dir), about=live_run(trained).about)  # without a report
    assert summarise(live_run(trained)) == summarise(from_files)


def test_an_earlier_runs_log_is_not_taken_for_this_runs(trained, made):
    assert live_run(made(output_dir=trained.args.output_dir)) is None


def test_a_log_that_lacks_its_beginning_tells_nothing_and_a_damaged_one_says_so(trained, tmp_path, monkeypatch):
    whole, feedback = trained.selection.feedback.log, trained.selection.feedback
    outcomes = feedback.rounds[0][1]
    for steps in ((2,), (1, 2)):
        monkeypatch.setattr(feedback, "log", SelectionLog(tmp_path / str(steps)))
        for step in steps:
            feedback.log.append(outcomes, step=step, rollouts=16)
        if steps == (2,):
            assert live_run(trained) is None
    feedback.log.path.write_bytes(feedback.log.path.read_bytes().replace(b"16", b"", 1))
    with pytest.raises(SnapshotCorruptError, match="Line 1 of"):
        live_run(trained)
    assert len(whole.read()) == 3
