"""Local stand-ins of the benchmarks, a few rows each, in the benchmarks' own columns; and a model that was trained."""

from itertools import islice
from pathlib import Path

import datasets

from trl_vade.testbed.dataset import iter_scenes


def write(folder, split, rows):
    """Write rows as Parquet, images inside, as the Hub has them: in `data` any split may be a file's name."""
    (Path(folder) / "data").mkdir(parents=True)
    features = {name: datasets.Image() for name in ("image", "decoded_image") if name in rows[0]}
    table = datasets.Dataset.from_list(rows)
    for name, feature in features.items():
        table = table.cast_column(name, feature)
    table.to_parquet(Path(folder) / "data" / f"{split}-00000-of-00001.parquet")
    return Path(folder)


def scenes(count):
    return list(islice(iter_scenes("validation", seed=0), count))


def chartqa(folder, count=4):
    kinds = ("human_test", "augmented_test")
    rows = [
        {"image": scene.image, "question": scene.question, "answer": scene.answer, "type": kinds[number % 2]}
        for number, scene in enumerate(scenes(count))
    ]
    return write(folder, "test", rows)


def mixture(folder, count=4):
    """Rows as scripts/prepare_data.py makes them; the reference of the last cannot be read."""
    rows = []
    for number, scene in enumerate(scenes(count)):
        kind, answer = ("number", "no number") if number == count - 1 else ("text", scene.answer)
        prompt = [{"role": "user", "content": scene.question}]
        row = {"prompt": prompt, "images": [scene.image], "answer": answer, "answer_type": kind, "source": "testbed"}
        rows.append(row | {"choices": []})
    table = datasets.Dataset.from_list(rows).cast_column("images", datasets.List(datasets.Image()))
    datasets.DatasetDict({"validation": table}).save_to_disk(folder)
    return Path(folder)


def scienceqa(folder, count=4):
    """Questions whose right choice is the testbed's answer."""
    rows = [
        {
            "image": scene.image,
            "question": scene.question,
            "hint": "",
            "choices": [scene.answer, "neither"],
            "answer": 0,
        }
        for scene in scenes(count)
    ]
    return write(folder, "test", rows)


def mathvista(folder, count=4):
    numbers = [scene for scene in scenes(8 * count) if scene.answer.isdigit()][:count]
    rows = [
        {
            "pid": str(number),
            "decoded_image": scene.image,
            "question": scene.question,
            "query": scene.question,
            "question_type": "free_form",
            "answer_type": "integer",
            "answer": scene.answer,
            "choices": [],
            "unit": "",
            "precision": 0,
            "metadata": {
                **dict.fromkeys(("language", "source", "category", "task", "context", "grade"), "none"),
                "skills": ["none"],
                "split": "testmini",
            },
        }
        for number, scene in enumerate(numbers)
    ]
    return write(folder, "testmini", rows)


def mathverse(folder, count=4):
    rows = [
        {
            **{"sample_index": str(number), "problem_index": str(number), "problem_version": "Text Lite"},
            **{"image": scene.image, "question": scene.question, "question_for_eval": scene.question},
            **{"query_wo": scene.question, "query_cot": scene.question, "question_type": "free-form"},
            **{"answer": scene.answer, "metadata": {"split": "testmini"}},
        }
        for number, scene in enumerate(scenes(count))
    ]
    return write(folder, "testmini", rows)


def mathvision(folder, count=4):
    rows = [
        {"decoded_image": scene.image, "question": scene.question, "options": [], "answer": scene.answer}
        for scene in scenes(count)
    ]
    return write(folder, "test", rows)
