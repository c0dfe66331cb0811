"""Stand-ins for the sources of the training mixture: small Parquet copies with their true schemas and row formats.

A copy lies as `hf download REPO --repo-type dataset --local-dir MIRROR/REPO` leaves it: a README.md with the
configurations, and their files. Beside usable rows each source has rows of every kind in `BAD`.
"""

import itertools
import random
from collections import Counter
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from datasets import ClassLabel, Features, Image, List, Value
from PIL import Image as Pictures

from scripts.mixture.sources import SOURCES

TEXT = Value("string")
ONE_VISION = Features(
    {"id": TEXT, "image": Image(), "conversations": [{"from": TEXT, "value": TEXT}], "data_source": TEXT}
)
CHART_QA = Features(
    {"image": Image(), "query": TEXT, "label": List(TEXT), "human_or_machine": ClassLabel(names=["human", "machine"])}
)
SCIENCE_QA = Features(
    {"image": Image(), "question": TEXT, "choices": List(TEXT), "answer": Value("int8")}
    | dict.fromkeys(["hint", "task", "grade", "subject", "topic", "category", "skill", "lecture", "solution"], TEXT)
)
MATH_VISTA = Features(
    {"pid": TEXT, "question": TEXT, "image": TEXT, "decoded_image": Image(), "choices": List(TEXT), "query": TEXT}
)
BAD = ["no_image", "damaged_image", "no_answer", "duplicate", "overlap_image", "overlap_question"]
GEO_170K = (
    "<image>\nFirst perform reasoning, then finally select the question from the choices in the following format: "
    "Answer: xxx.\nQuestion: "
)
GEO_3K = "<image>Answer the mathemtical geometry problem and directly provide the correct option letter."
OPTION = (
    "<image>\nHint: Please answer the question and provide the correct option letter, e.g., A, B, C, D, at the end.\n"
    "Question: "
)
FINAL = "<image>\nHint: Please answer the question and provide the final answer at the end.\nQuestion: "


def picture(number, kind="PNG", size=(28, 28)):
    """The bytes of an image that is its number's alone."""
    buffer = BytesIO()
    Pictures.new("RGB", size, (number & 255, number >> 8 & 255, number >> 16)).save(buffer, kind)
    return buffer.getvalue()


def geo3k(n):
    choices = f"Choices: A: {n} B: {n + 30} C: {n + 70} D: {n + 180}"
    start = f"{GEO_3K}{' ' if n % 2 else chr(10)}Question: Find the area of kite number {n}."
    return [(f"{start}\n{choices}" + ("" if n % 3 else "\nShort Answer."), "ABCD"[n % 4])]


def geo170k(n):
    question = f"In diamond number {n}, CD has the length {n}. What is the value of y?"
    letter = "ABCD"[n % 4]
    reply = f"EF is parallel to BC, so y is half of it. Therefore, the answer is: {letter}.\nAnswer:{letter}"
    return [(f"{GEO_170K}{question}\nChoices:\nA: {n}.0\nB: {n + 5}.0\nC: {n + 9}.0\nD: {n + 20}.0", reply)]


def clevr_math(n):
    return [(f"<image>\nSubtract {n} cyan cubes and all balls. How many objects are left?", f"The answer is {n % 11}")]


def geos(n):
    choices = f"Choices:\n(A) {n}\n(B) {n + 5}\n(C) {n + 10}\n(D) {n + 15}"
    question = rf"{OPTION}In figure {n}, find $m\angle H$ in whole degrees"
    return [(f"{question}\n{choices}", f"The answer is {'ABCD'[n % 4]}")]


def geoqa_plus(n):
    question = f"As shown in figure {n}, CD is the diameter of ⊙O, chord DE ∥ OA, then the degree of ∠C is ()"
    return [(f"{OPTION}{question}\nChoices:\n(A) {n}°\n(B) {n + 1}°\n(C) {n + 2}°", f"The answer is {'ABC'[n % 3]}")]


def geometry3k(n):
    if n % 2:
        return [(f"{FINAL}Find the measure of angle number {n} in degrees.", f"The answer is {n % 180}")]
    choices = rf"(A) {n}\sqrt{{3}}" + f"\n(B) {n + 1}\n(C) {n + 2}"
    return [(f"{OPTION}Find the length of side number {n} of it.\nChoices:\n{choices}", "The answer is A")]


def figureqa(n):
    colours = ["Green", "Cyan", "Firebrick", "Web Maroon"]
    texts = [f"Is {colour} the high median in plot {n}?\nAnswer yes or no." for colour in colours]
    texts[0] = f"<image>\n{texts[0]}"
    return [(text, "Yes." if (n + i) % 2 else "No.") for i, text in enumerate(texts)]


def tabmwp(n):
    question = f"<image>\nIf Myra wants to buy {n} of each item on the list, how much will it cost in total?"
    reply = f"Find the total cost of the items.\n$12.30 + ${n}.21 = ${n + 12}.51\nMyra needs ${n + 12}.51."
    return [(question, reply)]


def ai2d(n):
    choices = f"A. Oxygen {n}\nB. Carbon dioxide\nC. Nitrogen\nD. Heat"
    texts = [f"What does {word} in diagram {n} give out" for word in ("respiration", "combustion", "decay")]
    asked = [f"Question: {text}\nChoices:\n{choices}\nAnswer with the letter." for text in texts]
    return [(text, f"Answer: {'ABCD'[(n + i) % 4]}") for i, text in enumerate(asked)]


TURNS = {f.__name__: f for f in (geo3k, geo170k, clevr_math, geos, geoqa_plus, geometry3k, figureqa, tabmwp, ai2d)}


