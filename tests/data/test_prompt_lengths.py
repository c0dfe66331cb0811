"""The tokens of prompts against those that TRL makes; rows that are too long; the cache."""

import copy

import datasets
import pytest
import transformers
from datasets import Dataset
from packaging.version import Version
from tokenizers.processors import TemplateProcessing
from transformers import AutoProcessor, Qwen2VLImageProcessor
from trl import GRPOConfig, GRPOTrainer
from trl.data_utils import prepare_multimodal_messages

from tests.support.pictures import file_of
from tests.support.prompts import asked, loaded, of_full_size, picture, rows_of, uneven_rows
from tests.support.refusals import refused
from tests.support.rows import make_text_rows
from tests.support.runs import always_half
from trl_vade import VADEGRPOTrainer
from trl_vade.data import prompt_lengths as lengths_module
from trl_vade.data.loading import with_image_lists
from trl_vade.data.prompt_lengths import prompt_lengths
from trl_vade.errors import ConfigurationError, ImageDecodeError
from trl_vade.testbed.processor import build_processor

FULL_SIZE = of_full_size()


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
    return prompt_lengths(dataset, processing_class, *arguments).tolist()


@pytest.fixture
def processed(monkeypatch):
    """A list that grows by one for each call of an image processor."""
    calls, real = [], Qwen2VLImageProcessor.preprocess
    monkeypatch.setattr(Qwen2VLImageProcessor, "preprocess", lambda *a, **k: calls.append(1) or real(*a, **k))
    return calls


def test_text_prompts_have_as_many_tokens_as_trl_makes(text_trainer, vision_trainer):
    conversations = [asked("What is the sum?"), [{"role": "system", "content": "Answer."}, *asked("How many?")]]
    plain = ["say a digit", "above 3 below 5 not 4", "a"]
    for trainer in (text_trainer, vision_trainer):
        for rows in (make_text_rows(), *(Dataset.from_dict({"prompt": each}) for each in (plain, conversations))):
            assert counted(rows, trainer.processing_class) == made_by_trl(trainer, rows)


def test_rows_with_images_have_as_many_tokens_as_trl_makes(vision_trainer):
    one, two = picture(640, 480), picture(9, 400)
    parts = [{"type": "image"}, {"type": "text", "text": "and"}, {"type": "image"}]
    pairs = [[picture(300, 200), picture(90, 90)], [picture(31, 77), one]]
    placed = [{"prompt": [{"role": "user", "content": parts}], "images": [*map(file_of, pair)]} for pair in pairs]
    placed = Dataset.from_list(placed, on_mixed_types="use_json")
    part = {"type": datasets.Value("string"), "image": datasets.Image()}
    features = datasets.Features({"prompt": [{"role": datasets.Value("string"), "content": [part]}]})
    held = [[{"role": "user", "content": [{"type": "image", "image": each}]}] for each in (one, two)]
    for dataset in (
        rows_of([one, None, two], "image"),
        rows_of([[one], [], None, [two, one], *[[two]] * 9]),  # more than a batch
        rows_of([[], None]),
        placed.cast_column("images", datasets.List(datasets.Image())),
        Dataset.from_dict({"prompt": held}, features=features),
    ):
        for processor in (build_processor(), FULL_SIZE):
            assert counted(dataset, processor) == made_by_trl(vision_trainer, dataset, processor)


def test_arguments_of_the_chat_template_and_of_the_image_processor_count(vision_trainer):
    processor = of_full_size()
    processor.chat_template += "{% if not enable_thinking %}How many bars?{% endif %}"
    dataset = rows_of([[picture(600, 600)], []])
    small = {"processor_kwargs": {"size": {"shortest_edge": 3136, "longest_edge": 28 * 28 * 20}}}
    seen = []
    for arguments in ({"enable_thinking": True}, {"enable_thinking": False}, {"enable_thinking": True, **small}):
        seen.append(counted(dataset, processor, arguments))
        assert seen[-1] == made_by_trl(vision_trainer, dataset, processor, chat_template_kwargs=arguments)
    assert seen[1] > seen[0] > seen[2]


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
    tools = "{% for tool in tools or [] %}{{ tool | tojson }} {% endfor %}"
    tokenizer.chat_template = tools + calls + tokenizer.chat_template
    rows = make_text_rows()
    lengths = counted(rows, tokenizer, None, [say])
    assert lengths == made_by_trl(text_trainer, rows, tokenizer, tools=[say])
    assert min(lengths) > max(counted(rows, tokenizer))


