"""The benchmark of a generation batch: its meter, random models, and a run of it cut short. No timing is tested."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from eval.benchmarks.step import __main__ as benchmark
from eval.benchmarks.step import models, one_run, tables
from eval.benchmarks.step.meters import Meter

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "trl_vade" / "recipes" / "qwen2_5_vl_3b_grpo_vade.yaml"
PIXELS = 16 * 1176 * 4  # bytes of an image of the testbed
TINY = ["--rows", "4", "--generations", "4", "--repeats", "1", "--batches", "1"]


def options_of(*arguments):
    return vars(benchmark.parse([*arguments]))


def test_a_phase_inside_another_one_is_timed_once():
    now = {"seconds": 100.0}

    class Trainer:
        def outer(self):
            now["seconds"] += 2.0
            return self.inner()

        def inner(self):
            now["seconds"] += 3.0
            return "result"

    meter, trainer = Meter(clock=lambda: now["seconds"]), Trainer()
    meter.wrap(trainer, "outer", "update")
    meter.wrap(trainer, "inner", "generate")
    now["seconds"] += 1.0
    assert trainer.outer() == "result"
    meter.close_batch()
    [batch] = meter.batches
    assert batch["seconds"] == {"other": 1.0, "update": 2.0, "generate": 3.0}
    assert not meter.seconds
    assert not meter.counts


def test_peaks_of_gpu_memory_belong_to_the_phase_that_was_on(monkeypatch):
    """No GPU is needed: torch's figures are stand-ins."""
    peak = {"bytes": 0}
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for name in ("max_memory_allocated", "max_memory_reserved"):
        monkeypatch.setattr(torch.cuda, name, lambda: peak["bytes"])
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: peak.update(bytes=0))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**30, 5 * 2**30))
    with Meter() as meter:
        peak["bytes"] = 2 * 2**30
        meter.enter("update")
        peak["bytes"] = 3 * 2**30
        meter.enter("generate")
        meter.leave()
        meter.close_batch()
    memory = meter.batches[0]["memory"]
    peaks = {phase: each["allocated"] / 2**30 for phase, each in memory.items()}
    assert peaks == {"other": 2, "update": 3, "generate": 0}
    assert memory["generate"]["in use"] == 4 * 2**30
    table = tables.table([{"trainer": "vade", "batches": meter.batches}])
    assert "| peak GPU memory, GiB, in use: generate | 4.0 |" in table


def test_the_recipes_share_of_a_gpu_is_what_one_process_generates():
    options = options_of("--shape", "3b", "--engine", "colocate")
    assert options["recipe"] == str(RECIPE)
    assert [options[name] for name in ("rows", "generations", "micro_batch", "updates")] == [128, 8, 4, 4]
    assert (options["completion_tokens"], options["image_tokens"]) == (2048, 1024)


def test_micro_batches_that_do_not_divide_the_completions_are_refused(capsys):
    with pytest.raises(SystemExit):
        benchmark.parse(["--rows", "4", "--generations", "4", "--micro_batch", "3"])
    assert "16 completions do not divide into 1 updates of whole micro-batches of 3" in capsys.readouterr().err


def test_the_settings_are_the_recipes_less_what_costs_nothing(tmp_path, monkeypatch):
    models.write_model("3b", tmp_path, weights=False)
    options = options_of("--shape", "3b", "--engine", "colocate", "--settings", '{"beta": 0.5}')
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = one_run.trainer_settings(options, str(tmp_path))
    assert (settings["steps_per_generation"], settings["gradient_accumulation_steps"]) == (256, 64)
    assert settings["model_init_kwargs"] == {"dtype": "float32"}
    assert settings["bf16"] is settings["vllm_enable_sleep_mode"] is True
    assert settings["vllm_gpu_memory_utilization"] == 0.4
    assert settings["vade_preset"] == "paper"
    assert settings["beta"] == 0.5
    left_out = {"vllm_tensor_parallel_size", "reward_weights", "vade_success_reward", "save_steps", "num_train_epochs"}
    assert not left_out & settings.keys()
    assert settings["generation_kwargs"]["logit_bias"].keys() == {151655, 151656}


