"""`vade_run.json`: what a run was, without a secret."""

import json
import shlex

import pytest

from trl_vade.trainer.run_description import MOST_SIGNS, MOST_STARTS, describe_run, encode_run

TOKEN = "hf_" + "aB3" * 12


@pytest.fixture(scope="module")
def trainer(text_model_path, tmp_path_factory):
    from tests.support.rows import make_text_rows
    from tests.support.runs import SMALL_RUN, says_a_digit
    from trl_vade import VADEGRPOConfig, VADEGRPOTrainer

    args = VADEGRPOConfig(str(tmp_path_factory.mktemp("out")), vade_cooldown=0.5, **SMALL_RUN)
    rows = make_text_rows()
    return VADEGRPOTrainer(text_model_path, says_a_digit, args, rows, eval_dataset={"a": rows, "b": rows})


def test_a_run_names_its_command_settings_versions_and_machine(trainer, text_model_path):
    about = json.loads(encode_run(describe_run(trainer, {})))
    assert (about["model"], about["rows"], about["rewards"]) == (text_model_path, 24, ["says_a_digit"])
    assert about["validation_answers"] == {"a": 24 * 4, "b": 24 * 4}
    assert {"vade_cooldown", "learning_rate", "seed"} <= {*about["changed_settings"]}
    assert "vade_decay_sampled" not in about["changed_settings"]
    assert (about["settings"]["vade_cooldown"], about["settings"]["vade_decay_sampled"]) == (0.5, 0.2)
    assert {"python", "trl-vade", "trl", "torch", "transformers"} <= about["versions"].keys()
    assert (about["machine"]["processes"], about["machine"]["device"]) == (1, "CPU")
    assert shlex.split(about["command"])[0].startswith(("python", "pytest"))


def test_the_starts_of_a_resumed_run_are_kept_and_the_first_is_never_lost(trainer):
    about = {}
    for _ in range(MOST_STARTS + 3):
        first = (about or {"starts": [{"time": "first", "step": 0}]})["starts"][0]
        about = describe_run(trainer, about or {"starts": [first]})
    assert len(about["starts"]) == MOST_STARTS
    assert about["starts"][0] == first


def test_all_of_it_is_strict_json_and_long_texts_are_cut():
    text = encode_run({"settings": {"nan": float("nan"), "a": object}, "long": "x" * 10 * MOST_SIGNS}).decode()
    read = json.loads(text, parse_constant=pytest.fail)
    assert read["settings"]["nan"] == "nan"
    assert len(read["long"]) == MOST_SIGNS + 3
