"""Which model is evaluated: found in a folder or on the Hub, refused where lmms-eval would fail on it; known again.

What asks a server is tested where OpenAI's client is installed, in tests/lmms.
"""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.evaluations import FILES, write
from tests.support.hub import offline
from tests.support.refusals import refused
from trl_vade.errors import ConfigurationError, EvaluationError
from trl_vade.evaluation.models import (
    BACKENDS,
    EvaluatedModel,
    find_model,
    fingerprint,
    model_arguments,
    picture_sizes,
)

MIB = 2**20
OF_A_RUN = ["trainer_state.json", "vade_posterior.safetensors", "vade_summary.json"]


def find(name, backend="transformers", **options):
    return find_model(str(name), backend=backend, **options)


# ---------------------------------------------------------------------------------------------------------- a folder


def test_a_folder_is_known_by_its_name_and_its_weights(vision_model_path, monkeypatch):
    folder = Path(vision_model_path)
    monkeypatch.chdir(folder)
    found = EvaluatedModel(folder.name, folder.resolve(), None, fingerprint(folder))
    assert find(folder) == find(".") == find(folder, "vllm") == found


@pytest.mark.parametrize("backend", ["transformers", "vllm"])
def test_an_adapter_is_refused_with_the_way_to_a_whole_model(tmp_path, backend):
    write(tmp_path, {"adapter_config.json": b"{}", "adapter_model.safetensors": b"few"})
    with refused(ConfigurationError, [tmp_path, "adapter"], ["merge_and_unload()"]):
        find(tmp_path, backend)


def test_what_has_no_configuration_is_no_model(tmp_path):
    for content in (None, b"{", b"\xff", b"[]"):
        folder = write(tmp_path, {} if content is None else {"config.json": content})
        with refused(ConfigurationError, [folder, "config.json"]):
            find(folder)


def test_a_configuration_without_weights_is_refused(tmp_path):
    """A sampler's posterior, which a run leaves beside its model, is no weights."""
    write(tmp_path, {"config.json": FILES["config.json"], "pytorch_model.bin": b"", "vade_posterior.safetensors": b""})
    with refused(ConfigurationError, [tmp_path, "weights"], ["*.safetensors"]):
        find(tmp_path)


def index_of(*files):
    return json.dumps({"weight_map": {f"layer.{number}": name for number, name in enumerate(files)}}).encode()


SHARDS = [f"model-0000{number}-of-00003.safetensors" for number in (1, 2, 3)]


def test_a_model_that_lacks_a_shard_is_refused_and_the_shard_is_named(tmp_path):
    """As a copy leaves it that was cut short; transformers would fail minutes later."""
    index = {"model.safetensors.index.json": index_of(*SHARDS, SHARDS[0])}
    folder = write(tmp_path, {"config.json": FILES["config.json"], SHARDS[0]: b"1", SHARDS[1]: b"2", **index})
    with refused(ConfigurationError, [folder, SHARDS[2], "model.safetensors.index.json"]):
        find(folder)
    write(folder, {SHARDS[2]: b"3"})
    assert find(folder).fingerprint == fingerprint(folder)


def test_an_index_that_cannot_be_read_is_refused(tmp_path):
    for index in (b"", b'{"weight_map": {', b"[]", b"{}", b'{"weight_map": 1}', b"\xff"):
        with refused(ConfigurationError, [tmp_path, "model.safetensors.index.json"]):
            find(write(tmp_path, FILES | {"model.safetensors.index.json": index}))


def test_what_is_no_qwen2_5_vl_is_left_to_the_other_backends(text_model_path):
    names = [text_model_path, "'qwen2'", "--backend transformers"]
    with refused(ConfigurationError, names, ["--backend vllm", "--backend server"]):
        find(text_model_path)
    assert find(text_model_path, "vllm").folder == Path(text_model_path).resolve()


def test_an_address_or_a_revision_without_a_meaning_is_refused(tmp_path):
    for backend, options, name in (
        ("server", {}, "--server_url"),
        ("vllm", {"server_url": "http://127.0.0.1:1/v1"}, "--server_url"),
        ("server", {"server_url": "http://h:1/v1", "revision": "x"}, "--revision"),
        ("server", {"server_url": "http://me:hf_secret@h:1/v1"}, "--server_url"),
    ):
        with refused(ConfigurationError, [name]) as raised:
            find("model", backend, **options)
        assert "hf_secret" not in str(raised.value)
    with refused(ConfigurationError, ["--revision"]):
        find(write(tmp_path, FILES), revision="main")