def test_rows_come_from_files_from_a_selection_and_from_a_transform(vision_trainer, tmp_path):
    names = [str(tmp_path / f"{i}.png") for i in range(20)]
    for i, name in enumerate(names):
        picture(30 + 30 * i, 60).save(name)
    files = Dataset.from_dict({"prompt": [asked("How many?")] * 20, "image": names})
    files = files.cast_column("image", datasets.Image())
    wider = files.with_transform(lambda batch: batch | {"image": [each.resize((700, 60)) for each in batch["image"]]})
    for dataset in (files, files.select([7, 3, 19]), wider.select([0, 5])):
        lengths = counted(dataset, FULL_SIZE)
        assert lengths == made_by_trl(vision_trainer, dataset, FULL_SIZE)
    assert lengths[0] > counted(files, FULL_SIZE)[0]


REFUSED = {  # by the processor or TRL: the pictures of row 1, the text of row 1, a word of the error
    "a long picture": ([picture(2001, 10)], "How", "aspect ratio"),
    "too few placeholders": ([picture(30, 30)] * 2, [{"type": "image"}], "placeholders"),
    "too many placeholders": ([picture(30, 30)] * 2, [{"type": "image"}] * 3, "placeholders"),
}
if Version(transformers.__version__) >= Version("5.18"):  # before, the model alone refuses it
    REFUSED["a placeholder in the text"] = ([picture(30, 30)], "<|image_pad|>?", "")


def rows_with(name):
    """Three rows, of which row 1 has what is refused."""
    pictures, text, _ = REFUSED[name]
    fine = ([picture(30, 30)], [{"type": "image"}] if isinstance(text, list) else "How")
    each = [fine, (pictures, text), fine]
    rows = [{"prompt": asked(said), "images": [*map(file_of, seen)]} for seen, said in each]
    return Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))


def test_a_row_that_the_processor_refuses_is_named_before_and_in_training(vision_model_path, make_args):
    for name in REFUSED:
        with pytest.raises(Exception, match=REFUSED[name][2] or ".") as before_training:
            counted(rows_with(name), FULL_SIZE)
        assert "row 1 " in before_training.value.__notes__[0]
    args = make_args(vade_sampler="thompson", per_device_train_batch_size=12)  # 3 rows of 4 completions: all of them
    trainer = vade_trainer(vision_model_path, args, rows_with("too few placeholders"))
    with pytest.raises(Exception, match="placeholders") as in_training:
        trainer.train()
    assert "row 1 " in in_training.value.__notes__[0]
    damaged = rows_of([[picture(40, 40)], [{"bytes": b"no image", "path": None}]])
    with refused(ImageDecodeError, ["Row 1", "UnidentifiedImageError"]):
        counted(damaged, FULL_SIZE)


def on_disk(dataset, directory):
    """`dataset` as `load_dataset` gives it: in a file of Arrow's that outlives the run."""
    dataset.to_parquet(directory / "rows.parquet")
    return loaded(directory)


def test_a_second_start_processes_no_image_unless_what_decides_the_number_is_another(tmp_path, processed):
    dataset = on_disk(rows_of([[picture(300 + i, 260)] for i in range(4)]), tmp_path)
    lengths = counted(dataset, of_full_size())
    used = of_full_size()
    used(text=["a tokenizer that was used"], padding=True, truncation=True, max_length=3)
    processed.clear()
    for processor in (of_full_size(), used):
        assert counted(loaded(tmp_path), processor) == lengths
    assert processed == []
    larger, other_text, with_start = of_full_size(), of_full_size(), of_full_size()
    larger.image_processor.size = {"shortest_edge": 3136, "longest_edge": 28 * 28 * 20}
    other_text.chat_template += "How many bars?"
    backend, start = with_start.tokenizer.backend_tokenizer, "<|vision_pad|>"
    backend.post_processor = TemplateProcessing(
        single=f"{start} $A", special_tokens=[(start, backend.token_to_id(start))]
    )
    for processor in (larger, other_text, with_start):
        assert counted(loaded(tmp_path), processor) != lengths


