"""`trl-vade variants`: from a data set to a folder that `load_dataset` reads, and to the Hub."""

import hashlib
import json
import re
import sys
from collections import Counter

import pytest
from datasets import ClassLabel, Dataset, Features, Image, List, Value, load_dataset

from tests.support import scripts
from tests.support.commands import run, said
from tests.support.loopback_writer import LoopbackWriter
from tests.support.pictures import file_of, gradient
from trl_vade.cli.variants.endpoint import KEY
from trl_vade.data.row_keys import sample_keys
from trl_vade.data.row_names import RowNames
from trl_vade.testbed import build_dataset

SECRET = "sk-secret-4711"
IMAGE_KINDS = "rotation-1,gaussian-2,salt-pepper-1,speckle-1,blur-1,low-resolution-2,drawn"


@pytest.fixture(autouse=True)
def quick_retries_without_keys(monkeypatch):
    monkeypatch.setattr("openai._base_client.INITIAL_RETRY_DELAY", 0.01)
    for name in (KEY, "OPENAI_API_KEY", "HTTP_PROXY", "http_proxy"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def rows(tmp_path):
    """A Parquet file of 12 rows of the testbed."""
    build_dataset(12, 1, progress=False)["train"].to_parquet(tmp_path / "rows.parquet")
    return tmp_path / "rows.parquet"


@pytest.fixture
def writer():
    with LoopbackWriter() as running:
        yield running


def built(tmp_path, place, *options, to="out"):
    """Build into a folder, and return its rows as they are stored."""
    result = run("variants", place, "--output_dir", tmp_path / to, *options)
    assert result.exit_code == 0, result.output
    [file] = (tmp_path / to / "data").iterdir()
    return Dataset.from_parquet(str(file), cache_dir=str(tmp_path / "cache")).with_format("arrow")[:].to_pylist()


def asking(writer, *options):
    return ("--endpoint", writer.url, "--model", writer.model, "--concurrency", 4, "--retries", 2, *options)


def sha256_of(folder):
    [file] = (folder / "data").iterdir()
    return hashlib.sha256(file.read_bytes()).hexdigest()


def kept(folder):
    """The counts of the card by kind: kept and refused."""
    lines = re.findall(
        r"^\| (\S+) \| (.+) \| ([\d,]+) \| ([\d,]+) \|$", (folder / "README.md").read_text(), re.MULTILINE
    )
    return {kind: (int(kept), int(refused), why) for kind, why, kept, refused in lines}


# -------------------------------------------------------------------------------------------------------- the data set


def test_variants_stand_behind_their_original_and_name_it(tmp_path, rows):
    made = built(tmp_path, rows, "--kinds", "gaussian-2,drawn", "--limit", 5)
    assert [row["kind"] for row in made] == ["original", "gaussian-2", "drawn"] * 5
    assert all(row["of"] == made[place - place % 3]["id"] for place, row in enumerate(made))
    assert [row["id"] for row in made[:3]] == [made[0]["id"], f"{made[0]['id']}/gaussian-2", f"{made[0]['id']}/drawn"]
    same = {"answer", "task", "level"}
    assert all(row[name] == made[place - place % 3][name] for place, row in enumerate(made) for name in same)


def test_originals_are_the_rows_as_they_were(tmp_path, rows):
    before = Dataset.from_parquet(str(rows), cache_dir=str(tmp_path / "cache")).with_format("arrow")[:].to_pylist()
    made = built(tmp_path, rows, "--kinds", "rotation-1")
    originals = [row for row in made if row["kind"] == "original"]
    assert [{name: row[name] for name in before[0]} for row in originals] == before


def test_load_dataset_reads_the_folder_with_the_columns_types(tmp_path, rows):
    built(tmp_path, rows, "--kinds", "rotation-1,text", *asking_nobody())
    found = load_dataset(str(tmp_path / "out"), split="train", cache_dir=str(tmp_path / "cache2"))
    assert found.features["images"] == List(Image())
    assert {"id", "of", "kind", "variant_source", "variant_model", "variant_request"} < found.features.keys()
    assert found[1]["images"][0].size == (56, 56)
    assert len({*found["id"]}) == len(found)


def asking_nobody():
    """Options with an endpoint where nothing listens, for which missing replies are allowed."""
    return (
        "--endpoint",
        "http://127.0.0.1:9/v1",
        "--model",
        "m",
        "--retries",
        0,
        "--concurrency",
        99,
        "--allow_missing",
    )


def test_two_builds_of_the_image_kinds_are_equal_byte_for_byte(tmp_path, rows):
    for name in ("a", "b"):
        built(tmp_path, rows, "--kinds", IMAGE_KINDS, to=name)
    assert sha256_of(tmp_path / "a") == sha256_of(tmp_path / "b")
    assert (tmp_path / "a" / "README.md").read_bytes() == (tmp_path / "b" / "README.md").read_bytes()
    built(tmp_path, rows, "--kinds", IMAGE_KINDS, "--seed", 1, to="c")
    assert sha256_of(tmp_path / "a") != sha256_of(tmp_path / "c")


def test_the_table_and_the_card_say_how_many_were_refused_and_why(tmp_path):
    words = ["variants", "testbed", "--output_dir", tmp_path / "out", "--kinds", "rotation-1,drawn", "--limit", 24]
    result = run(*words)
    assert result.exit_code == 0
    counts = {"rotation-1": {"kept": 20, "the orientation matters": 4}, "drawn": {"kept": 24}}
    assert json.loads(run(*words, "--json").stdout) == counts
    assert kept(tmp_path / "out") == {
        "rotation-1": (20, 4, "the orientation matters 4"),
        "drawn": (24, 0, "none"),
    }
    assert "the orientation matters 4" in result.stdout
    card = (tmp_path / "out" / "README.md").read_text()
    assert "trl-vade variants testbed --kinds rotation-1,drawn --seed 0 --limit 24" in card
    assert str(tmp_path) not in card


def test_rows_without_ids_are_named_by_their_keys(tmp_path):
    data = Dataset.from_list([{"question": f"What is {n} + 1?", "answer": str(n + 1)} for n in range(4)])
    data.save_to_disk(tmp_path / "rows")
    names = RowNames(data, sample_keys(data)[0]).of()
    made = built(tmp_path, tmp_path / "rows", "--kinds", "text", *asking_nobody())
    assert [row["id"] for row in made] == [row["of"] for row in made] == names


def test_columns_are_told_and_others_stay(tmp_path):
    features = Features(
        {"q": Value("string"), "photo": Image(), "a": Value("string"), "kind_of": ClassLabel(names=["x", "y"])}
    )
    data = [{"q": f"What is {n}?", "photo": file_of(gradient()), "a": str(n), "kind_of": n % 2} for n in range(4)]
    Dataset.from_list(data, features=features).to_parquet(tmp_path / "rows.parquet")
    options = ("--prompt_column", "q", "--image_column", "photo", "--answer_column", "a", "--task_column", "kind_of")
    made = built(tmp_path, tmp_path / "rows.parquet", *options, "--kinds", "blur-2,drawn", "--safe_for", "blur=1")
    assert Counter(row["kind"] for row in made) == {"original": 4, "blur-2": 2, "drawn": 4}
    assert {row["kind_of"] for row in made if row["kind"] == "blur-2"} == {1}


def test_hints_of_gsm8k_are_made_of_its_answers_without_an_llm(tmp_path):
    solution = "Natalia sold 48/2 = <<48/2=24>>24 clips in May.\nShe sold 48+24 = <<48+24=72>>72 clips.\n#### 72"
    Dataset.from_list([{"question": "How many clips?", "answer": solution}] * 2).to_parquet(tmp_path / "rows.parquet")
    made = built(tmp_path, tmp_path / "rows.parquet", "--kinds", "hint-1", "--solution_column", "answer")
    assert [row["kind"] for row in made] == ["original", "hint-1"] * 2
    assert made[1]["question"].endswith("1. Natalia sold 48/2 = 24 clips in May.")
    assert made[1]["answer"] == solution


def test_a_font_of_the_users_draws_the_signs_that_pillows_lacks(tmp_path):
    import matplotlib

    font = f"{matplotlib.get_data_path()}/fonts/ttf/DejaVuSans.ttf"
    data = [{"id": "a", "question": "What is 2\u03c0?", "image": file_of(gradient()), "answer": "6.28"}]
    Dataset.from_list(
        data, features=Features({**dict.fromkeys(("id", "question", "answer"), Value("string")), "image": Image()})
    ).to_parquet(tmp_path / "rows.parquet")
    assert len(built(tmp_path, tmp_path / "rows.parquet", "--kinds", "drawn")) == 1
    assert len(built(tmp_path, tmp_path / "rows.parquet", "--kinds", "drawn", "--font", font)) == 2


@pytest.mark.slow
def test_the_script_is_the_command(tmp_path, rows):
    scripts.run("build_variants.py", rows, "--output_dir", tmp_path / "a", "--kinds", "speckle-1")
    built(tmp_path, rows, "--kinds", "speckle-1", to="b")
    assert sha256_of(tmp_path / "a") == sha256_of(tmp_path / "b")


# ------------------------------------------------------------------------------------------------------------- the LLM


def test_what_an_llm_writes_is_asked_for_once_and_used_by_the_next_build(tmp_path, rows, writer):
    first = built(tmp_path, rows, "--kinds", "text,hint-1,hint-2", *asking(writer))
    calls = writer.calls
    assert writer.pictures == 12
    assert Counter(row["kind"] for row in first) == dict.fromkeys(("original", "text", "hint-1", "hint-2"), 12)
    assert {row["variant_model"] for row in first if row["kind"] != "original"} == {writer.model}
    assert built(tmp_path, rows, "--kinds", "text,hint-1,hint-2,drawn", *asking(writer))[1] == first[1]
    assert writer.calls == calls


def test_an_endpoint_that_dies_half_way_is_resumed_and_gives_the_same_data_set(tmp_path, rows, writer):
    options = ("--kinds", "gaussian-1,text,hint-1", *asking(writer))
    whole = built(tmp_path, rows, *options, to="whole")
    calls, writer.fault = writer.calls, lambda prompt, attempt: "good" if writer.calls < calls + 5 else "dead"
    out = tmp_path / "out"
    said(run("variants", rows, "--output_dir", out, *options), 1, writer.url, "the connection failed", "same command")
    assert not (out / "README.md").exists()
    assert not (out / "data").exists()
    came = len((out / ".replies.jsonl").read_text().splitlines())
    assert came == 5
    writer.fault, asked = (lambda prompt, attempt: "good"), writer.calls
    assert built(tmp_path, rows, *options) == whole
    assert writer.calls - asked == calls - came
    assert sha256_of(out) == sha256_of(tmp_path / "whole")


def test_a_request_that_fails_for_good_is_an_error_or_a_refusal(tmp_path, rows, writer):
    writer.fault = lambda prompt, attempt: "status400" if "Which digit" in prompt else "good"
    options = ("--kinds", "text", *asking(writer))
    result = run("variants", rows, "--output_dir", tmp_path / "out", *options)
    said(result, 1, "1 requests have no reply", "HTTP status 400", "--allow_missing", "same command")
    built(tmp_path, rows, *options, "--allow_missing")
    assert kept(tmp_path / "out")["text"] == (11, 1, "no reply 1")


@pytest.mark.parametrize("mode", ["empty", "nonsense", "refusal", "page", "leak", "endless", "copy", "no text"])
def test_nonsense_never_becomes_a_row(tmp_path, rows, writer, mode):
    writer.fault = lambda prompt, attempt: mode
    made = built(tmp_path, rows, "--kinds", "text,hint-1", *asking(writer))
    assert {row["kind"] for row in made} == {"original"}
    assert [count[:2] for count in kept(tmp_path / "out").values()] == [(0, 12), (0, 12)]


def test_the_key_is_in_no_file_and_no_message(tmp_path, rows, monkeypatch):
    monkeypatch.setenv(KEY, SECRET)
    with LoopbackWriter(key="sk-right") as writer:
        result = run("variants", rows, "--output_dir", tmp_path / "out", "--kinds", "text", *asking(writer))
    said(result, 1, "401", KEY)
    with LoopbackWriter(key=SECRET) as writer:
        built(tmp_path, rows, "--kinds", "text", *asking(writer))
    everything = b"".join(path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert SECRET not in result.output
    assert SECRET.encode() not in everything
    assert writer.url.encode() not in everything


# ------------------------------------------------------------------------------------------------------------ refusals


def test_what_cannot_work_is_refused_before_anything_is_written(tmp_path, rows):
    out = tmp_path / "out"

    def refusal(*options, words, exit_code=2):
        said(run("variants", rows, "--output_dir", out, *options), exit_code, *words)
        assert not out.exists()

    refusal("--kinds", "twist-1", words=["--kinds", "twist-1", "hint-1"])
    refusal("--kinds", "text,hint-1", words=["text,hint-1", "--endpoint", "--solution_column"])
    refusal("--kinds", "text", "--model", "m", words=["--endpoint", "--model"])
    refusal("--kinds", "text", "--model", "m", "--endpoint", "host", words=["--endpoint", "http://HOST:8000/v1"])
    refusal("--kinds", "drawn", "--answer_column", "reply", words=["--answer_column reply", "prompt, images, answer"])
    refusal("--kinds", "drawn", "--split", "none", "--safe_for", "drawn", words=["--safe_for drawn", "KIND=all"])
    refusal("--kinds", "drawn", "--font", rows, words=["--font", rows, "TrueType"])
    said(run("variants", tmp_path / "none", "--output_dir", out, "--kinds", "drawn"), 2, tmp_path / "none")
    said(run("variants", "testbed", "--split", "x", "--output_dir", out, "--kinds", "drawn"), 2, "x", "validation")


def test_variants_of_variants_are_refused(tmp_path, rows):
    built(tmp_path, rows, "--kinds", "drawn")
    result = run("variants", tmp_path / "out", "--output_dir", tmp_path / "again", "--kinds", "drawn")
    said(result, 2, "of, kind", "originals")


def test_an_id_that_a_variant_would_get_is_refused(tmp_path):
    data = [{"id": id, "question": "Why?", "answer": "x"} for id in ("a", "b", "a/text")]
    Dataset.from_list(data).to_parquet(tmp_path / "rows.parquet")
    result = run(
        *("variants", tmp_path / "rows.parquet", "--output_dir", tmp_path / "out"),
        *("--kinds", "text", *asking_nobody()),
    )
    said(result, 2, "a/text", "rename")


def test_a_folder_with_other_files_is_not_written_to(tmp_path, rows):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("my only copy")
    result = run("variants", rows, "--output_dir", tmp_path / "out", "--kinds", "drawn")
    said(result, 2, tmp_path / "out", "does not exist")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["thesis.txt"]


def test_another_build_replaces_the_file_of_the_one_before(tmp_path):
    for split in ("train", "validation"):
        made = built(tmp_path, "testbed", "--split", split, "--kinds", "drawn", "--limit", 3)
    assert [path.name for path in (tmp_path / "out" / "data").iterdir()] == ["validation-00000-of-00001.parquet"]
    assert len(made) == 6


# ------------------------------------------------------------------------------------------------------------- the Hub


def test_the_folder_goes_to_the_hub_without_the_replies(hub, tmp_path, rows, writer):
    result = run(
        *("variants", rows, "--output_dir", tmp_path / "out", "--kinds", "text", *asking(writer)),
        *("--push_to_hub", "you/variants", "--private"),
    )
    assert result.exit_code == 0, result.output
    repo = hub.repos["datasets/you/variants"]
    assert repo.private
    assert repo.files().keys() == {".gitattributes", "README.md", "data/train-00000-of-00001.parquet"}
    assert hashlib.sha256(repo.files()["data/train-00000-of-00001.parquet"]).hexdigest() == sha256_of(tmp_path / "out")
    found = load_dataset("you/variants", split="train")
    assert Counter(found["kind"]) == {"original": 12, "text": 12}


def test_a_login_that_may_not_write_is_refused_before_the_llm_is_asked(hub, tmp_path, rows, writer, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    result = run(
        *("variants", rows, "--output_dir", tmp_path / "out", "--kinds", "text", *asking(writer)),
        *("--push_to_hub", "you/variants"),
    )
    assert result.exit_code == 1
    assert writer.calls == 0
    assert not (tmp_path / "out").exists()


def test_the_help_of_the_script_is_that_of_the_command():
    assert "--safe_for" in scripts.run("build_variants.py", "--help")
    assert "build_variants.py" not in sys.argv[0]
