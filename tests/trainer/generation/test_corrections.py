"""What is corrected in generation, where no engine is needed to see it; with the real vLLM: `tests/engines`."""

from types import SimpleNamespace

import pytest
from transformers import PretrainedConfig, Qwen2_5_VLConfig, Qwen2Config

from tests.support.refusals import refused
from tests.support.runs import says_a_digit
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import EngineError
from trl_vade.trainer.generation.corrections import (
    VLLM_BIAS_FLOOR,
    reset_vision_embeddings,
    suppress_vision_tokens,
    vision_token_ids,
    without_missing_images,
)

# ---------------------------------------------------------------------------------------- which tokens are meant


def test_qwen_has_a_placeholder_for_images_and_one_for_videos():
    config = Qwen2_5_VLConfig()
    assert vision_token_ids(config) == sorted([config.image_token_id, config.video_token_id])
    assert len(vision_token_ids(config)) == 2


def test_a_text_model_has_no_placeholders():
    assert vision_token_ids(Qwen2Config()) == []


def test_a_model_with_one_placeholder_for_both_names_it_once():
    assert vision_token_ids(PretrainedConfig(image_token_id=9, video_token_id=9)) == [9]


def test_a_model_without_videos_has_the_image_placeholder_alone():
    assert vision_token_ids(PretrainedConfig(image_token_id=9, video_token_id=None)) == [9]


def test_token_zero_is_a_token():
    assert vision_token_ids(PretrainedConfig(image_token_id=0)) == [0]


# ---------------------------------------------------------------------------------------- the transformers engine


def train_and_collect(text_model_path, text_rows, args, placeholders):
    """Train a text model whose config names two ordinary tokens as placeholders; return all ids it generated."""
    generated = set()

    def collecting(completions, completion_ids, **kwargs):
        generated.update(token for ids in completion_ids for token in ids)
        return says_a_digit(completions, **kwargs)

    trainer = VADEGRPOTrainer(text_model_path, collecting, args, text_rows)
    for kind, token_id in placeholders.items():
        setattr(trainer.model.config, f"{kind}_token_id", token_id)
    suppress_vision_tokens(trainer)
    trainer.train()
    return generated


def test_placeholders_and_what_the_user_suppressed_are_never_generated(text_model_path, text_rows, make_args):
    # A temperature at which every token of the vocabulary of 20 is drawn in a few hundred.
    changes = {"max_steps": 4, "temperature": 3.0, "learning_rate": 0.0, "max_completion_length": 8}
    free = train_and_collect(text_model_path, text_rows, make_args(**changes), {})
    assert {5, 6, 7} <= free
    args = make_args(**changes, generation_kwargs={"suppress_tokens": [7]})
    assert not {5, 6, 7} & train_and_collect(text_model_path, text_rows, args, {"image": 5, "video": 6})


def test_both_places_that_trl_generates_from_name_the_same_tokens(text_model_path, text_rows, make_args):
    args = make_args(generation_kwargs={"suppress_tokens": [7]})
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    trainer.model.config.image_token_id, trainer.model.config.video_token_id = 5, 6
    suppress_vision_tokens(trainer)
    assert trainer.generation_config.suppress_tokens == [5, 6, 7]
    assert trainer.generation_kwargs["suppress_tokens"] == [5, 6, 7]
    assert args.generation_kwargs == {"suppress_tokens": [7]}


def test_a_text_models_generation_is_left_alone(text_model_path, text_rows, make_args):
    args = make_args(generation_kwargs={"suppress_tokens": [7]})
    trainer = VADEGRPOTrainer(text_model_path, says_a_digit, args, text_rows)
    assert trainer.generation_config.suppress_tokens == [7]
    assert trainer.generation_kwargs["suppress_tokens"] == [7]


# ----------------------------------------------------------------------------------------------------------- vLLM


def vllm_trainer(**generation_kwargs):
    """vLLM is no dependency of the tests: as a last resort, a namespace with the three attributes that are read.

    `VLLMGeneration` (TRL 1.16) hands `generation_kwargs` to vLLM's `SamplingParams`, in both of its modes.
    """
    return SimpleNamespace(
        model=SimpleNamespace(config=Qwen2_5_VLConfig()),
        use_vllm=True,
        vllm_generation=SimpleNamespace(generation_kwargs=generation_kwargs),
    )


