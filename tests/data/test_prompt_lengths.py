"""The tokens of prompts, counted from sizes, against those that TRL makes; rows that are too long; the cache."""

import copy
import io
import os
import random
import socket
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import PIL.Image
import pytest
from datasets import Dataset
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers.processors import TemplateProcessing
from transformers import (
    AddedToken,
    AutoProcessor,
    PixtralImageProcessor,
    PixtralProcessor,
    Qwen2_5_VLProcessor,
    Qwen2VLImageProcessor,
)
from trl import GRPOConfig, GRPOTrainer
from trl.data_utils import prepare_multimodal_messages

from tests.support.prompts import asked, loaded, of_full_size, picture, rows_of, uneven_rows
from tests.support.refusals import refused
from tests.support.rows import make_text_rows
from tests.support.runs import always_half
from trl_vade import VADEGRPOTrainer
from trl_vade.data.loading import with_image_lists
from trl_vade.data.prompt_lengths import PromptCounter, prompt_lengths
from trl_vade.errors import ConfigurationError, ImageDecodeError
from trl_vade.testbed.processor import build_processor, build_tokenizer
from trl_vade.trainer import overlong


def encoded(image, format="PNG", **options):
    file = io.BytesIO()
    image.save(file, format, **options)
    return {"bytes": file.getvalue(), "path": None}


def pixtral():
    """A processor for which an image and its turned copy differ, since each line of patches ends in a token."""
    tokenizer = build_tokenizer()
    tokenizer.add_tokens([AddedToken(token, special=True) for token in ("[IMG]", "[IMG_BREAK]", "[IMG_END]")])
    template = tokenizer.chat_template.replace("<|vision_start|><|image_pad|><|vision_end|>", "[IMG]")
    return PixtralProcessor(PixtralImageProcessor(), tokenizer, patch_size=16, chat_template=template)


class SilentProcessor(Qwen2_5_VLProcessor):
    """One that cannot say how many tokens an image of some size becomes."""

    @property
    def _get_num_multimodal_tokens(self):
        raise AttributeError("not here")


class MistakenProcessor(Qwen2_5_VLProcessor):
    """One that forgets a token that it makes."""

    def _get_num_multimodal_tokens(self, image_sizes=None, **kwargs):
        data = super()._get_num_multimodal_tokens(image_sizes, **kwargs)
        data.num_image_tokens = [tokens - 1 for tokens in data.num_image_tokens]
        return data


FULL_SIZE, PIXTRAL = of_full_size(), pixtral()


def stock_trainer(path, directory):
    args = GRPOConfig(str(directory), use_cpu=True, bf16=False, report_to="none", per_device_train_batch_size=8)
    return GRPOTrainer(path, always_half, args, Dataset.from_list([{"prompt": asked("What is 1?")}]))


@pytest.fixture(scope="module")
def vision_trainer(vision_model_path, tmp_path_factory):
    return stock_trainer(vision_model_path, tmp_path_factory.mktemp("stock"))


@pytest.fixture(scope="module")
def text_trainer(text_model_path, tmp_path_factory):
    return stock_trainer(text_model_path, tmp_path_factory.mktemp("stock"))


def made_by_trl(trainer, dataset, processing_class=None, **attributes):
    """How many tokens TRL makes of each row, one row at a time: the oracle."""
    attributes["processing_class"] = processing_class or trainer.processing_class
    lengths = []
    with pytest.MonkeyPatch.context() as patch:
        for name, value in attributes.items():
            patch.setattr(trainer, name, value)
        for [row] in (with_image_lists([dataset[i]]) for i in range(len(dataset))):
            images = row["images"] if "images" in row else [row["image"]] if "image" in row else []
            prompt = prepare_multimodal_messages(row["prompt"], images=images) if images else row["prompt"]
            lengths.append(len(trainer._tokenize_prompts([prompt])[0][0]))
    return lengths


def counted(dataset, processing_class, *arguments):
    return prompt_lengths(dataset, PromptCounter(processing_class, *arguments)).tolist()


