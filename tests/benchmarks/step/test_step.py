"""The benchmark of a generation batch: its meters, given completions, and runs cut short. No timing is tested."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from transformers import AutoConfig, AutoProcessor, Qwen2_5_VLForConditionalGeneration

from eval.benchmarks.step import __main__ as benchmark
from eval.benchmarks.step import live_shares, models, one_run, tables
from eval.benchmarks.step.given import Given, live_groups
from eval.benchmarks.step.memory import TensorMemory
from eval.benchmarks.step.meters import Meter

ROOT = Path(__file__).parents[3]
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

    meter, trainer = Meter(clock=lambda: now["seconds"]), Trainer()
    meter.wrap(trainer, "outer", "update")
    meter.wrap(trainer, "inner", "generate")
    now["seconds"] += 1.0
    trainer.outer()
    meter.close_batch()
    assert meter.batches[0]["seconds"] == {"other": 1.0, "update": 2.0, "generate": 3.0}


def test_bytes_of_tensors_are_counted_while_they_exist_and_until_a_backward_pass_is_over():
    size, weight = 64 * 64 * 4, torch.ones(64, 64).requires_grad_()
    with TensorMemory() as memory:
        second = torch.ones(64, 64) + 1
        view = second[3:]
        del second
        assert memory.allocated() == size
        del view
        assert memory.allocated() == 0
        assert [memory.peaks(), memory.peaks()] == [{"allocated": 2 * size}, {"allocated": 0}]
        hidden = torch.ones(64, 64)
        for _ in range(4):
            hidden = torch.tanh(hidden @ weight)
        assert memory.allocated() >= 6 * size  # the weight, the first input, and what each tanh saves
        hidden.sum().backward()
        del hidden
        assert memory.allocated() == 2 * size


def test_exactly_the_share_of_the_groups_is_live_and_they_are_spread(capsys):
    for rows, share, places in ((4, 0.5, [1, 3]), (20, 0.1, [9, 19]), (3, 1.0, [0, 1, 2])):
        assert np.flatnonzero(live_groups(rows, share)).tolist() == places
    with pytest.raises(SystemExit):
        benchmark.parse(["--live_shares", "0.1", "--rows", "8"])
    assert "0.1 of 8 rows" in capsys.readouterr().err
    given = Given(4, 8, 40, 0.25, models.processor_and_config("small")[0].tokenizer)
    assert (np.array(given.given_reward([])).reshape(4, 8).std(1) > 0).tolist() == live_groups(4, 0.25).tolist()


def test_micro_batches_that_do_not_divide_the_completions_are_refused(capsys):
    with pytest.raises(SystemExit):
        benchmark.parse(["--rows", "4", "--generations", "4", "--micro_batch", "3"])
    assert "16 completions do not divide into 1 updates of whole micro-batches of 3" in capsys.readouterr().err


def test_the_settings_of_3b_are_the_recipes_less_what_costs_nothing(tmp_path, monkeypatch):
    models.write_model("3b", tmp_path, weights=False)
    options = options_of("--shape", "3b", "--engine", "colocate", "--settings", '{"beta": 0.5}')
    assert [options[name] for name in ("rows", "generations", "micro_batch", "updates")] == [128, 8, 4, 4]
    assert (options["completion_tokens"], options["image_tokens"]) == (2048, 1024)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    settings = one_run.trainer_settings(options, str(tmp_path))
    assert (settings["steps_per_generation"], settings["gradient_accumulation_steps"]) == (256, 64)
    assert settings["bf16"] is settings["vllm_enable_sleep_mode"] is True
    assert (settings["vade_preset"], settings["beta"]) == ("paper", 0.5)
    left_out = {"vllm_tensor_parallel_size", "reward_weights", "vade_success_reward", "save_steps", "num_train_epochs"}
    assert not left_out & settings.keys()
    assert settings["generation_kwargs"]["logit_bias"].keys() == {151655, 151656}


@pytest.mark.parametrize("shape", ["small", "3b"])
def test_a_random_models_processor_and_configuration_agree(shape, tmp_path):
    models.write_model(shape, tmp_path, weights=False)
    processor, config = AutoProcessor.from_pretrained(tmp_path), AutoConfig.from_pretrained(tmp_path)
    ids, tokenizer = processor.tokenizer.convert_tokens_to_ids, processor.tokenizer
    assert config.image_token_id == processor.image_token_id == ids("<|image_pad|>")
    assert config.video_token_id == processor.video_token_id == ids("<|video_pad|>")
    assert config.text_config.eos_token_id == tokenizer.eos_token_id == ids("<|im_end|>")
    assert config.text_config.pad_token_id == tokenizer.pad_token_id == ids("<|endoftext|>")
    # Every id that random weights can sample is a token, and can be decoded.
    assert len(tokenizer) == config.text_config.vocab_size == len(tokenizer.get_vocab())
    assert tokenizer.decode([len(tokenizer) - 1])
    if shape == "3b":  # as the index file of the published weights counts
        with torch.device("meta"):
            model = Qwen2_5_VLForConditionalGeneration(models.published_config())
        assert sum(weight.numel() for weight in model.parameters()) == 3_754_622_976
    question = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which digit is this?"}]}]
    text = processor.apply_chat_template(question, add_generation_prompt=True)
    tokens = processor(text=[text], images=[Image.new("RGB", (448, 336))])["input_ids"][0]
    assert list(tokens).count(config.image_token_id) == 16 * 12


@pytest.mark.slow
def test_a_short_run_counts_what_the_trainers_do():
    counts, trainers = {}, ("stock", "repeated", "once", "tower", "grouped")
    for trainer in trainers:
        micro_batch = [] if trainer in trainers[:2] else ["--micro_batch", "4"]
        run = one_run.measure({**options_of(*TINY, *micro_batch), "trainer": trainer})
        counts[trainer] = run["batches"][0]["counts"]
    # One call of `generate` for 16 completions, whose images go through the processor for it and for the training.
    same = {"requests": 1, "encoded by the engine": 16, "encoded by the trainer": 16, "processed": 32}
    same |= {"buffered": 16 * PIXELS, "stored": 0}
    assert counts["stock"] == same | {"decoded": 32}  # the first of a list of images is decoded twice (datasets)
    assert counts["repeated"] == same | {"decoded": 4}
    for each in (counts[name] for name in trainers[2:]):
        assert (each["processed"], each["stored"]) == (4, 4 * PIXELS)
        assert 0 < each["buffered"] < PIXELS
    encoded = {name: (each["encoded by the engine"], each["encoded by the trainer"]) for name, each in counts.items()}
    assert (encoded["once"], encoded["grouped"], encoded["tower"][0]) == ((16, 16), (4, 4), 4)
    assert 4 < encoded["tower"][1] < 16


@pytest.mark.slow
def test_the_command_takes_turns_and_appends_every_run(tmp_path):
    command = [sys.executable, "-m", "eval.benchmarks.step", *TINY, "--repeats", "2", "--json", str(tmp_path / "runs")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True, cwd=ROOT)
    runs = [json.loads(line) for line in (tmp_path / "runs").read_text().splitlines()]
    assert [run["trainer"] for run in runs] == ["stock", "vade", "vade", "stock"]
    assert "| images decoded | 32 | 4 |" in done.stdout
    assert "- scores to the posterior | - |" in done.stdout


@pytest.mark.slow
def test_the_work_of_an_update_follows_the_live_share_with_thinning_alone():
    few = ["--rows", "4", "--micro_batch", "8", "--repeats", "1"]
    options = benchmark.parse(["--live_shares", "0.25", "1", *few, "--beta", "0.1"])
    assert options.trainers == ["stock", "vade", "live"]
    figures = list(live_shares.measure(vars(options)))
    counted, weighed, timed = (
        {(each["share"], each["trainer"]): each for each in figures if each["repeat"] == repeat}
        for repeat in ("flops", "memory", 0)
    )
    assert len(figures) == 3 * len(timed) == 3 * 2 * 3
    flops = {key: [each["flops"].get(phase, 0) for phase in ("score", "update")] for key, each in counted.items()}
    for name in ("stock", "vade"):
        assert flops[0.25, name] == flops[1.0, name] == flops[1.0, "stock"]
        assert timed[0.25, name]["counts"]["completions"] == 32
    assert timed[0.25, "live"]["counts"]["completions"] == 8
    for thin, whole in zip(flops[0.25, "live"], flops[1.0, "live"], strict=True):
        assert 0.15 < thin / whole < 0.35
    assert tables.most(weighed[0.25, "live"]) < tables.most(weighed[0.25, "vade"])
    assert f"| 25% | {tables.NAMES['live']} | 8 |" in tables.live_table(figures)