def test_with_vllm_both_placeholders_get_the_lowest_bias():
    trainer = vllm_trainer()
    suppress_vision_tokens(trainer)
    bias = trainer.vllm_generation.generation_kwargs["logit_bias"]
    assert bias == dict.fromkeys(vision_token_ids(Qwen2_5_VLConfig()), VLLM_BIAS_FLOOR)
    assert VLLM_BIAS_FLOOR == -100.0  # what vLLM clips to


@pytest.mark.parametrize("logit_bias", [None, {}, {11: 2.5}, {11: 2.5, Qwen2_5_VLConfig().image_token_id: 100.0}])
def test_with_vllm_the_users_biases_for_other_tokens_and_other_options_are_kept(logit_bias):
    trainer = vllm_trainer(logit_bias=logit_bias, stop=["</answer>"], min_tokens=2)
    suppress_vision_tokens(trainer)
    kwargs = trainer.vllm_generation.generation_kwargs
    placeholders = dict.fromkeys(vision_token_ids(Qwen2_5_VLConfig()), VLLM_BIAS_FLOOR)
    others = {11: 2.5} if logit_bias else {}
    assert kwargs == {"logit_bias": others | placeholders, "stop": ["</answer>"], "min_tokens": 2}


def test_with_vllm_biases_from_a_command_line_are_read_as_the_tokens_they_name():
    image = Qwen2_5_VLConfig().image_token_id
    trainer = vllm_trainer(logit_bias={"11": 2.5, str(image): 100.0})
    suppress_vision_tokens(trainer)
    placeholders = dict.fromkeys(vision_token_ids(Qwen2_5_VLConfig()), VLLM_BIAS_FLOOR)
    assert trainer.vllm_generation.generation_kwargs["logit_bias"] == {11: 2.5} | placeholders


def test_with_vllm_the_users_own_dictionary_is_not_written_into():
    users = {"logit_bias": {11: 2.5}}
    trainer = vllm_trainer()
    trainer.vllm_generation.generation_kwargs = users
    suppress_vision_tokens(trainer)
    assert users == {"logit_bias": {11: 2.5}}


def test_with_vllm_a_text_model_gets_no_bias():
    trainer = vllm_trainer(stop=["</answer>"])
    trainer.model.config = Qwen2Config()
    suppress_vision_tokens(trainer)
    assert trainer.vllm_generation.generation_kwargs == {"stop": ["</answer>"]}


# ------------------------------------------------------------------------------------------------- missing images


@pytest.mark.parametrize(
    ("images", "written"),
    [
        ([["a"], None, ["b", "c"], []], [["a"], [], ["b", "c"], []]),
        ([["a"], ["b"]], [["a"], ["b"]]),
        (None, None),
    ],
)
def test_a_row_without_images_is_written_as_an_empty_list_and_a_text_batch_stays_one(images, written):
    assert without_missing_images((*range(6), images, [])) == (*range(6), written, [])


# ---------------------------------------------------------------------------------------------- vision embeddings


class Server:
    """The part of TRL's client that is called, and an answer: a stand-in, as `tests/engines` has the real one."""

    base_url = "http://127.0.0.1:8000"

    def __init__(self, status):
        self.status, self.calls, self.session = status, [], self

    def post(self, url):
        self.calls.append(url)
        return SimpleNamespace(status_code=self.status, text="no such route")


def server_trainer(server, *, main=True):
    calls = server.calls
    generation = SimpleNamespace(mode="server", vllm_client=server, sync_weights=lambda: calls.append("weights"))
    return SimpleNamespace(vllm_generation=generation, accelerator=SimpleNamespace(is_main_process=main))


def test_a_server_forgets_its_vision_embeddings_after_each_weight_sync_and_the_main_process_asks_for_it():
    for main in (True, False):
        server = Server(200)
        trainer = server_trainer(server, main=main)
        reset_vision_embeddings(trainer)
        trainer.vllm_generation.sync_weights()
        trainer.vllm_generation.sync_weights()
        assert server.calls == ["weights", *["http://127.0.0.1:8000/reset_encoder_cache"] * main] * 2


def test_a_server_that_cannot_forget_them_is_an_error_that_says_how_to_start_it():
    trainer = server_trainer(Server(404))
    reset_vision_embeddings(trainer)
    with refused(EngineError, names=[404, "no such route"], offers=["VLLM_SERVER_DEV_MODE=1"]):
        trainer.vllm_generation.sync_weights()
