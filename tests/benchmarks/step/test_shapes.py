"""The published shapes of Qwen2.5-VL, against what is known of the published weights."""

import pytest
import torch
from transformers import Qwen2_5_VLForConditionalGeneration

from eval.benchmarks.step.shapes import qwen2_5_vl_config


def on_meta(size):
    with torch.device("meta"):
        return Qwen2_5_VLForConditionalGeneration(qwen2_5_vl_config(size))


@pytest.mark.parametrize(("size", "parameters"), [("3b", 3_754_622_976), ("7b", 8_292_166_656)])
def test_it_has_as_many_parameters_as_the_index_files_of_the_published_weights_count(size, parameters):
    assert sum(weight.numel() for weight in on_meta(size).parameters()) == parameters


@pytest.mark.parametrize(("size", "tied"), [("3b", True), ("7b", False)])
def test_only_the_small_model_ties_its_head_to_its_embedding(size, tied):
    model = on_meta(size)
    assert (model.get_input_embeddings().weight is model.get_output_embeddings().weight) is tied


@pytest.mark.parametrize("size", ["3b", "7b"])
def test_rotary_sections_heads_and_image_tokens_go_together(size):
    config = qwen2_5_vl_config(size)
    text, vision = config.text_config, config.vision_config
    head = text.hidden_size // text.num_attention_heads
    assert 2 * sum(text.rope_parameters["mrope_section"]) == head == 128
    assert text.rope_parameters["rope_theta"] == 1e6
    assert vision.out_hidden_size == text.hidden_size
    assert list(vision.fullatt_block_indexes) == [7, 15, 23, 31]
    assert (config.image_token_id, config.video_token_id) == (151655, 151656)
