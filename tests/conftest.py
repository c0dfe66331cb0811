"""Small real parts that the tests share: a text model, a text data set, trainer arguments, and a Hub."""

import gc
import importlib
import os
import sys
from contextlib import contextmanager
from types import SimpleNamespace

# Before anything imports the Hub client: no test may reach a network, or report anything.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")

import pytest
from hypothesis import settings

# Timings never decide a test, and a run of CI must be able to be repeated.
settings.register_profile("repeatable", deadline=None, derandomize=True)
settings.load_profile("repeatable")

# What needs only numpy and safetensors: no warning passes there.
CORE_TESTS = {
    *("durable", "document", "errors", "information", "join", "large_pool", "order", "outage", "peers", "posterior"),
    *("prior", "prompt_sampler", "row_store", "samplers", "snapshot", "strata", "thompson_settings", "uniform"),
    "window",
}


def pytest_collection_finish():
    """Each `train()` collects garbage (accelerate's free_memory); to look at all that was imported takes 0.35 s."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    gc.unfreeze()


def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.stem.removeprefix("test_") in CORE_TESTS:
            item.add_marker(pytest.mark.filterwarnings("error"))


WORDS = [str(number) for number in range(10)] + ["say", "a", "digit", "not", "below", "above"]


def make_text_model(path):
    """Write a random two-layer Qwen2 with a 24-word tokenizer to `path`; it loads in well under a second."""
    import torch
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "[UNK]"]
    vocabulary = {token: number for number, token in enumerate([*special, *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|endoftext|>",
        eos_token="<|im_end|>",
        unk_token="[UNK]",
        padding_side="left",
    )
    tokenizer.chat_template = (
        "{% for message in messages %}<|im_start|> {{ message['content'] }} <|im_end|> {% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>{% endif %}"
    )
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=len(vocabulary),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
    )
    Qwen2ForCausalLM(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return str(path)


@pytest.fixture(scope="session")
def text_model_path(tmp_path_factory):
    """Directory of the tiny text model; see `make_text_model`."""
    return make_text_model(tmp_path_factory.mktemp("text_model"))


@pytest.fixture(scope="session")
def vision_model_path(tmp_path_factory):
    """Directory of a real Qwen2.5-VL of the testbed's size, untrained."""
    from trl_vade.testbed.model import build_model
    from trl_vade.testbed.processor import build_processor

    path = str(tmp_path_factory.mktemp("vision_model"))
    processor = build_processor()
    build_model(processor).save_pretrained(path)
    processor.save_pretrained(path)
    return path


def make_text_rows():
    """24 questions; `easy` rows are right for many answers, `hard` ones for a single answer."""
    from datasets import Dataset

    rows = []
    for number in range(24):
        question = f"say a digit {'not' if number % 2 else 'above'} {number % 10}"
        rows.append({"prompt": [{"role": "user", "content": question}], "limit": number % 10, "id": f"row-{number}"})
    return Dataset.from_list(rows)


@pytest.fixture
def text_rows():
    """The 24 questions of `make_text_rows`."""
    return make_text_rows()


def numbered_rows(count, **columns):
    from datasets import Dataset

    return Dataset.from_list(
        [{"prompt": f"question {i}", "id": f"row-{i}"} | {k: v(i) for k, v in columns.items()} for i in range(count)]
    )


def ids(rows):
    return [row["id"] for row in rows]


def process(index, world):
    """One of several processes, as far as loading a share of the rows and a broadcast from process 0 are concerned.

    A last resort: real processes are started in tests/integration. Every replica draws the same rows here.
    """
    import torch

    return SimpleNamespace(
        process_index=index, num_processes=world, is_main_process=index == 0, device=torch.device("cpu")
    )


def picture(number):
    """A small image that `decoded_images` knows by its `number`."""
    from PIL import Image

    return Image.new("RGB", (8, 8), (number, 0, 0))


@pytest.fixture
def decoded_images(monkeypatch):
    """The numbers of the `picture`s that datasets has decoded, in order; a list that goes on growing."""
    import datasets

    decode, decoded = datasets.Image.decode_example, []

    def counting(self, value, token_per_repo_id=None):
        image = decode(self, value, token_per_repo_id)
        decoded.append(image.getpixel((0, 0))[0])
        return image

    monkeypatch.setattr(datasets.Image, "decode_example", counting)
    return decoded


def text_of(completion):
    return completion if isinstance(completion, str) else completion[0]["content"]


