"""The trainer as a whole: `uniform` is stock TRL to the bit, and a resumed run is the run that never stopped.

On two processes: `tests/integration/test_two_processes.py`. What users bring along, such as rows, rewards and code, is
in the tables of `tests/support/situations`.
"""

import shutil
from dataclasses import replace
from functools import cache

import pytest
import torch
import trl
from packaging.version import Version
from peft import LoraConfig

from tests.support.as_stock import Situation, assert_as_stock, full_history, plain_history, play, tables
from tests.support.marks import slow_but
from tests.support.own_samplers import WorstLast
from tests.support.rows import text_of, variants_of_text_rows
from tests.support.runs import (
    SaveAt,
    assert_equal_weights,
    assert_same_end,
    first_letter,
    logged,
    odd_length,
    rows_with_images,
    unique_letters,
    weights,
)
from tests.support.situations import SITUATIONS
from tests.support.vision_runs import picture_rows
from trl_vade import VADEReportCallback
from trl_vade.samplers.snapshot import state_digest

# -------------------------------------------------- {stock, uniform, default} x {text, images} x {whole, resumed}

CHECKPOINT = 3  # inside a generation batch, in the second epoch of the images


def noting(side):
    """A reward that notes the order of rows and the completions."""

    def reward(completions, limit, **columns):
        side.seen.append((limit, completions))
        return [float((len(text_of(each)) + bound) % 3 == 0) for each, bound in zip(completions, limit, strict=True)]

    return {"reward_funcs": reward, "callbacks": [SaveAt(CHECKPOINT)]}


SETTINGS = {"max_steps": 6, "steps_per_generation": 2, "log_completions": True, "num_completions_to_print": 1}
WORLDS = {
    "text": Situation(SETTINGS, noting),
    "images": Situation(SETTINGS, noting, lambda: picture_rows(8, pictures=(1, 2)), "vision_model_path"),
}


@pytest.fixture(scope="module")
def runs(text_model_path, vision_model_path, tmp_path_factory):
    """Each run once: a function of the world, the sampler, and whether it was stopped behind `CHECKPOINT`."""
    models = {"text": text_model_path, "images": vision_model_path}

    @cache
    def run(world, sampler, is_resumed=False):
        situation, folder = WORLDS[world], tmp_path_factory.mktemp("run") / "out"

        def go_on(make, side):
            trainer = make()
            trainer.train(resume_from_checkpoint=f"{folder}/checkpoint-{CHECKPOINT}")
            return trainer

        if is_resumed:
            shutil.copytree(run(world, sampler)[0].args.output_dir, folder)
            situation = replace(situation, drive=go_on)
        chosen = {} if sampler == "stock" else {"vade_sampler": sampler}
        return play(situation, models[world], folder, stock=sampler == "stock", **chosen)

    return run


@pytest.mark.parametrize("world", WORLDS)
def test_uniform_is_stock_trl_in_rows_completions_weights_log_and_tables(runs, world):
    if world == "images" and Version(trl.__version__) < Version("1.16"):
        pytest.skip("stock TRL 1.15 samples the image placeholder, and then fails")
    stock = runs(world, "stock")
    assert len(tables(stock[0])) == 6
    assert any(entry.get("grad_norm") for entry in stock[0].state.log_history)
    assert_as_stock(runs(world, "uniform"), stock)


@pytest.mark.parametrize("sampler", ["uniform", None])
@pytest.mark.parametrize("world", WORLDS)
def test_a_resumed_run_is_the_run_that_never_stopped(runs, world, sampler):
    (whole, seen), (resumed, seen_again) = runs(world, sampler), runs(world, sampler, is_resumed=True)
    assert seen_again == seen[2:]  # of three generation batches the last; the second comes from the checkpoint
    assert_same_run(resumed, whole)


def assert_same_run(resumed, whole):
    seconds = logged(resumed, "vade/step_seconds_total")
    assert seconds == sorted(seconds)  # those of the run before are added
    assert_same_end(resumed, whole)
    assert state_digest(resumed.selection.sampler) == state_digest(whole.selection.sampler)
    assert resumed.selection.feedback.signal.facts == whole.selection.feedback.signal.facts
    assert resumed.state.num_input_tokens_seen == whole.state.num_input_tokens_seen
    assert full_history(resumed)[:-1] == full_history(whole)[:-1]  # the last has the mean loss since the resume


