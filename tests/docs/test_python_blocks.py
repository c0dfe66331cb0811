"""Every Python block of README.md and docs/ runs, with tiny stand-ins for the models and data sets that it names."""

import inspect
import re
from contextlib import chdir

import pytest
from transformers import TrainerCallback

import trl_vade
from tests.docs.commands import READS_THE_HUB, python_blocks

BLOCKS = {name: block for name, block in python_blocks() if name not in READS_THE_HUB}


@pytest.fixture
def stand_ins(text_model_path, text_rows, monkeypatch, tmp_path):
    """A function that makes a block small; its settings are checked as they are, then those of the tests hold."""
    from tests.support.runs import SMALL_RUN

    config, callback = trl_vade.VADEGRPOConfig, trl_vade.VADEEvalCallback

    def small_config(**given):
        config(**given | {"use_cpu": True, "bf16": False})
        few_rows = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "max_steps": 1}
        return config(**given | SMALL_RUN | {"num_generations": given.get("num_generations", 8)} | few_rows)

    def no_callback(*arguments, **options):  # lmms-eval is an extra; tests/lmms runs it
        inspect.signature(callback).bind(*arguments, **options)
        return TrainerCallback()

    rows = text_rows.map(lambda row: {"answer": str(row["limit"])})
    monkeypatch.setattr(trl_vade, "VADEGRPOConfig", small_config, raising=False)
    monkeypatch.setattr(trl_vade, "VADEEvalCallback", no_callback, raising=False)
    monkeypatch.setattr("datasets.load_dataset", lambda name, split: rows)
    with chdir(tmp_path):
        yield lambda block: re.sub(r"Qwen/Qwen2\.5-\S+?(?=\")", text_model_path, block)


@pytest.mark.parametrize("name", BLOCKS)
def test_a_block_runs(name, stand_ins, capsys):
    exec(compile(stand_ins(BLOCKS[name]), name, "exec"), {"__name__": "__main__"})
    promised = re.findall(r"^print\(.*\)  # (.+)$", BLOCKS[name], flags=re.MULTILINE)
    printed = capsys.readouterr().out.splitlines()
    assert [text for text in promised if re.match(r"[\[\d(]|True|False", text) and text not in printed] == []