@pytest.mark.parametrize("shape", ["small", "3b"])
def test_a_random_models_processor_and_configuration_agree(shape, tmp_path):
    from PIL import Image
    from transformers import AutoConfig, AutoProcessor

    

    models.write_model(shape, tmp_path, weights=False)
    processor, config = AutoProcessor.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)
    ids, tokenizer = processor.tokenizer.convert_tokens_to_ids, processor.tokenizer
    assert config.image_token_id == processor.image_token_id == ids("<|image_pad|>")
    assert config.video_token_id == processor.video_token_id == ids("<|video_pad|>")
    assert config.vision_start_token_id == ids("<|vision_start|>")
    assert config.vision_end_token_id == ids("<|vision_end|>")
    assert config.text_config.eos_token_id == tokenizer.eos_token_id == ids("<|im_end|>")
    assert config.text_config.pad_token_id == tokenizer.pad_token_id == ids("<|endoftext|>")
    # Every id that random weights can sample is a token, and can be decoded.
    assert len(tokenizer) == config.text_config.vocab_size == len(tokenizer.get_vocab())
    assert tokenizer.decode([len(tokenizer) - 1])
    if shape != "small":
        published = models.published_config()
        assert config.text_config.vocab_size == published.text_config.vocab_size
        assert (config.image_token_id, config.vision_start_token_id) == (151655, 151652)
        assert published.vision_config.patch_size == processor.image_processor.patch_size

    question = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which digit is this?"}]}]
    text = processor.apply_chat_template(question, add_generation_prompt=True)
    tokens = processor(text=[text], images=[Image.new("RGB", (448, 336))])["input_ids"][0]
    assert list(tokens).count(config.image_token_id) == 16 * 12
    assert tokenizer.decode([each for each in tokens if each != config.image_token_id]).endswith("assistant\n")


def test_photographs_become_about_as_many_tokens_as_asked_for():
    processor, _ = models.processor_and_config("small")
    for row in models.random_rows(3, 256):
        grid = processor.image_processor(images=row["images"])["image_grid_thw"]
        assert int(torch.as_tensor(grid).prod()) / 4 == pytest.approx(256, rel=0.05)


@pytest.mark.slow
def test_a_short_run_counts_what_both_trainers_do(capsys):
    options = options_of(*TINY)
    runs = [one_run.measure({**options, "trainer": trainer}) for trainer in ("stock", "repeated")]
    stock, ours = (run["batches"][0]["counts"] for run in runs)
    # One call of `generate` for 16 completions, whose images go through the processor for it and for the training.
    same = {"requests": 1, "encoded by the engine": 16, "encoded by the trainer": 16, "processed": 32}
    same |= {"buffered": 16 * PIXELS, "stored": 0}
    assert stock == same | {"decoded": 32}  # the stock loader decodes the first of a list of images twice (datasets)
    assert ours == same | {"decoded": 4}
    for run in runs:
        [batch] = run["batches"]
        assert batch["seconds"].keys() <= tables.SECONDS.keys()
        assert min(batch["seconds"][name] for name in ("rows", "tokenise", "generate", "inputs", "update")) > 0
        assert tables.most(batch, "resident") > 0
    table = tables.table(runs)
    assert "| images decoded | 32 | 4 |" in table
    assert "weight sync" not in table  # no engine of its own has any
    assert "- scores to the posterior | - |" in table


@pytest.mark.slow
def test_each_image_is_processed_and_kept_once_a_row_and_encoded_once_a_pass():
    options = options_of(*TINY, "--micro_batch", "4")
    counts = {}
    for trainer in ("once", "tower", "grouped"):
        counts[trainer] = one_run.measure({**options, "trainer": trainer})["batches"][0]["counts"]
    for each in counts.values():
        assert (each["processed"], each["stored"]) == (4, 4 * PIXELS)
        assert 0 < each["buffered"] < PIXELS
    encoded = {name: (each["encoded by the engine"], each["encoded by the trainer"]) for name, each in counts.items()}
    assert encoded["once"] == (16, 16)
    assert encoded["grouped"] == (4, 4)
    assert encoded["tower"][0] == 4
    assert 4 < encoded["tower"][1] < 16


@pytest.mark.slow
def test_the_command_takes_turns_and_appends_every_run(tmp_path):
    command = [sys.executable, "-m", "eval.benchmarks.step", *TINY, "--repeats", "2", "--json", str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=ROOT)
    runs = [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]
    assert [run["trainer"] for run in runs] == ["stock", "vade", "vade", "stock"]
    assert "| images decoded | 32 | 4 |" in done.stdout