IMAGES = {"model": "vision_model_path", "reward": first_letter}
RESUMED = {
    "refills": lambda: {"vade_dynamic_sampling": True, "steps_per_generation": 2},
    "refills of uniform": lambda: {"vade_dynamic_sampling": True, "vade_sampler": "uniform"},
    "left out rows in two iterations": lambda: {"vade_down_sampling": "lossless", "num_iterations": 2},
    "D3S": lambda: {"vade_down_sampling": "d3s", "steps_per_generation": 4, "per_device_train_batch_size": 4},
    "the spread of a reward": lambda: {"reward": unique_letters},
    "the spread of two rewards": lambda: {"reward": [odd_length, unique_letters], "num_iterations": 2},
    "learned bounds": lambda: {"reward": unique_letters, "vade_success_threshold": None},
    "variants": lambda: {"rows": variants_of_text_rows(), "vade_variants": "of", "vade_advantage": "diva"},
    "an own sampler": lambda: {"vade_sampler": WorstLast(24, seed=5), "num_iterations": 2},
    "a peer's path": lambda: {"vade_sampler": "eval.benchmarks.learning.peers:GRESOSampler"},
    # 24 rows and 4 a generation batch: six generation batches an epoch.
    "across epochs": lambda: {"max_steps": 10, "checkpoint": 7},
    "at an epoch boundary": lambda: {"max_steps": 9, "checkpoint": 6},
    "uniform at an epoch boundary": lambda: {"vade_sampler": "uniform", "max_steps": 9, "checkpoint": 6},
    "replay": lambda: {"reward": odd_length, "vade_replay": 2},
    "replay inside a batch": lambda: {"reward": odd_length, "vade_replay": 2, "num_iterations": 2},
    "two loader workers": lambda: {"dataloader_num_workers": 2},
    "accumulation of two batches": lambda: {"gradient_accumulation_steps": 2, "steps_per_generation": 1},
    "three accumulations a batch": lambda: {"per_device_train_batch_size": 8, "steps_per_generation": 3},
    "two iterations of two accumulations": lambda: {"num_iterations": 2, "steps_per_generation": 2},
    "initial rollouts": lambda: {"vade_posterior_init": "rollout"},
    "uniform, data skip ignored": lambda: {"vade_sampler": "uniform", "ignore_data_skip": True, "max_steps": 9},
    "adapters": lambda: {"more": {"peft_config": LoraConfig(target_modules=["q_proj"])}, "steps_per_generation": 2},
    "adapters on images": lambda: RESUMED["adapters"]() | IMAGES | {"rows": rows_with_images(24)},
}
DEFAULT_RESUMED = (
    "refills",
    "D3S",
    "replay",
    "learned bounds",
    "variants",
    "an own sampler",
    "uniform, data skip ignored",
    "adapters",
)


@pytest.mark.parametrize("name", slow_but(DEFAULT_RESUMED, RESUMED))
def test_whatever_a_run_has_learned_is_resumed_to_the_bit(request, run, resumed, name):
    model = request.getfixturevalue(RESUMED[name]().get("model", "text_model_path"))
    settings, again = (RESUMED[name]() | {"model": model} for _ in range(2))
    checkpoint = settings.pop("checkpoint", CHECKPOINT)
    again.pop("checkpoint", None)
    assert_same_run(resumed(**settings, checkpoint=checkpoint), run(**again))


def test_a_resume_without_data_skip_makes_the_same_choices(run, resumed):
    settings = {"ignore_data_skip": True, "max_steps": 13}
    assert_same_end(resumed(checkpoint=8, **settings), run(**settings))  # whose log counts other epochs


def test_the_final_step_is_saved_and_the_run_can_be_made_longer(run, made, tmp_path):
    """Step 7 is no multiple of `save_steps`, and falls inside a generation batch."""
    saves = {"save_strategy": "steps", "save_steps": 5, "num_iterations": 2, "lr_scheduler_type": "constant"}
    whole = run(max_steps=12, **saves)
    run(max_steps=7, output_dir=tmp_path / "parts", **saves)
    assert {path.name for path in tmp_path.glob("parts/checkpoint-*")} == {"checkpoint-5", "checkpoint-7"}
    longer = made(max_steps=12, output_dir=tmp_path / "parts", **saves)
    longer.train(resume_from_checkpoint=True)
    assert_same_end(longer, whole)


