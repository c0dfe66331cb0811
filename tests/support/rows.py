"""Small data sets, their images, and a process among several."""

from types import SimpleNamespace


def make_text_rows():
    """24 questions; `easy` rows are right for many answers, `hard` ones for a single answer."""
    from datasets import Dataset

    rows = []
    for number in range(24):
        question = f"say a digit {'not' if number % 2 else 'above'} {number % 10}"
        rows.append({"prompt": [{"role": "user", "content": question}], "limit": number % 10, "id": f"row-{number}"})
    return Dataset.from_list(rows)


def numbered_rows(count, **columns):
    from datasets import Dataset

    return Dataset.from_list(
        [{"prompt": f"question {i}", "id": f"row-{i}"} | {k: v(i) for k, v in columns.items()} for i in range(count)]
    )


def with_variants(rows, variants):
    """`rows`, and after them their variants: for each row a list of its variants' kinds and changed columns."""
    from datasets import Dataset, Features, Value

    originals = [{**row, "of": row["id"], "kind": "original"} for row in rows]
    pairs = [(row, variant) for row, each in zip(originals, variants, strict=True) for variant in each]
    made = [{**row, **variant, "id": f"{row['id']}/{variant['kind']}"} for row, variant in pairs]
    features = Features({**rows.features, "of": Value("string"), "kind": Value("string")})
    return Dataset.from_list(originals + made, features=features)


def variants_of_text_rows(kinds=("hint-1", "hint-2", "text"), of=lambda number: True):
    """`make_text_rows`, and of those whose number `of` takes a variant of each kind, with other words."""
    words = {"hint-1": "a digit", "hint-2": "a digit above", "text": "say"}
    originals = make_text_rows()
    variants = [
        [
            {"kind": kind, "prompt": [{"role": "user", "content": f"{row['prompt'][0]['content']} {words[kind]}"}]}
            for kind in kinds
            if of(number)
        ]
        for number, row in enumerate(originals)
    ]
    return with_variants(originals, variants)


def ids(rows):
    return [row["id"] for row in rows]


def text_of(completion):
    return completion if isinstance(completion, str) else completion[0]["content"]


def picture(number):
    """A small image that `decoded_images` knows by its `number`."""
    from PIL import Image

    return Image.new("RGB", (8, 8), (number, 0, 0))


def process(index, world):
    """One of several processes, as far as loading a share of the rows and a broadcast from process 0 are concerned.

    A last resort: real processes are started in tests/integration. Every replica draws the same rows here.
    """
    import torch

    return SimpleNamespace(
        process_index=index, num_processes=world, is_main_process=index == 0, device=torch.device("cpu")
    )