def counted_without_a_second_look(dataset, processing_class):
    """By arithmetic alone, of which a mistake would otherwise be found by the comparison, and mended."""
    counter = PromptCounter(processing_class)
    counter._compared = {False, True}
    lengths = prompt_lengths(dataset, counter).tolist()
    assert counter.by_size
    return lengths


@pytest.fixture
def processed(monkeypatch):
    """A list that grows by one for each call of an image processor."""
    calls, real = [], Qwen2VLImageProcessor.preprocess
    monkeypatch.setattr(Qwen2VLImageProcessor, "preprocess", lambda *a, **k: calls.append(1) or real(*a, **k))
    return calls


# ------------------------------------------------------------------------------------------------ exactly TRL's number


def test_text_prompts_have_as_many_tokens_as_trl_makes(text_trainer):
    rows = make_text_rows()
    plain = Dataset.from_dict({"prompt": ["say a digit", "above 3 below 5 not 4", "a"]})
    for dataset in (rows, plain):
        lengths = counted(dataset, text_trainer.processing_class)
        assert lengths == made_by_trl(text_trainer, dataset)
        assert len(set(lengths)) > 1 or dataset is rows


def test_text_prompts_of_a_vision_model_have_as_many_tokens_as_trl_makes(vision_trainer):
    conversations = [asked("What is the sum?"), [{"role": "system", "content": "Answer."}, *asked("How many?")]]
    for prompts in (conversations, ["What is the sum of the two bars?", "How many?"]):
        dataset = Dataset.from_dict({"prompt": prompts})
        assert counted(dataset, vision_trainer.processing_class) == made_by_trl(vision_trainer, dataset)


@pytest.mark.parametrize(("width", "height"), [(56, 56), (640, 480), (9, 400)])
@pytest.mark.parametrize("column", ["image", "images"])
def test_rows_with_images_have_as_many_tokens_as_trl_makes(vision_trainer, column, width, height):
    one = picture(width, height)
    dataset = rows_of([one, None, one] if column == "image" else [[one], [], None, [one, picture(30, 60)]], column)
    for processor in (build_processor(), of_full_size()):
        lengths = counted(dataset, processor)
        assert lengths == made_by_trl(vision_trainer, dataset, processor)
        assert lengths[0] > lengths[1]


def test_images_in_the_prompt_itself_count(vision_trainer):
    parts = [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
    placed = [{"role": "user", "content": parts}]
    images = [[picture(300, 200), picture(90, 90)], [picture(31, 77), picture(56, 56)]]
    rows = [{"prompt": placed, "images": [encoded(image) for image in pair]} for pair in images]
    dataset = Dataset.from_list(rows, on_mixed_types="use_json").cast_column("images", datasets.List(datasets.Image()))
    assert counted(dataset, of_full_size()) == made_by_trl(vision_trainer, dataset, of_full_size())


def test_images_that_the_prompt_itself_holds_count(vision_trainer):
    part = {"type": datasets.Value("string"), "image": datasets.Image()}
    features = datasets.Features({"prompt": [{"role": datasets.Value("string"), "content": [part]}]})
    prompts = [[{"role": "user", "content": [{"type": "image", "image": picture(width, 90)}]}] for width in (30, 400)]
    dataset = Dataset.from_dict({"prompt": prompts}, features=features)
    assert counted(dataset, FULL_SIZE) == made_by_trl(vision_trainer, dataset, FULL_SIZE)


def test_sizes_of_every_kind_are_counted_without_processing_them(vision_trainer, processed):
    """Small and large ones, longish ones, and those whose half patches are rounded to even."""
    dice = random.Random(0)
    sizes = [(1, 1), (28, 28), (42, 70), (14, 14), (5600, 28), (20, 4000), (1400, 900), (1003, 1001), (2000, 1600)]
    sizes += [(dice.randint(1, 900), dice.randint(5, 900)) for _ in range(40)]
    dataset = rows_of([[picture(*size)] for size in sizes])
    lengths = counted(dataset, of_full_size())
    assert len(processed) == 2  # the shortest and the longest of the first batch, to compare
    assert lengths == made_by_trl(vision_trainer, dataset, of_full_size())
    assert len(set(lengths)) > 30


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=1, max_size=3), st.booleans())
def test_any_sizes_have_as_many_tokens_as_the_processor_makes(sizes, with_pixtral):
    assume(all(max(size) <= 200 * min(size) for size in sizes))
    processor = PIXTRAL if with_pixtral else FULL_SIZE
    counter = PromptCounter(processor)
    counter._compared = {False, True}  # no second look: the arithmetic stands by itself
    [row] = rows_of([[picture(*size) for size in sizes]])
    assert counter.count([row], lambda i: pytest.fail("went through the processor")) == [counter.count_whole(row)]


