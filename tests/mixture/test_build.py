"""The mixture built from stand-ins for its sources: exact, repeatable to the byte, and fit to train on."""

import hashlib
import json
import re
from dataclasses import replace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.mixture import build as build_module
from scripts.mixture.build import build_mixture
from scripts.mixture.conversations import Question
from scripts.mixture.fetch import local_files, open_stream
from scripts.mixture.overlap import read_evaluation_sets
from scripts.mixture.rows import DROPPED, Choice, Recipe, features, key, prompt_text, row_name
from scripts.mixture.sources import SOURCES, SourceSchemaError, SourceShortageError
from tests.support.mixture_stand_ins import (
    ONE_VISION,
    content,
    make_mirror,
    make_rows,
    picture,
    write_card,
    write_files,
)
from tests.support.rows import text_of
from trl_vade import VADEGRPOTrainer
from trl_vade.errors import ConfigurationError
from trl_vade.rewards.functions import INSTRUCTION, accuracy_reward
from trl_vade.rewards.verifiers import judge

COUNTS = {task: 8 + number for number, task in enumerate(SOURCES)}  # 143 rows


def some(counts=COUNTS):
    return tuple(replace(SOURCES[task], count=count) for task, count in counts.items())


def build(folder, mirror, counts=COUNTS, **changes):
    return build_mixture(Recipe(some(counts), mirror=mirror, **changes), folder, "the command")