# ------------------------------------------------------------------------------------------------ users' situations

DEFAULT = ("beta, synced", "two iterations", "an environment", "a reward that draws into the pictures")


@pytest.fixture(scope="module")
def base(text_model_path, tmp_path_factory):
    return play(Situation(), text_model_path, tmp_path_factory.mktemp("base"), stock=True)


def report_of(trainer):
    return next(each for each in trainer.callback_handler.callbacks if isinstance(each, VADEReportCallback))


def differ(left, right):
    """Whether the weights of two trainers differ; those of an adapter have other names."""
    try:
        assert_equal_weights(weights(left), weights(right))
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("name", slow_but(DEFAULT, SITUATIONS))
def test_it_is_stock_trl_to_the_bit(request, base, tmp_path, name):
    situation, model = SITUATIONS[name], request.getfixturevalue(SITUATIONS[name].model)
    stock = play(situation, model, tmp_path / "stock", stock=True)
    assert situation.as_base or differ(stock[0], base[0])  # else the situation acts on nothing
    assert not situation.logs or any(situation.logs in entry for entry in stock[0].state.log_history)
    assert bool(tables(stock[0])) is stock[0].args.log_completions
    ours = play(situation, model, tmp_path / "ours")
    assert (ours[0].selection is not None) is situation.selected
    assert_as_stock(ours, stock)
    assert report_of(ours[0]).active  # no situation is too much for the report


@pytest.mark.parametrize(
    "name", slow_but(["a rollout function"], [name for name, each in SITUATIONS.items() if each.selected])
)
def test_a_sampler_that_chooses_runs_as_long_and_logs_all_that_stock_trl_does(request, tmp_path, name):
    situation, model = SITUATIONS[name], request.getfixturevalue(SITUATIONS[name].model)
    stock, _ = play(situation, model, tmp_path / "stock", stock=True)
    ours, _ = play(situation, model, tmp_path / "chosen", vade_sampler="thompson")
    assert report_of(ours).active
    assert ours.state.global_step == stock.state.global_step or "stop" in name
    missing = {key for entry in stock.state.log_history for key in entry}
    missing -= {key for entry in ours.state.log_history for key in entry}
    trained = any(entry.get("vade/effective_gradient_ratio") for entry in ours.state.log_history)
    missing = {key for key in missing if trained or not key.startswith(("entropy", "clip_ratio"))}
    assert missing == set()


@pytest.mark.parametrize("first", ["ours", "stock"])
def test_stock_trl_goes_on_from_a_checkpoint_of_either(text_model_path, tmp_path, base, first):
    whole = Situation({"save_strategy": "steps", "save_steps": 1})
    play(whole, text_model_path, tmp_path, stock=first == "stock")

    def resumed(make, side):
        trainer = make()
        trainer.train(resume_from_checkpoint=str(tmp_path / "checkpoint-1"))
        return trainer

    stock, _ = play(replace(whole, drive=resumed), text_model_path, tmp_path, stock=True)
    assert_equal_weights(weights(stock), weights(base[0]))
    assert plain_history(stock)[:-1] == plain_history(base[0])[:-1]


def test_the_least_difference_is_seen(runs, monkeypatch):
    ours, stock = runs("text", "uniform"), runs("text", "stock")
    first = ours[0].state.log_history[0]
    for changed in ({"entropy": first["entropy"] + 1e-15}, {"another": 1}):
        monkeypatch.setattr(ours[0].state, "log_history", [first | changed, *ours[0].state.log_history[1:]])
        with pytest.raises(AssertionError):
            assert_as_stock(ours, stock)
    monkeypatch.undo()
    weight = next(ours[0].model.parameters()).data.view(-1)[:1]
    before = weight.clone()
    weight.copy_(torch.nextafter(weight, weight + 1))
    with pytest.raises(AssertionError):
        assert_as_stock(ours, stock)
    weight.copy_(before)
    assert_as_stock(ours, stock)