# ----------------------------------------------------------------------------------------------------------- the Hub


@pytest.fixture
def repository(hub):
    """A model of two commits, the first of which has a tag; beside it lie a checkpoint and an earlier evaluation."""
    found = hub.add_repo("you/model")
    found.tags["v1"] = found.add("main", "first", "", FILES, lfs=["model.safetensors"])
    more = {"checkpoint-8/model.safetensors": b"8", "vade_evaluation/a/results.json": b"{}", "last-checkpoint/x": b""}
    found.add("main", "second", "", FILES | more | {"model.safetensors": b"trained"}, lfs=["model.safetensors"])
    return found


def test_of_a_model_of_the_hub_the_commit_is_known(hub, repository):
    second = repository.branches["main"]
    found = find("you/model")
    assert (found.name, found.revision) == ("you/model", second)
    assert (found.folder / "model.safetensors").read_bytes() == b"trained"
    with offline():
        assert find("you/model") == found  # from the cache
    assert not [line for line in hub.requests if "checkpoint" in line or "vade_evaluation" in line]


def test_a_revision_becomes_the_commit_that_it_is_now(hub, repository):
    newest = find("you/model")
    first = find("you/model", revision="v1")
    assert first.revision == repository.tags["v1"]
    assert (first.folder / "model.safetensors").read_bytes() == b"the weights"
    assert find("you/model", revision=repository.tags["v1"]) == first
    assert first.fingerprint != newest.fingerprint


def test_a_model_is_the_same_in_a_folder_and_on_the_hub(hub, repository, tmp_path):
    assert find(write(tmp_path / "model", FILES)).fingerprint == find("you/model", revision="v1").fingerprint


def test_what_is_wrong_with_a_model_of_the_hub_is_said_under_its_name(hub):
    hub.add_repo("you/rows").add("main", "no model", "", {"README.md": b"# Rows"})
    with refused(ConfigurationError, ["you/rows", "config.json"]):
        find("you/rows")


@pytest.mark.parametrize("name", ["you/nothing", "you/secret", "./no/such/folder", "you/model@v3"])
def test_what_is_neither_here_nor_on_the_hub_says_so_and_names_the_login(hub, repository, monkeypatch, name):
    hub.add_repo("you/secret", private=True).add("main", "hidden", "", FILES)
    monkeypatch.delenv("HF_TOKEN")
    name, _, revision = name.partition("@")
    with refused(EvaluationError, [name, revision or name], ["`hf auth login`"]):
        find(name, revision=revision or None)


def test_no_token_is_in_the_message_of_a_hub_that_refuses_it(hub, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_secret_of_mine")
    with refused(EvaluationError, ["you/model"]) as raised:
        find("you/model")
    assert "hf_secret_of_mine" not in str(raised.value)


# ---------------------------------------------------------------------------------------------------- the fingerprint


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(min_size=1, max_size=200), at=st.integers(0), change=st.integers(1, 255), name=st.data())
def test_any_other_byte_of_configuration_template_or_weights_is_another_model(tmp_path, content, at, change, name):
    shutil.rmtree(tmp_path / "model", ignore_errors=True)  # of the example before
    chosen = name.draw(st.sampled_from(sorted(FILES)))
    folder = write(tmp_path / "model", FILES | {chosen: content})
    before = fingerprint(folder)
    at %= len(content)
    write(folder, {chosen: content[:at] + bytes([content[at] ^ change]) + content[at + 1 :]})
    assert fingerprint(folder) != before
    write(folder, {chosen: content + b"\0"})
    assert fingerprint(folder) != before
    write(folder, {chosen: content})
    assert fingerprint(folder) == before
    assert len(before) == 16
    assert int(before, 16) >= 0


