"""Build a data set of originals and their variants, easier and harder ones with the same answer: see README.md.

    python -m examples.variants testbed variants.parquet --kinds rotation-1,gaussian-2,drawn
    python -m examples.variants you/questions variants.parquet --kinds text,hint-1,hint-2 \
        --endpoint http://127.0.0.1:8000/v1 --model Qwen/Qwen2.5-VL-72B-Instruct

Every variant is verified. The table at the end says how many of each kind were kept, and why the others were not.
"""

import argparse
import base64
import os
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from io import BytesIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from datasets import Dataset, Features, Value, load_dataset
from datasets import Image as ImageFeature
from datasets.table import embed_table_storage
from openai import OpenAI
from tqdm import tqdm

from trl_vade.data.row_keys import sample_keys
from trl_vade.testbed import load_testbed_dataset

from . import texts
from .pictures import IMAGE_KINDS, LEVELS, changed_image, question_drawn
from .texts import Refused

KEY = "VARIANTS_API_KEY"
ORIGINAL = "original"
MOST_HINTS = 9
KINDS = ["text", "drawn", *(f"hint-{level}" for level in range(1, MOST_HINTS + 1))]
KINDS += [f"{name}-{level}" for name in IMAGE_KINDS for level in LEVELS]
DRAWN_PROMPT = "Answer the question in the image."
ROWS_AT_A_TIME = 100
ORIENTATION = re.compile(
    r"\b(?:left(?!\s+over)|right(?![\s-]*(?:angled?|triangle|isosceles|answer|choice|option|prism|cone|pyramid)s?\b)|top|bottom"
    r"|above|below|upper\w*|lower\w*|upwards?|downwards?|uphill|downhill|north\w*|south\w*|eastw?\w*|west\w*|horizontal\w*"
    r"|vertical\w*|clock\w*|o'clock|direction\w*|rotat\w*|tilt\w*|slope\w*|upright|orient\w*|what time)\b",
    re.IGNORECASE,
)
"""Words of questions, choices and answers that a rotated picture could make wrong."""


def read_options(arguments=None):
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m examples.variants", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("dataset", help="`testbed`, a .parquet file, or what load_dataset reads: a folder, user/name")
    parser.add_argument("output", help="the .parquet file to write")
    parser.add_argument("--kinds", required=True, type=lambda text: text.split(","), help=", ".join(KINDS))
    parser.add_argument("--config", help="configuration of the data set")
    parser.add_argument("--split", default="train")
    parser.add_argument("--limit", type=int, help="take only the first N rows")
    parser.add_argument("--prompt", default="prompt", help="column of the questions")
    parser.add_argument("--answer", default="answer", help="column of the answers")
    parser.add_argument("--solution", default="solution", help="column of solutions, whose steps are the hints")
    parser.add_argument("--instruction", help="how the instruction at the end of your prompts begins; it stays")
    parser.add_argument("--font", help="TrueType font of drawn questions; default: Pillow's, for ASCII")
    parser.add_argument("--seed", type=int, default=0, help="of the noise, and of the LLM where it takes one")
    parser.add_argument("--endpoint", help="an OpenAI-compatible server: http://HOST:8000/v1")
    parser.add_argument("--model", help="name of the LLM on that server")
    parser.add_argument("--text_only", action="store_true", help="send no pictures to the LLM")
    parser.add_argument("--concurrency", type=int, default=16, help="requests at a time")
    parser.add_argument("--retries", type=int, default=3, help="of a request")
    parser.add_argument("--timeout", type=float, default=120.0, help="seconds for a reply")
    options = parser.parse_args(arguments)
    if unknown := {*options.kinds} - {*KINDS}:
        parser.error(f"--kinds: {', '.join(sorted(unknown))} is not known. The kinds are {', '.join(KINDS)}.")
    if (options.endpoint is None) != (options.model is None):
        parser.error("--endpoint and --model go together.")
    if "text" in options.kinds and options.endpoint is None:
        parser.error("--kinds text needs an LLM: set --endpoint and --model.")
    return options


