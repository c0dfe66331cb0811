"""What a colocated engine is asked for, with a stand-in that notes it; with the real vLLM: `tests/engines`."""

import copy
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import Qwen2_5_VLConfig, Qwen2Config

from trl_vade.trainer.generation import colocated
from trl_vade.trainer.generation.colocated import correct_colocated_requests, image_token_of_qwen, with_single_tokens

IMAGE = Qwen2_5_VLConfig().image_token_id


@given(st.lists(st.sampled_from([1, 2, 3])))
def test_each_run_of_the_token_becomes_one_and_all_else_stays(ids):
    single = with_single_tokens(ids, 3)
    assert [token for token in single if token != 3] == [token for token in ids if token != 3]
    text = "".join(map(str, single))
    assert "33" not in text
    assert text.count("3") == len("".join(map(str, ids)).replace("1", " ").replace("2", " ").split())
    assert with_single_tokens(single, 3) == single


def test_without_a_token_nothing_changes():
    assert with_single_tokens([3, 3, 3], None) == [3, 3, 3]


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
    return SimpleNamespace(
        args=SimpleNamespace(seed=5),
        model=SimpleNamespace(config=Qwen2_5_VLConfig(), training=True),
        selection=SimpleNamespace(feedback=SimpleNamespace(rollouts=0)),
        state=SimpleNamespace(global_step=0),
        accelerator=SimpleNamespace(process_index=0),
        vllm_generation=SimpleNamespace(llm=Engine(), tensor_parallel_size=1),
    )


def params(**changes):
    return SimpleNamespace(**{"n": 1, "seed": None, "temperature": 1.0} | changes)


def rows(*groups):
    """As TRL 1.16 makes them: each prompt G times, its image expanded."""
    images = [object() for _ in groups]
    return [
        {"prompt_token_ids": [number, IMAGE, IMAGE, 9], "multi_modal_data": {"image": images[number]}}
        for number, size in enumerate(groups)
        for _ in range(size)
    ]


def test_a_group_is_one_request_with_one_image_token_and_comes_back_as_its_completions(trainer):
    correct_colocated_requests(trainer)
    engine, batch = trainer.vllm_generation.llm, rows(4, 2, 4)
    before = copy.deepcopy([row["prompt_token_ids"] for row in batch])
    outputs = engine.generate(batch, sampling_params=params(), use_tqdm=False)
    assert [row["prompt_token_ids"] for row in engine.requests] == [[0, IMAGE, 9], [1, IMAGE, 9], [2, IMAGE, 9]]
    assert [row["multi_modal_data"] for row in engine.requests] == [batch[i]["multi_modal_data"] for i in (0, 4, 6)]
    assert [each.n for each in engine.params] == [4, 2, 4]
    assert engine.options == {"use_tqdm": False}
    assert [output.outputs for output in outputs] == [
        [f"{group}-{i}"] for group, size in enumerate((4, 2, 4)) for i in range(size)
    ]
    assert [row["prompt_token_ids"] for row in batch] == before  # the trainer's own ids stay expanded


def test_equal_questions_about_different_pictures_are_different_requests(trainer):
    correct_colocated_requests(trainer)
    batch = [{"prompt_token_ids": [1, IMAGE], "multi_modal_data": {"image": object()}} for _ in range(3)]
    trainer.vllm_generation.llm.generate(batch, sampling_params=params())
    assert [each.n for each in trainer.vllm_generation.llm.params] == [1, 1, 1]


def seeds(trainer, batch=None, **changes):
    trainer.vllm_generation.llm.generate(batch or rows(4, 4, 4), sampling_params=params(**changes))
    return [each.seed for each in trainer.vllm_generation.llm.params]


def test_seeds_are_a_function_of_the_seed_and_the_place_in_the_run(trainer):
    correct_colocated_requests(trainer)
    batch = rows(4, 4, 4)
    first = seeds(trainer, batch)
    assert len(set(first)) == 3
    assert seeds(trainer, batch) == first
    for place, name, value in [
        (trainer.args, "seed", 6),
        (trainer.state, "global_step", 1),
        (trainer.selection.feedback, "rollouts", 12),
        (trainer.model, "training", False),
        (trainer.accelerator, "process_index", 1),
    ]:
        before = getattr(place, name)
        setattr(place, name, value)
        assert not set(seeds(trainer, batch)) & set(first)
        setattr(place, name, before)


def test_the_processes_of_a_tensor_parallel_group_ask_for_the_same_samples_and_groups_for_others(trainer):
    correct_colocated_requests(trainer)
    trainer.vllm_generation.tensor_parallel_size = 2
    batch, of = rows(4, 4), []
    for process in range(4):
        trainer.accelerator.process_index = process
        of.append(seeds(trainer, batch))
    assert of[0] == of[1]
    assert of[2] == of[3]
    assert not set(of[0]) & set(of[2])


def test_a_seed_of_the_users_stands(trainer):
    correct_colocated_requests(trainer)
    assert seeds(trainer, seed=11) == [11, 11, 11]


def test_what_does_not_come_from_trl_passes_as_it_is(trainer):
    correct_colocated_requests(trainer)
    engine = trainer.vllm_generation.llm
    for prompts, given_params in [
        ("a prompt", params()),
        (["a prompt"], params()),
        ([{"prompt": "a prompt"}], params()),
        (rows(2), None),
        (rows(2), params(n=3)),
        (rows(2), [params(), params()]),
    ]:
        engine.generate(prompts, given_params)
        assert engine.requests is prompts
        assert engine.params is given_params
