"""What is corrected in generation, where no engine is needed to see it; with the real vLLM: `tests/engines`.

That a policy never samples a placeholder, in a real run: `tests/trainer/test_vision.py`.
"""

import copy
from types import SimpleNamespace

import pytest
from transformers import PretrainedConfig, Qwen2_5_VLConfig, Qwen2Config

from tests.support.refusals import refused
from trl_vade import VADEGRPOConfig
from trl_vade.errors import EngineError
from trl_vade.trainer.generation.corrections import (
    reset_vision_embeddings,
    scaled_ratios_notice,
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


@pytest.mark.parametrize("by_trl", [[5, 6, 7], [5, 7], [7], None])  # all, as TRL 1.16, and none
def test_both_places_that_trl_generates_from_name_the_same_tokens(by_trl):
    trainer = SimpleNamespace(
        model=SimpleNamespace(config=SimpleNamespace(image_token_id=5, video_token_id=6)),
        use_vllm=False,
        generation_config=SimpleNamespace(suppress_tokens=by_trl),
        generation_kwargs={"suppress_tokens": by_trl},
    )
    suppress_vision_tokens(trainer)
    assert trainer.generation_config.suppress_tokens == sorted({5, 6, *(by_trl or ())})
    assert trainer.generation_kwargs["suppress_tokens"] == trainer.generation_config.suppress_tokens


def vllm_options(model_config, **users):
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
    found = vllm_options(Qwen2_5_VLConfig(), **users, stop=["</answer>"])
    bias = kept | dict.fromkeys(PLACEHOLDERS, -100.0)  # what vLLM clips to
    assert found == {"logit_bias": bias, "stop": ["</answer>"]}
    assert vllm_options(Qwen2Config(), stop=["</answer>"]) == {"stop": ["</answer>"]}  # a text model


def test_a_row_without_images_is_written_as_an_empty_list_and_a_text_batch_stays_one():
    for images, written in (([["a"], None, ["b", "c"], []], [["a"], [], ["b", "c"], []]), (None, None)):
        for given in (images, written):  # as TRL 1.16 has it, and as if it were mended
            assert without_missing_images((*range(6), given, [])) == (*range(6), written, [])


def notice(version="1.16.0", **settings):
    vllm = {"use_vllm": True} | settings
    return scaled_ratios_notice(VADEGRPOConfig("out", use_cpu=True, bf16=False, report_to="none", **vllm), version)


def test_ratios_that_trl_before_1_17_scales_are_told_of_with_the_setting():
    for cut in ({"top_p": 0.9}, {"top_k": 20}, {"min_p": 0.1}, {"generation_kwargs": {"top_p": 0.9}}):
        ((name, value),) = cut.get("generation_kwargs", cut).items()
        assert f"{name}={value}" in notice(**cut)
    for sound in ({}, {"top_p": 1.0, "top_k": 0, "min_p": 0.0}, {"top_k": -1}):
        assert notice(**sound) is None
    for sound in ({"version": "1.17.0"}, {"use_vllm": False}, {"vllm_importance_sampling_correction": False}):
        assert notice(top_p=0.9, **sound) is None


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
