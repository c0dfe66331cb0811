"""The tiny model: real classes, real files, and a short fine-tuning that repeats itself."""

import subprocess
import sys
from itertools import islice

import numpy as np
import pytest
import torch
from transformers import (
    AutoModelForImageTextToText,
    AutoProcessor,
    Qwen2_5_VLForConditionalGeneration,
    Qwen2_5_VLProcessor,
)

from trl_vade.testbed import build_dataset, load_testbed_model
from trl_vade.testbed import model as model_module
from trl_vade.testbed.dataset import iter_scenes
from trl_vade.testbed.model import IGNORED, SFTSettings, build_model, encode_batch, finetune
from trl_vade.testbed.processor import SPECIAL_TOKENS, build_processor

SHORT = SFTSettings(steps=4, batch_size=8, warmup_steps=1)


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    return load_testbed_model(cache_dir=tmp_path_factory.mktemp("cache"), settings=SHORT, progress=False)


@pytest.fixture(scope="module")
def model(directory):
    return AutoModelForImageTextToText.from_pretrained(directory)


@pytest.fixture(scope="module")
def processor(directory):
    return AutoProcessor.from_pretrained(directory)


@pytest.fixture(scope="module")
def rows():
    return build_dataset(12, 12, progress=False)["validation"]


def conversation(row):
    """What TRL hands to the processor: the image block in front of the text block."""
    text = {"type": "text", "text": row["prompt"][0]["content"]}
    return [{"role": "user", "content": [{"type": "image", "image": row["images"][0]}, text]}]


def test_the_directory_loads_through_the_auto_classes_as_qwen(model, processor, directory):
    tokenizer, text = processor.tokenizer, model.config.text_config
    assert (type(model), type(processor)) == (Qwen2_5_VLForConditionalGeneration, Qwen2_5_VLProcessor)
    assert 300_000 <= sum(parameter.numel() for parameter in model.parameters()) <= 400_000
    assert text.hidden_size // text.num_attention_heads == 32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    assert {path.suffix for path in directory.iterdir()} <= {".json", ".safetensors", ".jinja"}
    assert tokenizer.convert_ids_to_tokens(range(len(SPECIAL_TOKENS))) == list(SPECIAL_TOKENS)
    special = (tokenizer.eos_token, tokenizer.pad_token, tokenizer.padding_side)
    assert special == ("<|im_end|>", "<|endoftext|>", "left")
    for part, token in (("image", "<|image_pad|>"), ("video", "<|video_pad|>")):
        assert getattr(model.config, f"{part}_token_id") == tokenizer.convert_tokens_to_ids(token)
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    assert model.generation_config.pad_token_id == tokenizer.pad_token_id
    assert text.vocab_size == len(tokenizer)


@pytest.mark.slow
def test_the_tokenizer_is_the_same_in_every_process():
    code = "import sys; sys.modules.update(torch=None, torchvision=None)\n"  # it takes seconds to import, for nothing
    code += "from trl_vade.testbed.processor import build_tokenizer as b; print(sorted(b().get_vocab().items()))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert other.strip() == str(sorted(build_processor().tokenizer.get_vocab().items()))


def test_the_chat_template_writes_qwens_turns(processor):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "Which digit is this?"}]},
        {"role": "assistant", "content": "<answer>7</answer>"},
    ]
    text = processor.apply_chat_template(messages)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n<|vision_start|><|image_pad|><|vision_end|>Which digit is this?<|im_end|>\n"
        "<|im_start|>assistant\n<answer>7</answer><|im_end|>\n"
    )
    prompt = processor.apply_chat_template(messages[:2], add_generation_prompt=True)
    assert text.startswith(prompt)
    assert prompt.endswith("<|im_start|>assistant\n")
    ids = processor.tokenizer(text)["input_ids"]
    assert processor.tokenizer.decode(ids) == text


def test_every_answer_fits_into_twelve_tokens_and_it_alone_is_taught(processor):
    for scene in islice(iter_scenes("train", 3), 240):
        answer = f"<answer>{scene.answer}</answer>"
        ids = processor.tokenizer(answer + "<|im_end|>")["input_ids"]
        assert len(ids) <= 12
        assert processor.tokenizer.decode(ids, skip_special_tokens=True) == answer
    scenes = [*islice(iter_scenes("sft", 0), 6)]
    batch = encode_batch(scenes, processor)
    for scene, ids, labels in zip(scenes, batch["input_ids"], batch["labels"], strict=True):
        taught = labels != IGNORED
        assert processor.tokenizer.decode(ids[taught]) == f"<answer>{scene.answer}</answer><|im_end|>"
        assert not taught[: -taught.sum()].any()


def test_the_model_generates_from_a_picture_of_four_tokens(model, processor, rows):
    as_tensors = {"tokenize": True, "return_dict": True, "return_tensors": "pt", "processor_kwargs": {"padding": True}}
    asked = [conversation(rows[0]), conversation(rows[11])]
    inputs = processor.apply_chat_template(asked, add_generation_prompt=True, **as_tensors)
    assert (inputs["input_ids"] == processor.image_token_id).sum() == 2 * 4
    assert inputs["image_grid_thw"].tolist() == [[1, 4, 4]] * 2
    tokens = model.generate(**inputs, max_new_tokens=5, suppress_tokens=[processor.image_token_id])
    assert tokens.shape[1] > inputs["input_ids"].shape[1]
    pixels = model(**inputs).logits
    inputs["pixel_values"] = -inputs["pixel_values"]
    assert not torch.allclose(pixels, model(**inputs).logits)  # the picture reaches the words


def test_the_same_seed_gives_the_same_weights_and_another_seed_others(processor):
    def train(seed):
        model = build_model(processor, seed)
        finetune(model, processor, SHORT, seed, progress=False)
        return b"".join(tensor.numpy().tobytes() for _, tensor in sorted(model.state_dict().items()))

    state = torch.random.get_rng_state()
    assert (first := train(0)) == train(0) != train(1) != first
    assert torch.equal(state, torch.random.get_rng_state())


@pytest.mark.slow
def test_fine_tuning_learns(processor):
    settings = SFTSettings(steps=40, batch_size=8)
    losses = finetune(build_model(processor), processor, settings, progress=False)
    assert len(losses) == 40
    assert np.mean(losses[-5:]) < 0.4 * np.mean(losses[:5])


def test_a_cached_model_is_not_built_twice(directory, monkeypatch):
    monkeypatch.setattr(model_module, "finetune", lambda *_, **__: pytest.fail("built a second time"))
    assert load_testbed_model(cache_dir=directory.parent, settings=SHORT, progress=False) == directory