def rows_of(folder):
    files = (path for split in ("train", "validation") for path in folder.glob(f"data/{split}*"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where `load_dataset` keeps what it read, in place of the user's folder."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    """The folder of the copies, and how many rows of each kind they have, by task."""
    folder = tmp_path_factory.mktemp("mirror")
    return folder, make_mirror(folder, COUNTS)


@pytest.fixture(scope="module")
def evaluation(mirror):
    return read_evaluation_sets(["AI4Math/MathVista@testmini"], mirror=mirror[0])


@pytest.fixture(scope="module")
def built(mirror, evaluation, tmp_path_factory):
    """A build without the rows of the stand-in for MathVista."""
    folder = tmp_path_factory.mktemp("built")
    return folder, build(folder, mirror[0], evaluation=evaluation)


def test_each_source_gives_its_rows_and_every_row_that_is_dropped_is_counted_by_its_reason(built, mirror):
    folder, manifest = built
    tasks = [row["task"] for row in rows_of(folder)]
    assert {task: tasks.count(task) for task in COUNTS} == COUNTS
    assert manifest["splits"] == {"train": 143 - 14, "validation": 14}
    for source in manifest["sources"]:
        kinds = dict(mirror[1][source["task"]])
        assert source["train"] + source["validation"] == source["taken"] == source["asked"] == COUNTS[source["task"]]
        assert source["dropped"] == {reason: kinds[reason] for reason in DROPPED if kinds.get(reason)}
        assert source["usable"] == kinds["good"]
        assert source["read"] == source["usable"] + sum(source["dropped"].values()) == sum(kinds.values())


def test_the_split_and_the_order_of_rows_follow_from_their_names(built):
    ids = [row["id"] for row in rows_of(built[0])]
    validation = set(sorted(ids, key=lambda name: key(0, "split", name))[:14])
    assert ids[:129] == sorted(set(ids) - validation, key=lambda name: key(0, "order", name))
    assert ids[129:] == sorted(validation, key=lambda name: key(0, "order", name))


def test_load_dataset_reads_the_schema_and_the_last_build_under_one_name(built, mirror, tmp_path, cache):
    """datasets 5.2 takes a local folder for the one it has cached where name and card are the same."""
    loaded = load_dataset(str(built[0]), cache_dir=cache)
    assert {split: rows.num_rows for split, rows in loaded.items()} == {"train": 129, "validation": 14}
    assert loaded["train"].features == loaded["validation"].features == features()
    assert len(set(loaded["train"]["id"]) | set(loaded["validation"]["id"])) == 143
    seen = []
    for place, seed in (("one", 0), ("one", 1), ("two", 2)):
        build(tmp_path / place / "same-name", mirror[0], {"geos": 8}, seed=seed)
        rows = load_dataset(str(tmp_path / place / "same-name"), cache_dir=cache)
        seen.append(frozenset({*rows["train"]["id"], *rows["validation"]["id"]}))
        assert seen[-1] == {row["id"] for row in rows_of(tmp_path / place / "same-name")}
    assert len(set(seen)) == 3


def test_every_answer_is_right_for_the_verifier_and_every_image_a_file_of_its_source(built, mirror):
    rows, files = rows_of(built[0]), local_files(some(), mirror[0])
    there = {row["image"]["bytes"] for s in some() for row in open_stream(s, files[s.task]) if row["image"]}
    assert {row["answer_type"] for row in rows} == {"choice", "number", "text"}
    for row in rows:
        completion = f"<think>So it is.</think><answer>{row['answer']}</answer>"
        assert judge(completion, row["answer"], row["answer_type"], row["choices"]) == 1.0
        assert (row["choices"] is None) == (row["answer_type"] != "choice")
        assert "<image>" not in row["prompt"][0]["content"]
        assert row["images"][0]["path"] is None
        assert row["images"][0]["bytes"] in there


def test_rows_of_an_evaluation_set_are_taken_out_and_reported(built, evaluation, mirror, tmp_path):
    folder, manifest = built
    for row in rows_of(folder):
        image = row["images"][0]["bytes"]
        assert not evaluation.with_image(image, (28, 28))
        question = row["prompt"][0]["content"].split("\nChoices:")[0].split("\n\n")[0]
        assert not evaluation.with_question(question.removeprefix("Look at the food web.\n"), row["choices"], image)
    removed = {row["source"]: (row["by_image"], row["by_question"]) for row in manifest["overlap"]["removed"]}
    kinds = {SOURCES[task].name: counts for task, counts in mirror[1].items()}
    assert removed == {name: (counts["overlap_image"], counts["overlap_question"]) for name, counts in kinds.items()}
    assert "| geo3k | AI4Math/MathVista@testmini | 1 | 1 |" in (folder / "README.md").read_text()
    unchecked, counts = build(tmp_path, mirror[0], {"geo3k": 8}), mirror[1]["geo3k"]
    assert unchecked["sources"][0]["usable"] == counts["good"] + counts["overlap_image"] + counts["overlap_question"]
    assert unchecked["overlap"] is None
    assert "**No check was made.**" in (tmp_path / "README.md").read_text()


def test_a_build_that_was_interrupted_is_equal_to_the_byte(built, mirror, evaluation, tmp_path, monkeypatch):
    """Nothing is written before all rows are read, and the manifest comes last."""
    folder = tmp_path / "out"

    def after_one(call):
        calls = iter([1])
        return lambda *arguments: call(*arguments) if next(calls, None) else 1 / 0

    for part, call, there in ((Choice, "read", set()), (build_module, "write_split", {"mixture.json", "data"})):
        with monkeypatch.context() as patch:
            patch.setattr(part, call, after_one(getattr(part, call)))
            with pytest.raises(ZeroDivisionError):
                build(folder, mirror[0], evaluation=evaluation)
        assert {path.name for path in folder.glob("*")} == there
    assert build(folder, mirror[0], evaluation=evaluation) == built[1]
    assert content(folder) == content(built[0])
    assert len(content(folder)) == 5


def test_a_source_with_one_row_less_is_a_warning_and_one_with_less_than_half_is_refused(mirror, tmp_path, caplog):
    """GEOS has 498 of the 498 rows that are asked for, so one duplicate may not cost the mixture."""
    usable = sum(mirror[1]["geos"][kind] for kind in ("good", "overlap_image", "overlap_question"))
    manifest = build(tmp_path / "warned", mirror[0], {"geos": usable + 1, "tabmwp": 8})
    assert manifest["sources"][0]["taken"] == usable
    assert "GEOS(MathV360K)" in caplog.text
    assert "tabmwp" not in caplog.text
    assert "this is not the whole mixture" in (tmp_path / "warned" / "README.md").read_text()
    short = {"geos": 2 * usable + 1, "ai2d": 200, "tabmwp": 8}
    with pytest.raises(SourceShortageError) as refusal:
        build(tmp_path / "out", mirror[0], short)
    for part in ("GEOS(MathV360K)", f"{usable} usable", "ai2d", "duplicate 1", "--allow_fewer"):
        assert part in str(refusal.value)
    assert not (tmp_path / "out").exists()
    assert build(tmp_path / "out", mirror[0], short, allow_fewer=True)["sources"][0]["taken"] == usable


def renamed(file):
    pq.write_table(pq.read_table(file).rename_columns(["id", "image", "talk", "data_source"]), file)


def test_every_source_is_checked_before_a_row_is_read_and_a_bad_file_is_named(tmp_path, monkeypatch):
    def files_of(folder, task):
        return sorted((folder / SOURCES[task].repo / SOURCES[task].config).glob("*.parquet"))

    make_mirror(tmp_path / "first", {"geos": 8, "tabmwp": 8})
    renamed(files_of(tmp_path / "first", "tabmwp")[0])
    with monkeypatch.context() as patch:
        patch.setattr(Choice, "read", lambda *arguments: pytest.fail("a row was read"))
        with pytest.raises(SourceSchemaError, match=r"tabmwp.* 'conversations' is not there"):
            build(tmp_path / "out", tmp_path / "first", {"geos": 8, "tabmwp": 8})
    make_mirror(tmp_path / "later", {"geos": 8})
    later = files_of(tmp_path / "later", "geos")[1]
    whole = later.read_bytes()
    renamed(later)
    with pytest.raises(SourceSchemaError, match=r"GEOS\(MathV360K\).* has the columns .*'talk'"):
        build(tmp_path / "out", tmp_path / "later", {"geos": 8})
    later.write_bytes(whole[:-40])
    with pytest.raises(pa.ArrowInvalid) as failure:
        build(tmp_path / "out", tmp_path / "later", {"geos": 8})
    assert "GEOS(MathV360K)" in failure.value.__notes__[0]


def test_one_row_is_no_mixture_and_a_folder_with_other_things_in_it_is_left_alone(mirror, tmp_path):
    with pytest.raises(ConfigurationError, match="has 1 rows"):
        build(tmp_path, mirror[0], {"geos": 1})
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(ConfigurationError, match="was not made by this script"):
        build(tmp_path, mirror[0])
    assert content(tmp_path) == {"README.md": b"mine"}


def test_manifest_and_page_describe_the_files_and_name_no_folder_of_this_machine(built, mirror):
    folder, manifest = built
    assert json.loads((folder / "mixture.json").read_text()) == manifest
    for file, digest in manifest["files"].items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest
    for name in ("README.md", "mixture.json", "mixture.html"):
        assert not [place for place in (mirror[0], folder) if str(place) in (folder / name).read_text()]
    page, rows = (folder / "mixture.html").read_text(), rows_of(folder)
    for source in manifest["sources"]:
        ids = [row["id"] for row in rows if row["source"] == source["name"]]
        assert sum(f"<small>{name}</small>" in page for name in ids) == 3
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(address.startswith(("#", "data:image/jpeg;base64,")) for address in addresses)


def test_what_a_row_says_is_text_on_the_page_and_shared_images_are_counted(tmp_path):
    """Every image of this source is there ten times, with ten questions: nearly all of validation shares one."""
    rows, source = [row for row in make_rows("clevr_math", 40, [], extra=0)[0] if row["image"]], SOURCES["clevr_math"]
    for number, row in enumerate(rows):
        row["image"] = {"bytes": picture(number // 10), "path": None}
        row["conversations"][0]["value"] += "\n<script>alert(1)</script>"
    write_files(tmp_path / source.repo / source.config, ONE_VISION, rows)
    write_card(tmp_path / source.repo, {source.config: {"train": f"{source.config}/train-*"}})
    manifest = build(tmp_path / "out", tmp_path, {"clevr_math": 40})
    assert manifest["shared"] == {"image": 4, "image_and_prompt": 0}
    assert "4 of the 4 validation rows" in (tmp_path / "out" / "README.md").read_text()
    page = (tmp_path / "out" / "mixture.html").read_text()
    assert ("<script" in page, "&lt;script&gt;" in page) == (False, True)


def test_what_the_user_says_and_the_name_of_a_row():
    choices = Question("Which?", ["one", "two"], "B", "choice", context="Look.")
    asked = "Look.\nWhich?\nChoices:\nA. one\nB. two\n\n"
    assert prompt_text(Question("How many?", None, "3", "number")) == f"How many?\n\n{INSTRUCTION}"
    assert prompt_text(choices).startswith(f"{asked}Think about the question first")
    assert prompt_text(choices).endswith("<answer></answer>: the letter of the right choice.")
    assert prompt_text(choices, "Be brief.") == f"{asked}Be brief."
    changes = ({}, {"text": "Which"}, {"choices": ["onet", "wo"]}, {"answer": "A"}, {"context": ""})
    names = {row_name("geos", replace(choices, **change), b"image") for change in changes}
    names.add(row_name("geos", choices, b"other"))
    assert len(names) == 6
    assert all(re.fullmatch("geos-[0-9a-f]{16}", name) for name in names)


ROWS = make_rows("ai2d", 20, [])[0]


@settings(max_examples=15)
@given(st.permutations(range(len(ROWS))), st.integers(0, 3))
def test_the_chosen_rows_are_a_sample_by_the_seed_alone(order, seed):
    """Any order gives the same rows."""
    source = replace(SOURCES["ai2d"], count=7)
    plain, mixed = (Choice(source, Recipe((source,), seed)) for _ in range(2))
    for i in range(len(ROWS)):
        plain.read(ROWS[i])
        mixed.read(ROWS[order[i]])
    assert mixed.rows == plain.rows
    assert len(plain.rows) == 7
    assert mixed.counts["read"] == len(ROWS) == sum(mixed.counts.values()) - mixed.counts["read"]


def test_the_rows_train(built, vision_model_path, make_args, cache):
    def even(completions, **columns):
        """A little for an even length, so that a random model has a gradient."""
        return [0.1 * (len(text_of(each)) % 2) for each in completions]

    rows = load_dataset(str(built[0]), split="train", cache_dir=cache)
    args = make_args(max_steps=2, vade_stratify_by="task")
    trainer = VADEGRPOTrainer(vision_model_path, [accuracy_reward, even], args, rows)
    trainer.train()
    assert trainer.selection.sampler.posterior.step == trainer.state.global_step == 2