def test_of_large_weights_every_byte_tells(tmp_path):
    """Two merges of adapters may differ in a few layers, and those may be in the middle of a file."""
    before = fingerprint(write(tmp_path, FILES | {"model.safetensors": bytes(3 * MIB + 1)}))
    for at in (0, 3 * MIB // 2, 3 * MIB):
        content = bytearray(3 * MIB + 1)
        content[at] = 1
        assert fingerprint(write(tmp_path, {"model.safetensors": content})) != before
    assert fingerprint(write(tmp_path, {"model.safetensors": bytes(3 * MIB)})) != before  # one byte less, all alike


def test_the_names_of_the_files_tell_too(tmp_path):
    folder = write(tmp_path, FILES)
    found = [fingerprint(folder)]
    write(folder, {"model-00002-of-00002.safetensors": b""})
    found.append(fingerprint(folder))
    (folder / "model-00002-of-00002.safetensors").rename(folder / "model-00003-of-00003.safetensors")
    found.append(fingerprint(folder))
    (folder / "chat_template.jinja").unlink()
    assert len({*found, fingerprint(folder)}) == 4


def test_what_a_run_or_an_evaluation_leaves_beside_the_weights_makes_no_other_model(tmp_path):
    folder = write(tmp_path, FILES)
    before = fingerprint(folder)
    beside = [*OF_A_RUN, "evaluation.json", "results.json", "results.md", "README.md", "training_args.bin"]
    write(folder, dict.fromkeys(beside, b"{}"))
    write(folder / "checkpoint-8", {"model.safetensors": b"8"})
    assert fingerprint(folder) == before


# ------------------------------------------------------------------------------------------- lmms-eval's arguments

HERE = EvaluatedModel("model", Path("/models/model"), None, "ab")
SERVED = EvaluatedModel("you/served", None, None, "ab")


def arguments(backend, model=HERE, /, **given):
    url = "http://127.0.0.1:8000/v1" if backend == "server" else None
    return model_arguments(model, backend, batch_size=7, given=given, server_url=url)


def test_each_backend_is_given_the_model_under_its_own_name():
    assert arguments("transformers", max_pixels=1) == {
        "pretrained": "/models/model",
        "batch_size": 7,
        "max_pixels": 1,
    }
    assert arguments("server", SERVED, max_retries=9) == {
        "model_version": "you/served",
        "base_url": "http://127.0.0.1:8000/v1",
        "num_concurrent": 7,
        "max_retries": 9,
    }


def test_vllm_never_executes_code_of_the_model():
    own = arguments("vllm", tensor_parallel_size=4)
    assert own["trust_remote_code"] is False
    assert (own["model"], own["tensor_parallel_size"]) == ("/models/model", 4)
    assert own["max_new_tokens"] == 1  # the larger of this and the request's counts


def test_what_an_option_sets_has_no_effect_or_could_be_a_secret_is_refused_and_its_value_not_repeated():
    names = [
        "pretrained",
        "model",
        "batch_size",
        "device",
        "base_url",
        "num_concurrent",
        "seed",
        "system_prompt",
        "api_key",
        "hf_token",
    ]
    of_backends = {"transformers": ["torch_dtype"], "server": ["timeout", "max_pixels"], "vllm": ["max_pixels"]}
    for backend in BACKENDS:
        for name in names + of_backends[backend]:
            with refused(ConfigurationError, ["--model_args", name]) as raised:
                arguments(backend, **{name: "hf_secret"})
            assert "hf_secret" not in str(raised.value)


def test_transformers_is_given_pictures_in_the_sizes_of_the_models_own_processor(tmp_path):
    """lmms-eval's own bounds would blow a small picture up to more tokens than training ever showed."""
    edges = {"size": {"shortest_edge": 1, "longest_edge": 2}}
    pixels = {"min_pixels": 3, "max_pixels": 4}
    for number, (processor, preprocessor, sizes) in enumerate(
        (
            ({"image_processor": edges}, pixels, (1, 2)),
            ({"processor_class": "Qwen2_5_VLProcessor"}, pixels, (3, 4)),
            ({}, edges, (1, 2)),
            ({}, {"size": {"height": 224, "width": 224}}, None),
            ({}, {"size": 224}, None),
            ({}, [], None),
        )
    ):
        files = {"processor_config.json": processor, "preprocessor_config.json": preprocessor}
        folder = write(tmp_path / f"{number}", {name: json.dumps(each).encode() for name, each in files.items()})
        expected = dict(zip(("min_pixels", "max_pixels"), sizes, strict=True)) if sizes else {}
        model = EvaluatedModel("model", folder, None, "ab")
        own = {"pretrained": str(folder), "batch_size": 7} | expected
        assert arguments("transformers", model) == own
        assert arguments("transformers", model, max_pixels=7) == own | {"max_pixels": 7}  # the user's win
        assert "min_pixels" not in arguments("vllm", model)


def test_the_sizes_of_pictures_are_those_that_the_saved_processor_has(vision_model_path):
    from transformers import AutoProcessor

    sizes = picture_sizes(Path(vision_model_path))
    size = AutoProcessor.from_pretrained(vision_model_path).image_processor.size
    assert (sizes["min_pixels"], sizes["max_pixels"]) == (size["shortest_edge"], size["longest_edge"])
