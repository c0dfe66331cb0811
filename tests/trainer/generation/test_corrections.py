"""What is corrected in generation, where no engine is needed to see it; with the real vLLM: `tests/engines`."""

import copy
from types import SimpleNamespace

import pytest
from transformers import PretrainedConfig, Qwen2_5_VLConfig, Qwen2Config

from tests.support.refusals import refused
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import EngineError
from trl_vade.trainer.generation.corrections import (
    reset_vision_embeddings,
    suppress_vision_tokens,
    vision_token_ids,
    without_missing_images,
)

PLACEHOLDERS = vision_token_ids(Qwen2_5_VLConfig())


def test_placeholders_are_those_of_images_and_videos_that_the_model_names():
    qwen = Qwen2_5_VLConfig()
    assert sorted({qwen.image_token_id, qwen.video_token_id}) == PLACEHOLDERS
    assert len(PLACEHOLDERS) == 2
    assert vision_token_ids(Qwen2Config()) == []
    for video in (0, None):
        assert vision_token_ids(PretrainedConfig(image_token_id=0, video_token_id=video)) == [0]


# ---------------------------------------------------------------------------------------- the transformers engine


def text_trainer(model, rows, args, reward=says_a_digit, **placeholders):
    """Of a text model whose configuration names ordinary tokens as placeholders."""
    trainer = VADEGRPOTrainer(model, reward, args, rows)
    vars(trainer.model.config).update(placeholders)
    suppress_vision_tokens(trainer)
    return trainer


def test_placeholders_and_what_the_user_suppressed_are_never_generated(text_model_path, text_rows, make_args):
    generated = set()

    def collecting(completions, completion_ids, **kwargs):
        generated.update(token for ids in completion_ids for token in ids)
        return says_a_digit(completions, **kwargs)

    # A temperature at which every token of the vocabulary of 20 is drawn in a few hundred.
    changes = {"max_steps": 4, "temperature": 3.0, "learning_rate": 0.0, "max_completion_length": 8}
    text_trainer(text_model_path, text_rows, make_args(**changes), collecting).train()
    assert {5, 6, 7} <= generated
    generated.clear()
    args = make_args(**changes, generation_kwargs={"suppress_tokens": [7]})
    text_trainer(text_model_path, text_rows, args, collecting, image_token_id=5, video_token_id=6).train()
    assert not {5, 6, 7} & generated


@pytest.mark.parametrize(("placeholders", "suppressed"), [({}, [7]), ({"image_token_id": 5}, [5, 7])])
def test_both_places_that_trl_generates_from_name_the_same_tokens(
    text_model_path, text_rows, make_args, placeholders, suppressed
):
    args = make_args(generation_kwargs={"suppress_tokens": [7]})
    trainer = text_trainer(text_model_path, text_rows, args, **placeholders)
    assert trainer.generation_config.suppress_tokens == suppressed
    assert trainer.generation_kwargs["suppress_tokens"] == suppressed
    assert args.generation_kwargs == {"suppress_tokens": [7]}


# ----------------------------------------------------------------------------------------------------------- vLLM


def vllm_options(model_config=Qwen2_5_VLConfig(), **users):  # noqa: B008
    """What vLLM's `SamplingParams` get in both of TRL's modes (1.16), with these options of the user.

    vLLM is no dependency of the tests: as a last resort, a namespace with the three attributes that are read.
    """
    engine, before = SimpleNamespace(generation_kwargs=users), copy.deepcopy(users)
    model = SimpleNamespace(config=model_config)
    suppress_vision_tokens(SimpleNamespace(model=model, use_vllm=True, vllm_generation=engine))
    assert users == before
    return engine.generation_kwargs


@pytest.mark.parametrize(
    ("users", "kept"),
    [
        ({}, {}),
        ({"logit_bias": None}, {}),
        ({"logit_bias": {11: 2.5}}, {11: 2.5}),
        ({"logit_bias": {"11": 2.5, str(PLACEHOLDERS[0]): 100.0}}, {11: 2.5}),  # as a command line has it
    ],
)
def test_with_vllm_placeholders_get_the_lowest_bias_and_the_users_options_are_kept(users, kept):
    found = vllm_options(**users, stop=["</answer>"], min_tokens=2)
    bias = kept | dict.fromkeys(PLACEHOLDERS, -100.0)  # what vLLM clips to
    assert found == {"logit_bias": bias, "stop": ["</answer>"], "min_tokens": 2}


def test_with_vllm_a_text_model_gets_no_bias():
    assert vllm_options(Qwen2Config(), stop=["</answer>"]) == {"stop": ["</answer>"]}


# ------------------------------------------------------------------------------------------------- missing images


def test_a_row_without_images_is_written_as_an_empty_list_and_a_text_batch_stays_one():
    for images, written in (([["a"], None, ["b", "c"], []], [["a"], [], ["b", "c"], []]), (None, None)):
        assert without_missing_images((*range(6), images, [])) == (*range(6), written, [])


# ---------------------------------------------------------------------------------------------- vision embeddings


class Server:
    """The part of TRL's client that is called, and an answer: a stand-in, as `tests/engines` has the real one."""

    base_url = "http://127.0.0.1:8000"

    def __init__(self, status=200):
        self.status, self.calls, self.session = status, [], self

    def post(self, url):
        self.calls.append(url)
        return SimpleNamespace(status_code=self.status, text="no such route")


def sync(server, *, main=True):
    """Bring the weights to the server twice."""
    calls = server.calls
    engine = SimpleNamespace(mode="server", vllm_client=server, sync_weights=lambda: calls.append("weights"))
    trainer = SimpleNamespace(vllm_generation=engine, accelerator=SimpleNamespace(is_main_process=main))
    reset_vision_embeddings(trainer)
    engine.sync_weights()
    engine.sync_weights()
    return calls


def test_a_server_forgets_its_vision_embeddings_after_each_weight_sync_and_the_main_process_asks_for_it():
    assert sync(Server()) == ["weights", "http://127.0.0.1:8000/reset_encoder_cache"] * 2
    assert sync(Server(), main=False) == ["weights"] * 2


def test_a_server_that_cannot_forget_them_is_an_error_that_says_how_to_start_it():
    with refused(EngineError, names=[404, "no such route"], offers=["VLLM_SERVER_DEV_MODE=1"]):
        sync(Server(404))