@pytest.mark.parametrize("format", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", [1, 3, 6, 8])
def test_an_image_counts_as_it_is_decoded_upright(vision_trainer, format, orientation):
    exif = PIL.Image.Exif()
    exif[PIL.ExifTags.Base.Orientation] = orientation
    dataset = rows_of([[encoded(picture(320, 64), format, exif=exif)], [encoded(picture(64, 64), format)]])
    for processor in (FULL_SIZE, PIXTRAL):
        expected = made_by_trl(vision_trainer, dataset, processor)
        assert counted_without_a_second_look(dataset, processor) == expected
    upright = rows_of([[encoded(picture(*((64, 320) if orientation > 4 else (320, 64))), format)], []])
    assert expected[0] == counted(upright, PIXTRAL)[0]


@pytest.mark.parametrize("format", ["TIFF", "GIF", "BMP", "ICO"])
def test_other_formats_count_too(vision_trainer, format):
    dataset = rows_of([[encoded(picture(200, 90).convert("P"), format)], [encoded(picture(99, 40), "PNG")]])
    expected = made_by_trl(vision_trainer, dataset, FULL_SIZE)
    assert counted_without_a_second_look(dataset, FULL_SIZE) == expected


@pytest.mark.parametrize("processor_class", [SilentProcessor, MistakenProcessor])
def test_a_processor_that_does_not_know_its_numbers_counts_every_row(vision_trainer, processed, processor_class):
    processor = of_full_size(processor_class)
    dataset = rows_of([[picture(40 + 31 * i, 300)] for i in range(6)] + [[]])
    lengths = counted(dataset, processor)
    assert len(processed) >= 6
    assert lengths == made_by_trl(vision_trainer, dataset, processor)


def test_arguments_of_the_chat_template_count(vision_trainer):
    processor = of_full_size()
    processor.chat_template += "{% if not enable_thinking %}How many bars?{% endif %}"
    dataset = rows_of([[picture(300, 200)], []])
    both = []
    for arguments in ({"enable_thinking": False}, {"enable_thinking": True}):
        both.append(counted(dataset, processor, arguments))
        assert both[-1] == made_by_trl(vision_trainer, dataset, processor, chat_template_kwargs=arguments)
    assert np.subtract(*both).min() > 0


def test_tools_in_the_prompt_count(text_trainer):
    def say(digit: int) -> int:
        """
        say a digit

        Args:
            digit: a digit above 3
        """
        return digit

    tokenizer = copy.deepcopy(text_trainer.processing_class)
    calls = "{% for message in messages if message.tool_calls %} {{ message.tool_calls }} {% endfor %}"
    tokenizer.chat_template = (
        "{% for tool in tools or [] %}{{ tool | tojson }} {% endfor %}" + calls + tokenizer.chat_template
    )
    rows = make_text_rows()
    lengths = counted(rows, tokenizer, None, [say])
    assert lengths == made_by_trl(text_trainer, rows, tokenizer, tools=[say])
    assert min(lengths) > max(counted(rows, tokenizer))


def test_arguments_for_the_image_processor_count(vision_trainer, processed):
    arguments = {"processor_kwargs": {"size": {"shortest_edge": 3136, "longest_edge": 28 * 28 * 20}}}
    dataset = rows_of([[picture(size, size)] for size in (600, 50, 80, 500)])
    lengths = counted(dataset, FULL_SIZE, arguments)
    assert len(processed) == 4  # each row at once, since what only some rows feel is not found by looking at two
    assert lengths == made_by_trl(vision_trainer, dataset, FULL_SIZE, chat_template_kwargs=arguments)
    assert lengths[0] < counted(dataset, FULL_SIZE)[0]


@pytest.mark.parametrize("written", [True, False])
def test_a_first_token_that_the_tokenizer_adds_counts_once(vision_trainer, written):
    processor = of_full_size()
    backend, start = processor.tokenizer.backend_tokenizer, "<|vision_pad|>"
    number = backend.token_to_id(start)
    backend.post_processor = TemplateProcessing(single=f"{start} $A", special_tokens=[(start, number)])
    processor.tokenizer.bos_token = start
    assert processor.tokenizer("How")["input_ids"][0] == number
    if written:
        processor.chat_template = start + processor.chat_template
    dataset = rows_of([[picture(60, 60)], []])
    assert counted_without_a_second_look(dataset, processor) == made_by_trl(vision_trainer, dataset, processor)
    assert np.subtract(counted(dataset, processor), counted(dataset, FULL_SIZE)).tolist() == [1, 1]


# --------------------------------------------------------------------------------------------- how rows can come along


def test_rows_come_from_files_from_a_selection_and_from_a_transform(vision_trainer, tmp_path, processed):
    names = [str(tmp_path / f"{i}.png") for i in range(300)]  # more than two of the batches that are read at a time
    for i, name in enumerate(names):
        picture(30 + i, 60).save(name)
    files = Dataset.from_dict({"prompt": [asked("How many?")] * 300, "image": names})
    files = files.cast_column("image", datasets.Image())
    of_images = FULL_SIZE._get_num_multimodal_tokens([(60, 30 + i) for i in range(300)])["num_image_tokens"]
    first, last = made_by_trl(vision_trainer, files.select([0, 299]), FULL_SIZE)
    expected = [first - of_images[0] + tokens for tokens in of_images]
    assert expected[299] == last
    processed.clear()
    assert counted(files, FULL_SIZE) == expected
    assert len(processed) == 2
    order = np.random.default_rng(0).permutation(300)
    assert counted(files.select(order), FULL_SIZE) == [expected[row] for row in order]
    wider = files.with_transform(
        lambda batch: {**batch, "image": [image.resize((700, 60)) for image in batch["image"]]}
    )
    assert counted(wider.select([0, 5]), FULL_SIZE) == made_by_trl(vision_trainer, wider.select([0, 5]), FULL_SIZE)
    assert counted(wider.select([0, 5]), FULL_SIZE)[0] > expected[0]


def test_a_row_that_cannot_be_counted_is_named_before_training():
    damaged = rows_of([[picture(40, 40)], [{"bytes": b"no image", "path": None}]])
    long = rows_of([[picture(40, 40)], [picture(2001, 10)], [picture(60, 40)]])
    reserved = rows_of([[picture(40, 40)]] * 3, texts=["How", "<|image_pad|>?", "many"])
    placed = [{"role": "user", "content": [{"type": "image"}]}]
    few = [{"prompt": placed, "images": [encoded(picture(30, 30))] * (1 + (i == 1))} for i in range(3)]
    few = Dataset.from_list(few).cast_column("images", datasets.List(datasets.Image()))
    for dataset, error, name in (
        (damaged, ImageDecodeError, "UnidentifiedImageError"),
        (long, ConfigurationError, "aspect ratio"),  # the processor refuses it
        (reserved, ConfigurationError, "<|image_pad|>"),
        (few, ConfigurationError, "placeholders"),
    ):
        with refused(error, ["Row 1", name]):
            counted(dataset, FULL_SIZE)


# ----------------------------------------------------------------------------------------------------------- the cache


def on_disk(dataset, directory):
    """`dataset` as `load_dataset` gives it: in a file of Arrow's that outlives the run."""
    dataset.to_parquet(directory / "rows.parquet")
    return loaded(directory)


@pytest.fixture
def opened(monkeypatch):
    """The images that were opened; a list that goes on growing."""
    images, real = [], PIL.Image.open
    monkeypatch.setattr(PIL.Image, "open", lambda file, *a, **k: images.append(file) or real(file, *a, **k))
    return images


def test_a_second_start_opens_no_image(tmp_path, opened, processed):
    first = on_disk(rows_of([[picture(30 + i, 60)] for i in range(20)]), tmp_path)
    lengths = counted(first, of_full_size())
    assert len(opened) >= 20
    assert processed
    opened.clear(), processed.clear()
    assert counted(loaded(tmp_path), of_full_size()) == lengths
    assert (opened, processed) == ([], [])
    assert counted(loaded(tmp_path).select([3, 1, 17]), of_full_size()) == [lengths[row] for row in (3, 1, 17)]
    assert opened  # other rows


def test_what_decides_the_number_is_part_of_the_caches_name(tmp_path, opened):
    dataset = on_disk(rows_of([[picture(300 + i, 260)] for i in range(4)]), tmp_path)
    before = counted(dataset, of_full_size())

    def again(processor, *arguments):
        opened.clear()
        lengths = counted(loaded(tmp_path), processor, *arguments)
        assert opened
        return np.subtract(lengths, before).tolist()

    template = of_full_size()
    template.chat_template += "How many?"
    more_tokens, small = of_full_size(), of_full_size()
    more_tokens.tokenizer.add_tokens(["What is the sum"])
    small.image_processor.size = {"shortest_edge": 3136, "longest_edge": 28 * 28 * 20}
    assert min(again(template)) > 0
    assert max(again(more_tokens)) < 0
    assert max(again(small)) < 0
    assert again(of_full_size(), {"enable_thinking": True}) == [0] * 4


def test_another_image_under_the_same_name_is_counted_again(tmp_path):
    name = str(tmp_path / "image.bmp")
    picture(300, 100).save(name)
    rows = Dataset.from_dict({"prompt": [asked("How many?")], "image": [name]})
    rows.to_parquet(tmp_path / "rows.parquet")
    dataset = loaded(tmp_path).cast_column("image", datasets.Image())
    [before] = counted(dataset, FULL_SIZE)
    state = os.stat(name)
    picture(100, 75).save(name)
    [after] = counted(dataset, FULL_SIZE)
    assert after < before
    picture(300, 100).save(name)
    os.utime(name, ns=(state.st_atime_ns, state.st_mtime_ns))
    assert counted(dataset, FULL_SIZE) == [before]


def test_rows_in_memory_and_in_a_folder_that_is_read_only_are_counted_each_time(tmp_path, opened, monkeypatch):
    dataset = rows_of([[picture(30 + i, 60)] for i in range(5)])
    lengths = counted(dataset, FULL_SIZE)
    assert (counted(dataset, FULL_SIZE), len(opened) > 10) == (lengths, True)
    stored = on_disk(dataset, tmp_path)
    folder = os.path.dirname(stored.cache_files[0]["filename"])
    before = sorted(os.listdir(folder))
    real = os.access  # root may write everywhere, so only the answer can be changed
    monkeypatch.setattr(os, "access", lambda path, mode: path != folder and real(path, mode))
    assert counted(stored, FULL_SIZE) == lengths
    assert sorted(os.listdir(folder)) == before


def test_no_row_has_no_length():
    assert counted(rows_of([[picture(40, 40)]]).select([]), FULL_SIZE) == []


# ------------------------------------------------------------------------------------------------ before the trainer


def is_short(completions, **kwargs):
    return [float(len(completion[0]["content"]) % 2) for completion in completions]


def vade_trainer(path, args, rows, **arguments):
    return VADEGRPOTrainer(path, is_short, args, rows, processing_class=of_full_size(), **arguments)


@pytest.fixture
def logs(monkeypatch):
    """What is logged of long prompts."""
    lines = []
    for level in ("info", "warning"):
        monkeypatch.setattr(overlong.logger, level, lambda text, level=level: lines.append(f"{level}: {text}"))
    return lines


def test_longer_rows_are_left_out_of_what_is_trained_and_evaluated_on(vision_model_path, make_args, logs):
    rows = uneven_rows()
    lengths = counted(rows, of_full_size())
    args = make_args(vade_max_prompt_length=lengths[3], per_device_train_batch_size=8)
    evaluated = {"all": rows, "short": rows.select([0])}
    trainer = vade_trainer(vision_model_path, args, rows, eval_dataset=evaluated)
    assert trainer.train_dataset[:]["prompt"] == rows[:4]["prompt"]
    assert {name: len(part) for name, part in trainer.eval_dataset.items()} == {"all": 4, "short": 1}
    assert len(trainer.selection.dataset) == len(trainer.selection.sample_keys[0]) == 4
    left_out, all_left, short = logs
    assert left_out.startswith("warning: train_dataset: 1 of 5 rows are dropped")
    assert f"vade_max_prompt_length={lengths[3]}" in left_out
    assert f"longest has {lengths[4]}." in left_out
    assert all_left.startswith("warning: eval_dataset['all']: 1 of 5 rows")
    assert short.startswith(f"info: eval_dataset['short']: no prompt has more than {lengths[0]} tokens")


def test_training_sees_prompts_of_the_lengths_that_were_counted(vision_model_path, make_args, monkeypatch):
    seen = []
    real = GRPOTrainer._tokenize_prompts

    def noting(self, prompts):
        output = real(self, prompts)
        seen.extend(map(len, output[0]))
        return output

    monkeypatch.setattr(GRPOTrainer, "_tokenize_prompts", noting)
    rows = uneven_rows()
    lengths = counted(rows, of_full_size())
    args = make_args(vade_max_prompt_length=lengths[2], per_device_train_batch_size=12, max_steps=1)
    vade_trainer(vision_model_path, args, rows).train()
    assert sorted(seen) == sorted(lengths[:3] * 4)


def test_the_processing_class_that_trl_would_load_is_loaded_once(vision_model_path, make_args, monkeypatch):
    loaded, real = [], AutoProcessor.from_pretrained
    monkeypatch.setattr(AutoProcessor, "from_pretrained", lambda *a, **k: loaded.append((a, k)) or real(*a, **k))
    rows = uneven_rows()
    stock = VADEGRPOTrainer(vision_model_path, is_short, make_args(), rows)
    ours = VADEGRPOTrainer(vision_model_path, is_short, make_args(vade_max_prompt_length=8192), rows)
    given = VADEGRPOTrainer(stock.model, is_short, make_args(vade_max_prompt_length=8192), rows)
    assert loaded[0] == loaded[1] == loaded[2]
    assert len(loaded) == 3
    for trainer in (ours, given):
        assert trainer.processing_class.to_json_string() == stock.processing_class.to_json_string()
        assert trainer.processing_class.tokenizer.padding_side == "left"
        assert len(trainer.train_dataset) == 5


def test_without_the_option_nothing_is_counted(vision_model_path, make_args, opened):
    trainer = vade_trainer(vision_model_path, make_args(), uneven_rows())
    assert (len(trainer.train_dataset), opened) == (5, [])


def make_trainer(args, rows, **arguments):
    VADEGRPOTrainer("no/such-model: refused before it is looked up", is_short, args, rows, **arguments)


def test_a_limit_below_every_prompt_is_refused(make_args):
    lengths = counted(uneven_rows(), of_full_size())
    for rows, arguments in ((uneven_rows(), {}), (uneven_rows(), {"eval_dataset": uneven_rows().select([4, 3])})):
        most = lengths[0] - 1 if not arguments else lengths[2]
        names = [f"vade_max_prompt_length={most}", f"{lengths[3] if arguments else lengths[0]} tokens"]
        with refused(ConfigurationError, names, ["max_pixels", "None"]):
            make_trainer(make_args(vade_max_prompt_length=most), rows, processing_class=of_full_size(), **arguments)


def test_too_few_rows_below_the_limit_are_too_few_rows(make_args):
    limit = counted(uneven_rows(), of_full_size())[1]
    args = make_args(vade_max_prompt_length=limit, per_device_train_batch_size=12)
    with refused(ConfigurationError, ["train_dataset", "2 rows"], ["per_device_train_batch_size"]):
        make_trainer(args, uneven_rows(), processing_class=of_full_size())


@pytest.mark.parametrize("argument", ["train_dataset", "eval_dataset", "eval_dataset in parts"])
def test_a_stream_cannot_be_counted(make_args, argument):
    stream = uneven_rows().to_iterable_dataset()
    rows = stream if argument == "train_dataset" else uneven_rows()
    evaluated = {"eval_dataset": stream, "eval_dataset in parts": {"a": uneven_rows(), "b": stream}}.get(argument)
    args = make_args(vade_max_prompt_length=8192, vade_sampler="uniform", max_steps=1)
    with refused(ConfigurationError, [argument.split()[0], "IterableDataset"], ["vade_max_prompt_length=None"]):
        make_trainer(args, rows, eval_dataset=evaluated)


def test_prompts_of_an_environment_and_rows_without_a_prompt_cannot_be_counted(make_args):
    with refused(ConfigurationError, ["environment", "vade_max_prompt_length=None"]):
        make_trainer(make_args(vade_max_prompt_length=8192), uneven_rows(), environment_factory=object)
    with refused(ConfigurationError, ["'prompt'", "'question'", "vade_max_prompt_length=None"]):
        make_trainer(make_args(vade_max_prompt_length=8192), uneven_rows().rename_column("prompt", "question"))


TWO_PROCESSES = """
import os, sys
import PIL.Image, torch
from tests.support.prompts import loaded, of_full_size, uneven_rows
from pathlib import Path
from trl_vade import VADEGRPOConfig
from trl_vade.errors import ConfigurationError
from trl_vade.trainer.overlong import drop_overlong

opened, real = [], PIL.Image.open
PIL.Image.open = lambda *arguments, **named: opened.append(1) or real(*arguments, **named)
args = VADEGRPOConfig(sys.argv[1], use_cpu=True, bf16=False, num_generations=2, per_device_train_batch_size=2,
                      report_to="none", vade_max_prompt_length=50)
seen = [f"world {args.world_size}"]
for where in "memory", "disk":
    rows = uneven_rows() if where == "memory" else loaded(Path(sys.argv[1]))
    opened.clear()
    arguments = {"train_dataset": rows, "processing_class": of_full_size()}
    drop_overlong(arguments, args)
    seen.append(f"{where}: {len(arguments['train_dataset'])} rows, " + ("counted" if opened else "read"))
args.vade_max_prompt_length = 3
try:
    drop_overlong(arguments, args)
except ConfigurationError as error:
    seen.append("refused" if "vade_max_prompt_length=3" in str(error) else str(error))
Path(sys.argv[1], f"rank-{args.process_index}").write_text("; ".join(seen))
torch.distributed.destroy_process_group()
os._exit(0)  # torch 2.15 over gloo aborts now and then in the interpreter's teardown: see integration/two_processes.py
"""


@pytest.mark.slow
def test_of_two_processes_the_second_reads_what_the_first_counted(tmp_path):
    on_disk(uneven_rows(), tmp_path)
    script = tmp_path / "two.py"
    script.write_text(TWO_PROCESSES)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = ["torch.distributed.run", "--nproc_per_node=2", "--master_addr=127.0.0.1", f"--master_port={port}"]
    command = [sys.executable, "-m", *launcher, str(script), str(tmp_path)]
    paths = {"PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(command, capture_output=True, text=True, timeout=200, env=os.environ | paths)
    assert run.returncode == 0, run.stderr[-3000:]
    counted_it, read_it = [(tmp_path / f"rank-{rank}").read_text() for rank in (0, 1)]
    assert counted_it == "world 2; memory: 3 rows, counted; disk: 3 rows, counted; refused"
    assert read_it == "world 2; memory: 3 rows, counted; disk: 3 rows, read; refused"
