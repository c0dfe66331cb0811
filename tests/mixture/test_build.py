"""The mixture built from stand-ins for its sources: exact, repeatable to the byte, and fit to train on."""

import base64
import hashlib
import json
import random
import re
from dataclasses import replace
from io import BytesIO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as Pictures

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
from trl_vade.rewards.functions import INSTRUCTION
from trl_vade.rewards.verifiers import judge

COUNTS = {task: 8 + number for number, task in enumerate(SOURCES)}  # 143 rows


def some(counts=COUNTS):
    return tuple(replace(SOURCES[task], count=count) for task, count in counts.items())


def build(folder, mirror, counts=COUNTS, **changes):
    return build_mixture(Recipe(some(counts), mirror=mirror, **changes), folder, "the command")


def rows_of(folder):
    return [
        row for split in ("train", "validation") for row in pq.read_table(*folder.glob(f"data/{split}*")).to_pylist()
    ]


@pytest.fixture(scope="session")
def cache(tmp_path_factory):
    """Where `load_dataset` keeps what it read, in place of the user's folder."""
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def mirror(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mirror")
    kinds = make_mirror(folder, COUNTS)
    return folder, kinds


@pytest.fixture(scope="module")
def evaluation(mirror):
    return read_evaluation_sets(["AI4Math/MathVista@testmini"], mirror=mirror[0])


@pytest.fixture(scope="module")
def built(mirror, evaluation, tmp_path_factory):
    """A build without the rows of the stand-in for MathVista."""
    folder = tmp_path_factory.mktemp("built")
    return folder, build(folder, mirror[0], evaluation=evaluation)


def test_each_source_gives_the_rows_that_are_asked_for(built):
    folder, manifest = built
    tasks = [row["task"] for row in rows_of(folder)]
    assert {task: tasks.count(task) for task in COUNTS} == COUNTS
    assert manifest["splits"] == {"train": 143 - 14, "validation": 14}
    for source in manifest["sources"]:
        assert source["train"] + source["validation"] == source["taken"] == source["asked"] == COUNTS[source["task"]]


def test_every_row_that_is_dropped_is_counted_by_its_reason(built, mirror):
    for source in built[1]["sources"]:
        kinds = dict(mirror[1][source["task"]])
        assert source["dropped"] == {reason: kinds[reason] for reason in DROPPED if kinds.get(reason)}
        assert source["usable"] == kinds["good"]
        assert source["read"] == source["usable"] + sum(source["dropped"].values()) == sum(kinds.values())


def test_the_split_and_the_order_of_rows_follow_from_their_names(built):
    ids = [row["id"] for row in rows_of(built[0])]
    validation = set(sorted(ids, key=lambda name: key(0, "split", name))[:14])
    assert ids[:129] == sorted(set(ids) - validation, key=lambda name: key(0, "order", name))
    assert ids[129:] == sorted(validation, key=lambda name: key(0, "order", name))


def test_load_dataset_reads_it_with_the_schema(built, cache):
    loaded = load_dataset(str(built[0]), cache_dir=cache)
    assert {split: rows.num_rows for split, rows in loaded.items()} == {"train": 129, "validation": 14}
    assert loaded["train"].features == loaded["validation"].features == features()
    row = loaded["train"][0]
    assert row["images"][0].size == (28, 28)
    assert [message["role"] for message in row["prompt"]] == ["user"]
    assert (row["choices"] is None) == (row["answer_type"] != "choice")
    assert len(set(loaded["train"]["id"]) | set(loaded["validation"]["id"])) == 143


def test_load_dataset_reads_the_rows_of_the_last_build_and_not_those_in_its_cache(mirror, tmp_path, cache):
    """datasets 5.2 takes a local folder for the one it has cached where name and card are the same."""
    loaded = []
    for place, seed in (("one", 0), ("one", 1), ("two", 2)):
        folder = tmp_path / place / "same-name"
        build(folder, mirror[0], {"geos": 8}, seed=seed)
        rows = load_dataset(str(folder), cache_dir=cache)
        loaded.append({*rows["train"]["id"], *rows["validation"]["id"]})
        assert loaded[-1] == {row["id"] for row in rows_of(folder)}
    assert len(set(map(frozenset, loaded))) == 3


def test_every_answer_is_right_for_the_verifier(built):
    rows = rows_of(built[0])
    assert {row["answer_type"] for row in rows} == {"choice", "number", "text"}
    for row in rows:
        completion = f"<think>So it is.</think><answer>{row['answer']}</answer>"
        assert judge(completion, row["answer"], row["answer_type"], row["choices"]) == 1.0
        assert "<image>" not in row["prompt"][0]["content"]
        assert row["images"][0]["path"] is None


def test_images_are_the_files_that_the_source_has(built, mirror):
    files = local_files(some(), mirror[0])
    there = {
        row["image"]["bytes"] for source in some() for row in open_stream(source, files[source.task]) if row["image"]
    }
    assert {row["images"][0]["bytes"] for row in rows_of(built[0])} < there


def test_rows_of_an_evaluation_set_are_taken_out_and_reported(built, evaluation, mirror):
    folder, manifest = built
    for row in rows_of(folder):
        assert not evaluation.with_image(row["images"][0]["bytes"], (28, 28))
        question = row["prompt"][0]["content"].split("\nChoices:")[0].split("\n\n")[0]
        image = row["images"][0]["bytes"]
        assert not evaluation.with_question(question.removeprefix("Look at the food web.\n"), row["choices"], image)
    removed = {row["source"]: (row["by_image"], row["by_question"]) for row in manifest["overlap"]["removed"]}
    kinds = {SOURCES[task].name: counts for task, counts in mirror[1].items()}
    assert removed == {name: (counts["overlap_image"], counts["overlap_question"]) for name, counts in kinds.items()}
    card = (folder / "README.md").read_text()
    assert "| geo3k | AI4Math/MathVista@testmini | 1 | 1 |" in card
    assert "No check was made" not in card


def test_without_evaluation_sets_the_rows_stay_and_the_card_says_that_nobody_looked(mirror, tmp_path):
    manifest = build(tmp_path, mirror[0], {"geo3k": 8})
    kinds = mirror[1]["geo3k"]
    assert manifest["sources"][0]["usable"] == kinds["good"] + kinds["overlap_image"] + kinds["overlap_question"]
    assert manifest["overlap"] is None
    assert "**No check was made.**" in (tmp_path / "README.md").read_text()


def test_a_second_build_is_equal_to_the_byte_and_so_is_one_that_was_interrupted(
    built, mirror, evaluation, tmp_path, monkeypatch
):
    """Nothing is written before all rows are read, and the manifest comes last."""
    folder, read, written = tmp_path / "out", Choice.read, build_module.write_split

    def after(number, call):
        calls = iter(range(number))
        return lambda *arguments: call(*arguments) if next(calls, None) is not None else 1 / 0

    for part, call, there in ((Choice, "read", set()), (build_module, "write_split", {"mixture.json", "data"})):
        with monkeypatch.context() as patch:
            patch.setattr(part, call, after(1, {"read": read, "write_split": written}[call]))
            with pytest.raises(ZeroDivisionError):
                build(folder, mirror[0], evaluation=evaluation)
        assert {path.name for path in folder.glob("*")} == there
    assert build(folder, mirror[0], evaluation=evaluation) == built[1]
    assert content(folder) == content(built[0])
    assert len(content(folder)) == 5


@pytest.mark.slow
def test_the_order_of_the_source_decides_nothing(mirror, tmp_path):
    copy = tmp_path / "mirror"
    for source in some():
        part = source.config or "data"
        tables = [pq.read_table(path) for path in sorted((mirror[0] / source.repo / part).glob("*.parquet"))]
        rows = [row for table in tables for row in table.to_pylist()]
        random.Random(1).shuffle(rows)
        folder = copy / source.repo
        (folder / part).mkdir(parents=True)
        table = pa.Table.from_pylist(rows, schema=tables[0].schema)
        pq.write_table(table, folder / part / "train-00000-of-00001.parquet", row_group_size=7)
        (folder / "README.md").write_text((mirror[0] / source.repo / "README.md").read_text())
    build(tmp_path / "one", mirror[0])
    build(tmp_path / "two", copy)
    for name in ("train", "validation"):
        file = f"data/{name}-00000-of-00001.parquet"
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes()


def test_another_seed_takes_other_rows_and_splits(mirror, tmp_path):
    build(tmp_path, mirror[0], {"figureqa": 14})
    before = {row["id"]: row for row in rows_of(tmp_path)}
    build(tmp_path, mirror[0], {"figureqa": 14}, seed=1)
    after = {row["id"]: row for row in rows_of(tmp_path)}
    assert before.keys() != after.keys()
    # Another turn of the same image, too: some images are in both, with different questions.
    images = {row["images"][0]["bytes"]: name for name, row in before.items()}
    both = [
        (name, images[row["images"][0]["bytes"]]) for name, row in after.items() if row["images"][0]["bytes"] in images
    ]
    assert any(one != other for one, other in both)


def test_a_source_with_one_row_less_is_a_warning_and_one_with_less_than_half_is_refused(mirror, tmp_path, caplog):
    """GEOS has 498 of the 498 rows that are asked for, so one duplicate may not cost the mixture."""
    usable = sum(mirror[1]["geos"][kind] for kind in ("good", "overlap_image", "overlap_question"))
    manifest = build(tmp_path / "warned", mirror[0], {"geos": usable + 1, "tabmwp": 8})
    assert manifest["sources"][0]["taken"] == usable
    assert "Fewer rows than the paper's mixture has: GEOS(MathV360K)" in caplog.text
    assert "tabmwp" not in caplog.text
    assert "this is not the whole mixture" in (tmp_path / "warned" / "README.md").read_text()
    short = {"geos": 2 * usable + 1, "ai2d": 200, "tabmwp": 8}
    with pytest.raises(SourceShortageError) as refusal:
        build(tmp_path / "out", mirror[0], short)
    error = refusal.value
    for part in ("GEOS(MathV360K)", f"{usable} usable", "ai2d", "duplicate 1", "--allow_fewer"):
        assert part in str(error)
    assert "tabmwp" not in str(error)
    assert not (tmp_path / "out").exists()
    assert build(tmp_path / "out", mirror[0], short, allow_fewer=True)["sources"][0]["taken"] == usable


def test_every_source_is_checked_before_a_row_is_read(tmp_path, monkeypatch):
    make_mirror(tmp_path, {"geos": 8, "tabmwp": 8})
    file = sorted((tmp_path / SOURCES["tabmwp"].repo / SOURCES["tabmwp"].config).glob("*.parquet"))[0]
    pq.write_table(pq.read_table(file).rename_columns(["id", "image", "talk", "data_source"]), file)
    monkeypatch.setattr(Choice, "read", lambda *arguments: pytest.fail("a row was read"))
    with pytest.raises(SourceSchemaError, match=r"tabmwp.* 'conversations' is not there"):
        build(tmp_path / "out", tmp_path, {"geos": 8, "tabmwp": 8})


def test_a_mixture_of_less_than_two_rows_is_refused(mirror, tmp_path):
    with pytest.raises(ConfigurationError, match="has 1 rows"):
        build(tmp_path, mirror[0], {"geos": 1})


def test_a_folder_with_other_things_in_it_is_left_alone(mirror, tmp_path):
    (tmp_path / "README.md").write_text("mine")
    with pytest.raises(ConfigurationError, match="was not made by this script"):
        build(tmp_path, mirror[0])
    assert content(tmp_path) == {"README.md": b"mine"}


def test_a_later_file_with_other_columns_is_refused_by_source(tmp_path):
    make_mirror(tmp_path, {"geos": 8})
    source = SOURCES["geos"]
    file = sorted((tmp_path / source.repo).rglob("*.parquet"))[1]
    pq.write_table(pq.read_table(file).rename_columns(["id", "image", "talk", "data_source"]), file)
    with pytest.raises(SourceSchemaError, match=r"GEOS\(MathV360K\).* has the columns .*'talk'"):
        build(tmp_path / "out", tmp_path, {"geos": 8})


def test_a_file_that_cannot_be_read_is_named_with_the_way_to_go_on(tmp_path):
    make_mirror(tmp_path, {"geos": 8})
    file = sorted((tmp_path / SOURCES["geos"].repo).rglob("*.parquet"))[1]
    file.write_bytes(file.read_bytes()[:-40])
    with pytest.raises(pa.ArrowInvalid) as failure:
        build(tmp_path / "out", tmp_path, {"geos": 8})
    assert "GEOS(MathV360K)" in failure.value.__notes__[0]


def test_the_manifest_describes_the_files_and_names_no_folder_of_this_machine(built, mirror):
    folder, manifest = built
    assert json.loads((folder / "mixture.json").read_text()) == manifest
    for file, digest in manifest["files"].items():
        assert hashlib.sha256((folder / file).read_bytes()).hexdigest() == digest
    for name in ("README.md", "mixture.json", "mixture.html"):
        text = (folder / name).read_text()
        assert str(mirror[0]) not in text
        assert str(folder) not in text
    assert "local copies, whose revisions were not checked" in (folder / "README.md").read_text()


def test_the_page_shows_three_rows_of_each_source_with_their_pictures_and_nothing_from_elsewhere(built):
    page = (built[0] / "mixture.html").read_text()
    assert len(page) < 200_000
    for source in built[1]["sources"]:
        ids = [row["id"] for row in rows_of(built[0]) if row["source"] == source["name"]]
        assert sum(f"<small>{name}</small>" in page for name in ids) == 3
        assert f">{source['name'].replace('&', '&amp;')}</h2>" in page
    addresses = re.findall(r'(?:src|href)="([^"]*)"', page)
    assert all(address.startswith(("#", "data:image/jpeg;base64,")) for address in addresses)
    pictures = [address.partition(",")[2] for address in addresses if "," in address]
    assert {Pictures.open(BytesIO(base64.b64decode(picture))).size for picture in pictures} == {(28, 28)}


def test_what_a_row_says_is_text_on_the_page(tmp_path):
    rows = make_rows("clevr_math", 8, [])[0]
    for row in rows:
        row["conversations"][0]["value"] += "\n<script>alert(1)</script>"
    source = SOURCES["clevr_math"]
    write_files(tmp_path / source.repo / source.config, ONE_VISION, rows)
    build(tmp_path / "out", tmp_path, {"clevr_math": 8})
    page = (tmp_path / "out" / "mixture.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_validation_rows_that_share_an_image_with_training_are_counted(tmp_path):
    """Every image of this source is there ten times, with ten questions: nearly all of validation shares one."""
    rows = [row for row in make_rows("clevr_math", 40, [], extra=0)[0] if row["image"]]
    for number, row in enumerate(rows):
        row["image"] = {"bytes": picture(number // 10), "path": None}
    source = SOURCES["clevr_math"]
    write_files(tmp_path / source.repo / source.config, ONE_VISION, rows)
    write_card(tmp_path / source.repo, {source.config: {"train": f"{source.config}/train-*"}})
    manifest = build(tmp_path / "out", tmp_path, {"clevr_math": 40})
    assert manifest["shared"] == {"image": 4, "image_and_prompt": 0}
    assert "4 of the 4 validation rows" in (tmp_path / "out" / "README.md").read_text()


# ------------------------------------------------------------------------------------------------------- the rows


def test_what_the_user_says():
    open_question = Question("How many?", None, "3", "number")
    choices = Question("Which?", ["one", "two"], "B", "choice", context="Look.")
    assert prompt_text(open_question) == f"How many?\n\n{INSTRUCTION}"
    assert prompt_text(choices) == (
        "Look.\nWhich?\nChoices:\nA. one\nB. two\n\nThink about the question first, inside <think></think>. Then give "
        "the final answer alone inside <answer></answer>: the letter of the right choice."
    )
    assert prompt_text(choices, "Be brief.") == "Look.\nWhich?\nChoices:\nA. one\nB. two\n\nBe brief."
    assert prompt_text(open_question, "") == "How many?"


def test_the_name_of_a_row_is_its_contents():
    question = Question("Which?", ["one", "two"], "B", "choice")
    name = row_name("geos", question, b"image")
    assert name == "geos-" + name[-16:]
    assert int(name[-16:], 16) >= 0
    others = [
        replace(question, text="Which"),
        replace(question, choices=["onet", "wo"]),
        replace(question, answer="A"),
        replace(question, context="Look."),
    ]
    names = {name, row_name("geos", question, b"other"), *(row_name("geos", other, b"image") for other in others)}
    assert len(names) == 6


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


@pytest.mark.slow
def test_every_row_and_every_turn_has_the_same_chance():
    """Over many seeds each usable row is taken about equally often, and so is each of its three turns."""
    source, taken, words = replace(SOURCES["ai2d"], count=7), {}, {}
    for seed in range(60):
        choice = Choice(source, Recipe((source,), seed, instruction=""))
        for row in ROWS:
            choice.read(row)
        for row in choice.rows:
            image, word = row["images"][0]["bytes"], row["prompt"][0]["content"].split()[2]
            taken[image] = taken.get(image, 0) + 1
            words[word] = words.get(word, 0) + 1
    usable = choice.counts["usable"]
    assert len(taken) == usable
    mean = 60 * 7 / usable  # about 17; a binomial's standard deviation is below 4.2
    assert all(abs(count - mean) < 5 * mean**0.5 for count in taken.values())
    assert words.keys() == {"respiration", "combustion", "decay"}
    assert all(abs(count - 140) < 50 for count in words.values())


def test_keys_of_different_purposes_are_unrelated():
    assert len({key(0, "row", "a"), key(0, "split", "a"), key(1, "row", "a"), key(0, "row", "b")}) == 4
    assert 0 <= key(0, "row", "a") < 2**128


# --------------------------------------------------------------------------------------------------------- training


def test_the_rows_train(built, vision_model_path, make_args, cache):
    def is_right(completions, answer, answer_type, choices, **columns):
        """Right, by the verifier; and a little for an even length, so that a random model has a gradient."""
        texts = list(map(text_of, completions))
        verdicts = map(judge, texts, answer, answer_type, choices)
        return [verdict + 0.1 * (len(text) % 2) for verdict, text in zip(verdicts, texts, strict=True)]

    rows = load_dataset(str(built[0]), split="train", cache_dir=cache)
    args = make_args(max_steps=2, vade_stratify_by="task", vade_success_threshold=0.05)
    trainer = VADEGRPOTrainer(vision_model_path, is_right, args, rows)
    trainer.train()
    assert trainer.selection.sampler.posterior.step == 2
    assert trainer.state.global_step == 2