def one_vision_row(task, n, image, *, answered=True):
    turns = [(question, reply if answered else "") for question, reply in TURNS[task](n)]
    pairs = [pair for turn in turns for pair in zip(("human", "gpt"), turn, strict=True)]
    conversation = [{"from": who, "value": text} for who, text in pairs]
    return {"id": f"{task}_{n}", "image": image, "conversations": conversation, "data_source": task}


def chart_qa_row(task, n, image, *, answered=True):
    label = ["Yes", f"{n}.5", str(n), "Inspired"][n % 4]
    query = f"What is the value of the bar of country {n} in the chart?"
    return {"image": image, "query": query, "label": [label] if answered else [], "human_or_machine": n % 2}


def science_qa_row(task, n, image, *, answered=True):
    row = dict.fromkeys(SCIENCE_QA, "") | {"hint": "Look at the food web." if n % 2 else "", "image": image}
    choices = [f"organism {n}", "the bilberry", "the barren-ground caribou"]
    question = f"Which of these in food web {n} contains matter that was once part of the lichen?"
    return row | {"question": question, "choices": choices, "answer": n % 3 if answered else None}


def schema_and_row(task):
    if task == "chartqa":
        return CHART_QA, chart_qa_row
    return (SCIENCE_QA, science_qa_row) if task == "scienceqa" else (ONE_VISION, one_vision_row)


def questions_of(task, row):
    """The questions as an evaluation set would print them, without choices and instructions."""
    if task in TURNS:
        texts = [turn["value"] for turn in row["conversations"] if turn["from"] == "human"]
        bare = [text.split("Question: ")[-1].split("\nChoices:")[0] for text in texts]
        return [text.removeprefix("<image>\n").removesuffix("\nAnswer yes or no.") for text in bare]
    return [row["query" if task == "chartqa" else "question"]]


def make_rows(task, count, evaluation, extra=0.1):
    """(1 + extra) `count` rows, of which at least `count` are usable, and how many there are of each kind."""
    more = max(2 * len(BAD), round(extra * count))
    kinds = ["good"] * (count + more - more // 2) + list(itertools.islice(itertools.cycle(BAD), more // 2))
    generator = random.Random(task)
    generator.shuffle(kinds)
    kinds.insert(0, "good")
    base, make = (1 + list(SOURCES).index(task)) << 20, schema_and_row(task)[1]
    rows = []
    for n, kind in enumerate(kinds):
        image = {"bytes": picture(base + n), "path": f"{n}.png"}
        if kind == "no_image":
            image = None
        elif kind == "damaged_image":
            image["bytes"] = image["bytes"][: 20 if n % 2 else 60]  # within its head, or behind it
        row = rows[0] if kind == "duplicate" else make(task, n, image, answered=kind != "no_answer")
        if kind == "overlap_image":
            evaluation.append((f"Which of these {len(evaluation)} questions is an own one?", picture(base + n, "BMP")))
        elif kind == "overlap_question":
            evaluation += [(text, picture(len(evaluation), size=(30, 20))) for text in questions_of(task, row)]
        rows.append(row)
    return rows, Counter(kinds)


def write_files(folder, features, rows, name="train", files=2, row_group_size=200):
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.Table.from_pylist(rows, schema=Features(features).arrow_schema)
    size = -(-len(table) // files)
    for i in range(files):
        path = folder / f"{name}-{i:05d}-of-{files:05d}.parquet"
        pq.write_table(table.slice(i * size, size), path, row_group_size=row_group_size)


def write_card(folder, configs):
    entries = [
        {"config_name": config, "data_files": [{"split": split, "path": path} for split, path in files.items()]}
        for config, files in configs.items()
    ]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "README.md").write_text(f"---\n{yaml.safe_dump({'configs': entries})}---\n# Card\n")


def make_mirror(folder, counts):
    """Write copies of all sources with `counts` (by task), and of AI4Math/MathVista; return the kinds by task."""
    folder, evaluation, kinds, configs = Path(folder), [], {}, {}
    for task, count in counts.items():
        source, (features, _) = SOURCES[task], schema_and_row(task)
        rows, kinds[task] = make_rows(task, count, evaluation)
        part = source.config or "data"
        write_files(folder / source.repo / part, features, rows)
        configs.setdefault(source.repo, {})[source.config or "default"] = {"train": f"{part}/train-*"}
    for repo, entries in configs.items():
        write_card(folder / repo, entries)
    write_math_vista(folder / "AI4Math" / "MathVista", evaluation)
    return kinds


def write_math_vista(folder, evaluation):
    rows, hint = [], FINAL.removeprefix("<image>\n")
    for i, (question, image) in enumerate(evaluation):
        row = {"pid": str(i), "image": f"images/{i}.jpg", "decoded_image": {"bytes": image, "path": None}}
        rows.append(row | {"question": question, "query": f"{hint}{question}", "choices": None})
    write_files(folder / "data", MATH_VISTA, rows, "testmini", files=1)
    write_card(folder, {"default": {"testmini": "data/testmini-*"}})


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def put_on_hub(hub, mirror, sources):
    """Put the repositories of `sources` from a mirror on the loopback Hub, as commits of their pinned revisions."""
    for source in {source.repo: source for source in sources}.values():
        folder = Path(mirror) / source.repo
        files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        repo = hub.add_repo(f"datasets/{source.repo}")
        commit = repo.commits[repo.add("main", "the source", "", repo.files() | files)]
        repo.commits[source.revision] = commit._replace(oid=source.revision)