def says_a_digit(completions, limit, **kwargs):
    """1 when the completion's first word is a digit above the row's limit; rows differ in difficulty."""
    first = [(text_of(completion).split() or ["-"])[0] for completion in completions]
    return [float(word.isdigit() and int(word) >= bound) for word, bound in zip(first, limit, strict=True)]


def always_half(completions, **kwargs):
    return [0.5] * len(completions)


def train(model, rows, args, reward=says_a_digit, trainer_class=None, **arguments):
    from trl_vade import VADEGRPOTrainer

    trainer = (trainer_class or VADEGRPOTrainer)(model, reward, args, rows, **arguments)
    trainer.train()
    return trainer


def weights(trainer):
    return {name: value.clone() for name, value in trainer.model.state_dict().items()}


def assert_equal_weights(left, right):
    assert left.keys() == right.keys()
    assert all(left[name].equal(right[name]) for name in left)


def logged(trainer, name):
    return [entry[name] for entry in trainer.state.log_history if name in entry]


# A run of six generation batches of 4 rows x 4 completions on the text model, which saves nothing.
SMALL_RUN = {
    "per_device_train_batch_size": 16,
    "num_generations": 4,
    "max_completion_length": 4,
    "max_steps": 6,
    "learning_rate": 1e-2,
    "use_cpu": True,
    "bf16": False,
    "gradient_checkpointing": False,
    "dataloader_pin_memory": False,
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "seed": 3,
}


@pytest.fixture
def make_args(tmp_path):
    """Arguments of `SMALL_RUN` in a directory of the test's own, with the changes asked for."""
    from trl_vade import VADEGRPOConfig

    def make(config_class=VADEGRPOConfig, **changes):
        return config_class(**({"output_dir": str(tmp_path / "out")} | SMALL_RUN | changes))

    return make


def read_hub_settings():
    """Let the Hub's clients of this process read the environment again; they look their settings up in `constants`.

    (datasets 5.2 in its `config`.) That makes no difference to which of them are imported already.
    """
    from huggingface_hub import constants, hf_api

    importlib.reload(constants)
    hf_api.api.endpoint = constants.ENDPOINT  # of the functions of the package: `create_repo` is a method of `api`
    loaded = sys.modules.get
    if files := loaded("huggingface_hub.hf_file_system"):
        files.HfFileSystem.clear_instance_cache()
    if config := loaded("datasets.config"):
        importlib.reload(config)
    if transformers_hub := loaded("transformers.utils.hub"):
        transformers_hub._hf_api = None  # 5.23 keeps the one of its first use


@contextmanager
def connected_hub(folder):
    """A `LoopbackHub`, to which the Hub's clients of this process are connected with its write token.

    Caches and login are in `folder`; retries of the client follow at once.
    """
    from huggingface_hub.utils import close_session, http_backoff, http_stream_backoff

    # pytest loads this file by itself, and the faults as `tests.conftest`. The name `tests` is not always ours: of
    # latex2sympy2 1.5.4, which lmms-eval needs, it is an installed package.
    stand_in = importlib.import_module(f"{__package__}.loopback_hub" if __package__ else "loopback_hub")

    with stand_in.LoopbackHub() as running, pytest.MonkeyPatch.context() as patch:
        environment = stand_in.client_environment(running, folder)
        gone = os.environ.keys() - environment.keys()
        try:
            for name in gone:
                patch.delenv(name)
            for name, value in environment.items():
                if os.environ.get(name) != value:  # what is as it was is not put back: the test may have set it
                    patch.setenv(name, value)
            for retrying in (http_backoff, http_stream_backoff.__wrapped__):  # no setting says how long they wait
                patch.setitem(retrying.__kwdefaults__, "base_wait_time", 0)
            read_hub_settings()
            if any(name.lower().endswith("_proxy") for name in gone):
                close_session()  # it has the proxies of when it was opened; a new one costs 35 ms
            yield running
        finally:
            patch.undo()
            read_hub_settings()


@pytest.fixture
def hub(monkeypatch, tmp_path):
    """See `connected_hub`. Another token is `monkeypatch.setenv("HF_TOKEN", ...)`, none is `delenv`; `with offline():`
    is without a network."""
    with connected_hub(tmp_path / "hf_home") as running:
        try:
            yield running
        finally:  # what the test itself has set goes first: it would be put back to the values of this hub
            monkeypatch.undo()


@contextmanager
def offline():
    """In this context the Hub's clients are told to use no network (HF_HUB_OFFLINE)."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        read_hub_settings()
        try:
            yield
        finally:
            patch.undo()
            read_hub_settings()
