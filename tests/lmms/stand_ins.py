"""Local stand-ins of the benchmarks, a few rows each, in the columns and types of the Hub; and a user's rows."""

from itertools import islice
from pathlib import Path

import datasets
from datasets import Image, List, Value

from trl_vade.testbed.dataset import iter_scenes


def texts(*names):
    return dict.fromkeys(names, Value("string"))


# As the cards of the data sets have them (dataset_info).
SCHEMAS = {
    "mathvista": {
        **texts("pid", "question", "image", "unit", "answer", "question_type", "answer_type", "query"),
        **{"decoded_image": Image(), "choices": List(Value("string")), "precision": Value("float64")},
        "metadata": {
            **texts("category", "context", "grade", "language", "source", "split", "task"),
            **{"img_height": Value("int64"), "img_width": Value("int64"), "skills": List(Value("string"))},
        },
    },
    "mathverse": {
        **texts("sample_index", "problem_index", "problem_version", "question", "answer", "question_type"),
        **texts("query_wo", "query_cot", "question_for_eval"),
        **{"image": Image(), "metadata": texts("split", "source", "subject", "subfield")},
    },
    "mathvision": {
        **texts("id", "question", "image", "answer", "solution", "subject"),
        **{"options": List(Value("string")), "decoded_image": Image(), "level": Value("int64")},
    },
    "scienceqa": {
        **texts("question", "hint", "task", "grade", "subject", "topic", "category", "skill", "lecture", "solution"),
        **{"image": Image(), "choices": List(Value("string")), "answer": Value("int8")},
    },
    "chartqa": {**texts("type", "question", "answer"), "image": Image()},
}


def write(folder, name, split, rows):
    """Write rows as Parquet, images inside, as the Hub has them: in `data` any split may be a file's name."""
    features = datasets.Features(SCHEMAS[name])
    nothing = dict.fromkeys(features)
    (Path(folder) / "data").mkdir(parents=True)
    table = datasets.Dataset.from_list([nothing | row for row in rows], features=features)
    table.to_parquet(Path(folder) / "data" / f"{split}-00000-of-00001.parquet")
    return Path(folder)


def scenes(count):
    return list(islice(iter_scenes("validation", seed=0), count))


def asked(name, count):
    """Scenes with their number, and questions of which no two of all benchmarks are the same."""
    return [(number, scene, f"{name} {number}: {scene.question}") for number, scene in enumerate(scenes(count), 1)]


def chartqa(folder, count=4):
    """Numbers and labels; every fourth label is A."""
    rows = []
    for number, scene, question in asked("chartqa", count):
        answer = "A" if number % 4 == 3 and count > 4 else scene.answer
        kind = ("human_test", "augmented_test")[number % 2]
        rows.append({"image": scene.image, "question": question, "type": kind, "answer": answer})
    return write(folder, "chartqa", "test", rows)


def mixture(folder, count=4, column="images"):
    """Rows as scripts/prepare_data.py makes them; the reference of the last cannot be read."""
    pictures = datasets.List(datasets.Image()) if column == "images" else datasets.Image()
    rows = []
    for number, scene in enumerate(scenes(count)):
        kind, answer = ("number", "no number") if number == count - 1 else ("text", scene.answer)
        prompt = [{"role": "user", "content": scene.question}]
        row = {"prompt": prompt, "answer": answer, "answer_type": kind, "source": "testbed", "choices": []}
        rows.append(row | {column: [scene.image] if column == "images" else scene.image})
    table = datasets.Dataset.from_list(rows).cast_column(column, pictures)
    datasets.DatasetDict({"validation": table}).save_to_disk(folder)
    return Path(folder)


def options(number, right):
    """Three choices and the index of the right one."""
    place = number % 3
    others = [f"{right} and a half", f"almost {right}"]
    return [*others[:place], right, *others[place:]], place


def scienceqa(folder, count=4):
    """Questions whose right choice is the testbed's answer."""
    rows = []
    for number, scene, question in asked("scienceqa", count):
        choices, place = options(number, scene.answer)
        rows.append({"image": scene.image, "question": question, "hint": "", "choices": choices, "answer": place})
    return write(folder, "scienceqa", "test", rows)


MATHVISTA = (
    ("free_form", "float", "1.5", "a floating-point number with one decimal place"),
    ("multi_choice", "text", None, "the correct option letter"),
    ("free_form", "list", "[1, 3]", "a Python list"),
    ("free_form", "integer", "7", "an integer answer"),
    ("free_form", "float", "0.25", "a floating-point number with two decimal places"),
)


def mathvista(folder, count=4):
    """Every kind of question that there is, each with a `precision` as on the Hub: a float, NaN or nothing."""
    rows = []
    for number, scene, question in asked("mathvista", count):
        kind, form, answer, hint = MATHVISTA[number % len(MATHVISTA)]
        choices, _ = options(number // len(MATHVISTA), scene.answer) if answer is None else (None, 0)
        places = float(len(answer) - 2) if form == "float" else float("nan") if form == "list" else None
        row = {"pid": str(number), "image": "images/1.jpg", "decoded_image": scene.image, "question": question}
        row |= {"question_type": kind, "answer_type": form, "answer": answer or scene.answer, "choices": choices}
        row |= {"precision": places, "query": f"Hint: Please answer with {hint}.\nQuestion: {question}"}
        metadata = dict.fromkeys(("language", "source", "category", "task", "context", "grade"), "none")
        metadata |= {"skills": ["none"], "split": "testmini", "img_height": 56, "img_width": 56}
        rows.append(row | {"metadata": metadata})
    return write(folder, "mathvista", "testmini", rows)


def mathverse(folder, count=4):
    """Half of them with choices, whose answer is a letter."""
    rows = []
    for number, scene, question in asked("mathverse", count):
        choices, place = options(number, scene.answer)
        listed = "\n".join(f"{letter}: {choice}" for letter, choice in zip("ABC", choices, strict=True))
        chosen = number % 2 == 0
        text = f"{question}\nChoices:\n{listed}" if chosen else question
        row = {"sample_index": str(number), "problem_index": str(number), "problem_version": "Text Lite"}
        row |= dict.fromkeys(("question", "question_for_eval", "query_wo", "query_cot"), text) | {"image": scene.image}
        row |= {"question_type": "multi-choice" if chosen else "free-form"}
        row |= {"answer": "ABC"[place] if chosen else scene.answer}
        about = dict.fromkeys(("source", "subject", "subfield"), "none") | {"split": "testmini"}
        rows.append(row | {"metadata": about})
    return write(folder, "mathverse", "testmini", rows)


def mathvision(folder, count=4):
    """Half of them with options, whose answer is a letter; MathVision has expressions among the others."""
    rows = []
    for number, scene, question in asked("mathvision", count):
        choices, place = options(number, scene.answer) if number % 2 == 0 else ([], 0)
        free = r"\frac{3}{4}" if number % 4 == 1 and count > 4 else scene.answer
        row = {"id": str(number), "question": question, "image": "images/1.jpg", "decoded_image": scene.image}
        row |= {"options": choices, "answer": "ABC"[place] if choices else free}
        rows.append(row | {"level": 1, "subject": "none"})
    return write(folder, "mathvision", "test", rows)