def load_rows(options):
    """Return the originals, with an `id` each."""
    if options.dataset == "testbed":
        rows = load_testbed_dataset()[options.split]
    elif options.dataset.endswith(".parquet"):
        rows = Dataset.from_parquet(options.dataset)
    else:
        rows = load_dataset(options.dataset, options.config, split=options.split)
    rows = rows.select(range(min(options.limit or len(rows), len(rows))))
    names = rows.column_names
    if options.prompt not in names or options.answer not in names or {"of", "kind"} & {*names}:
        raise SystemExit(
            f"The data set has the columns {', '.join(names)}. It needs {options.prompt} (--prompt) and "
            f"{options.answer} (--answer), and must not have of and kind, which are made here."
        )
    if "id" in names:
        return rows.cast_column("id", Value("string"))
    return rows.add_column("id", [f"{key:016x}" for key in sample_keys(rows).astype(np.int64).view(np.uint64)])


class Writer:
    """An LLM behind OpenAI's interface. Its key is read from the environment and written nowhere."""

    def __init__(self, options):
        self.options = options
        self.client = OpenAI(
            base_url=options.endpoint,
            api_key=os.environ.get(KEY) or "EMPTY",
            max_retries=options.retries,
            timeout=options.timeout,
        )

    def ask(self, prompt, images=()):
        """Return the reply to a prompt, or raise `Refused`."""
        parts = [{"type": "image_url", "image_url": {"url": data_url(image)}} for image in images]
        content = [*parts, {"type": "text", "text": prompt}] if parts else prompt
        asked = {"messages": [{"role": "user", "content": content}], "seed": self.options.seed, "max_tokens": 2048}
        try:
            answer = self.client.chat.completions.create(model=self.options.model, **asked)
            return answer.choices[0].message.content or ""
        except Exception as error:  # a server may fail in many ways, and send anything
            raise Refused(f"no reply: {type(error).__name__}") from error


class Row:
    """A row, and the variants that are made of it."""

    def __init__(self, row, options, writer):
        self.row, self.options, self.writer = row, options, writer
        self.column = next((name for name in ("images", "image") if name in row), None)
        value = row.get(self.column)
        self.files = [file for file in (value if isinstance(value, list) else [value]) if file is not None]
        self.answer = texts.Answer(row, options.answer)

    def variants(self):
        """Return by kind the columns that the variant changes, or the reason why there is none."""
        found = {}
        for kind in self.options.kinds:
            try:
                found[kind] = self.variant(kind)
            except Refused as refused:
                found[kind] = str(refused)
        return found

    def variant(self, kind):
        """Return the columns that a variant changes."""
        family, _, level = kind.rpartition("-")
        if family in IMAGE_KINDS:
            return self.changed(kind)
        if family == "hint":
            return self.hinted(int(level))
        if kind == "drawn":
            first, *others = self.images
            page = question_drawn(first, self.question.whole, self.options.font)
            if page is None:
                raise Refused("the font lacks a sign")
            prompt = self.question.with_whole(DRAWN_PROMPT)
            return {**self.with_images([page, *others]), self.options.prompt: prompt}
        reply = self.writer.ask(texts.PARAPHRASE.format(question=self.question.text))
        text = texts.paraphrase(self.question, self.answer, reply)
        return {self.options.prompt: self.question.with_text(text)}

    def changed(self, kind):
        """Return the pictures as `kind` makes them."""
        about = " ".join([self.question.whole, *(self.answer.choices or ()), self.answer.text])
        if kind.startswith("rotation") and ORIENTATION.search(about):
            raise Refused("the orientation matters")
        names = [self.row["id"] + "\0" * place for place in range(len(self.images))]
        pairs = zip(self.images, names, strict=True)
        made = [changed_image(image, kind, name, self.options.seed) for image, name in pairs]
        if all(np.array_equal(image, new) for image, new in zip(self.images, made, strict=True)):
            raise Refused("equal to the original")
        return self.with_images(made)

    def hinted(self, level):
        """Return the prompt with the first steps of a solution."""
        if not self.answer.text:
            raise Refused("no answer to verify with")
        if isinstance(self.steps, Refused):
            raise self.steps
        levels = max(int(kind.removeprefix("hint-")) for kind in self.options.kinds if kind.startswith("hint-"))
        text = texts.with_hint(self.question, self.answer, self.steps, level, levels)
        return {self.options.prompt: self.question.with_whole(text)}

    @cached_property
    def question(self):
        """The question in the prompt."""
        return texts.Question.of(self.row[self.options.prompt], self.options.instruction)

    @cached_property
    def steps(self):
        """The steps of the row's solution, else of one by the LLM, or why there are none."""
        steps = texts.steps_of(str(self.row.get(self.options.solution) or ""))
        if len(steps) > 1:  # one step is the answer alone
            return steps
        try:
            if self.writer is None:
                raise Refused("no solution")
            prompt = texts.STEPS.format(question=self.question.whole, answer=self.answer.text)
            images = () if self.options.text_only or not self.files else self.images
            return texts.solution(self.answer, self.writer.ask(prompt, images))
        except Refused as refused:
            return refused

    @cached_property
    def images(self):
        """The pictures in RGB."""
        if not self.files:
            raise Refused("no picture")
        try:
            return [ImageFeature().decode_example(file).convert("RGB") for file in self.files]
        except Exception as error:  # Pillow raises many kinds for a damaged file
            raise Refused("a damaged picture") from error

    def with_images(self, images):
        """Return the column of pictures, as PNG files."""
        files = [{"bytes": file_of(image, "PNG"), "path": None} for image in images]
        return {self.column: files if isinstance(self.row[self.column], list) else files[0]}