LIMIT = {"vade_max_prompt_length": 8192}


def is_short(completions, **kwargs):
    return [float(len(completion[0]["content"]) % 2) for completion in completions]


def vade_trainer(path, args, rows, **arguments):
    return VADEGRPOTrainer(path, is_short, args, rows, processing_class=of_full_size(), **arguments)


def test_longer_rows_are_left_out_of_what_is_trained_and_evaluated_on(vision_model_path, make_args, monkeypatch):
    rows, logs = uneven_rows(), []
    monkeypatch.setattr(lengths_module.logger, "warning", logs.append)
    lengths = counted(rows, of_full_size())
    args = make_args(vade_max_prompt_length=lengths[3], per_device_train_batch_size=8)
    evaluated = {"all": rows, "short": rows.select([0])}
    trainer = vade_trainer(vision_model_path, args, rows, eval_dataset=evaluated)
    assert trainer.train_dataset[:]["prompt"] == rows[:4]["prompt"]
    assert {name: len(part) for name, part in trainer.eval_dataset.items()} == {"all": 4, "short": 1}
    assert len(trainer.selection.dataset) == len(trainer.selection.sample_keys) == 4
    left_out, all_left = logs
    assert left_out.startswith("train_dataset: 1 of 5 rows are dropped")
    assert all(f" {part}" in left_out for part in (f"vade_max_prompt_length={lengths[3]}", f"has {lengths[4]}."))
    assert all_left.startswith("eval_dataset['all']: 1 of 5 rows")


def test_the_processing_class_that_trl_would_load_is_loaded_once(vision_model_path, make_args, monkeypatch):
    loaded, real = [], AutoProcessor.from_pretrained
    monkeypatch.setattr(AutoProcessor, "from_pretrained", lambda *a, **k: loaded.append((a, k)) or real(*a, **k))
    made = [VADEGRPOTrainer(vision_model_path, is_short, make_args(**more), uneven_rows()) for more in ({}, LIMIT)]
    made.append(VADEGRPOTrainer(made[0].model, is_short, make_args(**LIMIT), uneven_rows()))
    assert loaded == loaded[:1] * 3
    for trainer in made:
        assert trainer.processing_class.to_json_string() == made[0].processing_class.to_json_string()
        assert trainer.processing_class.tokenizer.padding_side == "left"
        assert len(trainer.train_dataset) == 5


NO_MODEL = "no/such-model: refused before it is looked up"


def test_a_limit_below_every_prompt_or_below_all_but_too_few_is_refused(make_args):
    lengths, rows = counted(uneven_rows(), of_full_size()), uneven_rows()
    few = make_args(vade_max_prompt_length=lengths[1], per_device_train_batch_size=12, vade_sampler="thompson")
    with refused(ConfigurationError, ["train_dataset", "2 rows"], ["per_device_train_batch_size"]):
        vade_trainer(NO_MODEL, few, rows)
    for most, shortest, more in (
        (lengths[0] - 1, lengths[0], {}),
        (lengths[2], lengths[3], {"eval_dataset": rows.select([4, 3])}),
    ):
        names = [f"vade_max_prompt_length={most}", f"{shortest} tokens"]
        with refused(ConfigurationError, names, ["max_pixels", "None"]):
            vade_trainer(NO_MODEL, make_args(vade_max_prompt_length=most), rows, **more)


def test_prompts_of_a_stream_and_of_an_environment_cannot_be_counted(make_args):
    rows, stream = uneven_rows(), uneven_rows().to_iterable_dataset()
    for name, given, more in (
        ("train_dataset", stream, {}),
        ("eval_dataset", rows, {"eval_dataset": stream}),
        ("eval_dataset", rows, {"eval_dataset": {"a": rows, "b": stream}}),
    ):
        args = make_args(**LIMIT, vade_sampler="uniform", max_steps=1)
        with refused(ConfigurationError, [name, "IterableDataset"], ["vade_max_prompt_length=None"]):
            vade_trainer(NO_MODEL, args, given, **more)
    with refused(ConfigurationError, ["environment", "vade_max_prompt_length=None"]):
        vade_trainer(NO_MODEL, make_args(**LIMIT), rows, environment_factory=object)
