"""The command that a user is told to type again."""

import shlex

import pytest

from trl_vade.trainer import typed_command as typed
from trl_vade.trainer.typed_command import typed_words, without_resume


@pytest.mark.parametrize(
    ("own", "parents", "command"),
    [
        (["/env/bin/python", "/env/bin/trl-vade", "train", "--seed", "1"], [["-bash"]], "trl-vade train --seed 1"),
        (
            ["python", "scripts/train_vade.py", "--run_name", "a b"],
            [],
            "python scripts/train_vade.py --run_name 'a b'",
        ),
        (
            ["/env/bin/python", "-u", "run.py"],
            [["/env/bin/python", "/env/bin/accelerate", "launch", "run.py"], ["-bash"]],
            "accelerate launch run.py",
        ),
        (
            ["/env/bin/python", "-u", "-m", "trl_vade", "train", "--config", "/packages/quickstart.yaml"],
            [["/env/bin/python", "/env/bin/trl-vade", "train", "--accelerate_config", "fsdp2"], ["make"], []],
            "trl-vade train --accelerate_config fsdp2",
        ),
    ],
)
def test_it_is_the_users_command_and_not_that_of_a_launchers_process(monkeypatch, own, parents, command):
    monkeypatch.setattr(typed.sys, "orig_argv", own)
    monkeypatch.setattr(typed, "_parents", lambda: parents)
    assert shlex.join(typed_words()) == command


@pytest.mark.parametrize(
    "words", [["--resume_from_checkpoint", "true"], ["--resume-from-checkpoint=out/checkpoint-3"]]
)
def test_it_leaves_an_earlier_resume_out(words):
    assert without_resume(["trl-vade", "train", *words, "--seed", "1"]) == ["trl-vade", "train", "--seed", "1"]
