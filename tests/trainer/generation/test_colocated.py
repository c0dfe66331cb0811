"""What a colocated engine is asked for, with a stand-in that notes it; with the real vLLM: `tests/engines`."""

from itertools import groupby
from types import SimpleNamespace

import pytest
from accelerate import PartialState
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2_5_VLConfig, Qwen2Config

from trl_vade.trainer.generation import colocated
from trl_vade.trainer.generation.colocated import correct_colocated_requests, image_token_of_qwen, with_single_tokens

IMAGE = Qwen2_5_VLConfig().image_token_id


@given(st.lists(st.sampled_from([1, 2, 3])))
def test_each_run_of_the_token_becomes_one_and_all_else_stays(ids):
    assert with_single_tokens(ids, None) == ids
    assert with_single_tokens(ids, 3) == [each for run in groupby(ids) for each in ([3] if run[0] == 3 else run[1])]


def test_only_models_that_put_marks_around_an_image_have_their_tokens_collapsed():
    assert image_token_of_qwen(Qwen2_5_VLConfig()) == IMAGE
    assert image_token_of_qwen(Qwen2Config()) is None
    assert image_token_of_qwen(SimpleNamespace(image_token_id=7)) is None  # Gemma, LLaVA, ...


class Engine:
    """Stands in for vLLM's `LLM`, which the tests do not have: notes requests, answers i to completion i of each."""

    def __init__(self):
        self.requests, self.params = None, None

    def generate(self, prompts, sampling_params=None, **options):
        self.requests, self.params, self.options = prompts, sampling_params, options
        if not isinstance(sampling_params, list):
            return ["as it came"]
        return [
            SimpleNamespace(prompt_token_ids=row["prompt_token_ids"], outputs=[f"{number}-{i}" for i in range(each.n)])
            for number, (row, each) in enumerate(zip(prompts, sampling_params, strict=True))
        ]


@pytest.fixture
def trainer(monkeypatch):
    monkeypatch.setattr(colocated, "set_seed", lambda *args, **kwargs: None)  # tests share a process
    made = SimpleNamespace(
        args=SimpleNamespace(seed=5),
        model=SimpleNamespace(config=Qwen2_5_VLConfig(), training=True),
        selection=SimpleNamespace(feedback=SimpleNamespace(rollouts=0)),
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(process_index=0),
        rollout_func=None,
        vllm_generation=SimpleNamespace(llm=Engine(), tensor_parallel_size=2),
    )
    correct_colocated_requests(made)
    return made


def params(**changes):
    return SimpleNamespace(**{"n": 1, "seed": None, "temperature": 1.0} | changes)


def row(ids=(1, IMAGE, IMAGE, 9), image=None):
    """As TRL 1.16 makes it: one image by itself, several as a list, and their tokens expanded."""
    return {"prompt_token_ids": [*ids]} | ({} if image is None else {"multi_modal_data": {"image": image}})


def rows(*groups):
    """Each prompt G times."""
    images = [object() for _ in groups]
    return [row((i, IMAGE, IMAGE, 9), images[i]) for i, size in enumerate(groups) for _ in range(size)]


def test_a_group_is_one_request_with_one_image_token_and_comes_back_as_its_completions(trainer):
    engine, batch = trainer.vllm_generation.llm, rows(4, 2, 4)
    outputs = engine.generate(batch, sampling_params=params(), use_tqdm=False)
    assert engine.requests == [batch[i] | {"prompt_token_ids": [group, IMAGE, 9]} for group, i in enumerate((0, 4, 6))]
    assert [each.n for each in engine.params] == [4, 2, 4]
    assert engine.options == {"use_tqdm": False}
    assert [output.outputs for output in outputs] == [
        [f"{group}-{i}"] for group, size in enumerate((4, 2, 4)) for i in range(size)
    ]
    assert batch[0]["prompt_token_ids"] == [0, IMAGE, IMAGE, 9]  # the trainer's own ids stay expanded


def test_another_image_or_text_is_another_request(trainer):
    picture, other = object(), object()
    batch = [row(image=picture), row(image=other), row(image=[picture, other]), row(image=[picture, other])]
    batch += [row(), row((1, 2)), row((1, 2))]
    trainer.vllm_generation.llm.generate(batch, sampling_params=params())
    assert [each.n for each in trainer.vllm_generation.llm.params] == [1, 1, 2, 1, 2]


def seeds(trainer, batch, **changes):
    trainer.vllm_generation.llm.generate(batch, sampling_params=params(**changes))
    return [each.seed for each in trainer.vllm_generation.llm.params]


def test_each_place_in_a_run_has_seeds_of_its_own_and_a_tensor_parallel_group_shares_them(trainer, monkeypatch):
    batch = rows(4, 4, 4)
    seen = seeds(trainer, batch)
    assert seeds(trainer, batch) == seen
    assert seeds(trainer, batch, seed=11) == [11, 11, 11]
    trainer.accelerator.process_index = 1
    assert seeds(trainer, batch) == seen
    for place, name, value in [
        (trainer.args, "seed", 6),
        (trainer.state, "global_step", 1),
        (trainer.selection.feedback, "rollouts", 12),
        (trainer.model, "training", False),
        (trainer.accelerator, "process_index", 2),
    ]:
        with monkeypatch.context() as patch:
            patch.setattr(place, name, value)
            seen += seeds(trainer, batch)
    seen += seeds(trainer, [row((5, 6))]) + seeds(trainer, [row((6, 5))])
    assert len({*seen}) == len(seen)


@pytest.mark.parametrize("rollout_func", [None, print])
def test_what_does_not_come_from_trl_passes_as_it_is_and_is_named_once_but_for_a_rollout_function(
    trainer, caplog, monkeypatch, rollout_func
):
    PartialState()  # the logger asks for it
    colocated.logger.warning_once.cache_clear()  # said before, in another case
    engine, trainer.rollout_func = trainer.vllm_generation.llm, rollout_func
    for prompts, given_params in [
        ("a prompt", params()),
        (row(), params()),
        ([{"prompt": "a prompt"}], params()),
        ([SimpleNamespace(prompt_token_ids=[1, 2])], params()),
        (rows(2), None),
        (rows(2), params(n=3)),
        (rows(2), [params(), params()]),
    ]:
        engine.generate(prompts, given_params)
        assert engine.requests is prompts
        assert engine.params is given_params
    words = ["image tokens", "once for each completion", "no seed"]
    assert [all(word in each for word in words) for each in caplog.messages] == [True] * (rollout_func is None)