def file_of(image, kind):
    """Return a picture as the bytes of a file."""
    file = BytesIO()
    image.save(file, kind)
    return file.getvalue()


def data_url(image):
    """Return a picture as a request holds it."""
    return f"data:image/jpeg;base64,{base64.b64encode(file_of(image, 'JPEG')).decode()}"


def build(rows, options):
    """Write the originals, each followed by its variants, and return by kind how many were kept, or why they were not.

    The same rows, replies and libraries give the same bytes.
    """
    counts = {kind: Counter() for kind in options.kinds}
    writer = Writer(options) if options.endpoint else None
    schema = Features({**rows.features, "of": Value("string"), "kind": Value("string")}).arrow_schema
    batches = rows.with_format("arrow").iter(ROWS_AT_A_TIME)
    with (
        pq.ParquetWriter(options.output, schema) as file,
        ThreadPoolExecutor(options.concurrency) as pool,
        tqdm(total=len(rows), unit="row") as progress,
    ):
        for batch in batches:
            made = []
            originals = embed_table_storage(batch).to_pylist()
            of_each = pool.map(lambda row: Row(row, options, writer).variants(), originals)
            for row, variants in zip(originals, of_each, strict=True):
                original = row | {"of": row["id"], "kind": ORIGINAL}
                made.append(original)
                for kind, variant in variants.items():
                    counts[kind][variant if isinstance(variant, str) else "kept"] += 1
                    if not isinstance(variant, str):
                        made.append(original | variant | {"id": f"{row['id']}/{kind}", "kind": kind})
                progress.update()
            file.write_table(pa.Table.from_pylist(made, schema))
    return counts


def main(arguments=None):
    """Build the data set and print what became of each kind."""
    options = read_options(arguments)
    counts = build(load_rows(options), options)
    for kind, reasons in counts.items():
        refused = ", ".join(f"{reason} {count:,}" for reason, count in reasons.most_common() if reason != "kept")
        print(f"{kind}: {reasons['kept']:,} kept; left out: {refused or 'none'}")


if __name__ == "__main__":
    main()
