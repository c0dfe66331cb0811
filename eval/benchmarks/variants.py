"""Building variants: equal bytes twice, and an LLM's server that fails, stalls, answers nonsense and dies half-way.

    python -m eval.benchmarks.variants --rows 1000

1. `trl-vade variants testbed` makes the image kinds twice. The SHA-256 of both Parquet files is printed.
2. The same rows get paraphrases and hints from a stand-in on the loopback interface
   (tests/support/loopback_writer.py). A share of the requests fails at the first attempt: status 500 twice, status 429
   with Retry-After, a cut connection, no answer for a minute, a web page, JSON that is cut off. A share of the prompts
   gets nonsense each time. Which ones follows from a hash of the prompt. After half as many requests as there are rows
   the server dies. The command is repeated until it ends without an error, with the server back after the first time.

3. The bytes of one photograph of a megapixel (`eval.benchmarks.loading`), as JPEG and as each kind's PNG.

The table is that of the card. Seconds depend on the machine.
"""

import argparse
import hashlib
import re
import subprocess
import sys
import tempfile
import time
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq
from PIL import Image

from eval.benchmarks.loading import photographs
from tests.support.loopback_writer import LoopbackWriter, good, paraphrase
from trl_vade.data.image_variants import changed_image, question_drawn
from trl_vade.testbed.dataset import encode_png

IMAGE_KINDS = "rotation-1,rotation-3,gaussian-2,salt-pepper-2,speckle-2,blur-2,low-resolution-2,drawn"
PASSING = ("status500", "status500", "status429", "dead", "slow", "html", "no json")
"""At the first attempt. Status 500 stays for two."""
STAYING = ("empty", "nonsense", "refusal", "page", "leak", "copy", "endless", "no text")
SHARE = 0.04  # of the prompts, for each fault


def share_of(prompt, purpose):
    """A number in [0, 1) that depends on the prompt and the purpose alone."""
    return int.from_bytes(hashlib.sha256(f"{purpose}\0{prompt}".encode()).digest()[:6], "big") / 2**48


def fault(prompt, attempt):
    """The mode of `LoopbackWriter` for a prompt at an attempt, from 0."""
    place, kind = int(share_of(prompt, "passing") / SHARE), int(share_of(prompt, "staying") / SHARE)
    passing = PASSING[place] if place < len(PASSING) else None
    if passing and (attempt == 0 or (passing == "status500" and attempt == 1)):
        return passing
    return STAYING[kind] if kind < len(STAYING) else "good"


def build(folder, rows, kinds, *options):
    """Run the command, and return its exit code, its seconds and what it said."""
    command = [sys.executable, "-m", "trl_vade", "variants", "testbed", "--output_dir", str(folder)]
    start = time.perf_counter()
    done = subprocess.run(
        [*command, "--limit", str(rows), "--kinds", kinds, *options], capture_output=True, text=True, errors="replace"
    )
    said = re.sub(r"127\.0\.0\.1:\d+|/tmp/\w+", "...", "".join(done.stderr.rpartition("Error: ")[1:]))
    return done.returncode, time.perf_counter() - start, said


def table(folder):
    """The table of the card, in Markdown."""
    return "\n".join(re.findall(r"^\|.* \(rows\) \|(?:\n\|.*)*", (folder / "README.md").read_text(), re.MULTILINE))


def nonsense_kept(folder):
    """How many variants there are, and how many of them are not what the stand-in writes when it does it well."""
    [file] = (folder / "data").iterdir()
    rows = pq.read_table(file, columns=["of", "kind", "prompt", "answer"]).to_pylist()
    questions = {row["of"]: row["prompt"][-1]["content"] for row in rows if row["kind"] == "original"}
    made = [row for row in rows if row["kind"] != "original"]
    wrong = 0
    for row in made:
        text, question = row["prompt"][-1]["content"], questions[row["of"]]
        steps = good(question, row["answer"]).splitlines()[: int(row["kind"][-1]) if row["kind"] != "text" else 0]
        wrong += text != paraphrase(question) if row["kind"] == "text" else not text.endswith("\n".join(steps))
    return len(made), wrong


def print_sizes():
    """Print how many bytes the variants of a photograph take."""
    [content] = photographs(1, 1)
    photograph = Image.open(BytesIO(content))
    sizes = {kind: len(encode_png(changed_image(photograph, kind, "a"))) for kind in IMAGE_KINDS.split(",")[:-1]}
    sizes["drawn"] = len(encode_png(question_drawn(photograph, "How many are there?")))
    print(f"A megapixel: JPEG {len(content):,} bytes;", "; ".join(f"{kind} {size:,}" for kind, size in sizes.items()))


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--concurrency", type=int, default=16)
    parser.add_argument("--timeout", type=float, default=5.0, help="seconds for a reply")
    options = parser.parse_args(arguments)

    with tempfile.TemporaryDirectory() as root:
        for name in ("first", "second"):
            code, seconds, said = build(Path(root, name), options.rows, IMAGE_KINDS)
            assert code == 0, said
            [file] = Path(root, name, "data").iterdir()
            content = file.read_bytes()
            print(f"{name} build: {seconds:.1f} s, {len(content):,} bytes, {hashlib.sha256(content).hexdigest()}")
        print(f"\n{table(Path(root, 'first'))}\n")

        with LoopbackWriter() as writer:
            folder, runs = Path(root, "llm"), 0
            half = options.rows // 2

            def dies_half_way(prompt, attempt):
                return "dead" if runs == 1 and writer.calls > half else fault(prompt, attempt)

            writer.fault = dies_half_way
            asking = ("--endpoint", writer.url, "--model", writer.model, "--concurrency", str(options.concurrency))
            code = 1
            while code:
                runs, before = runs + 1, writer.calls
                code, seconds, said = build(
                    folder,
                    options.rows,
                    "text,hint-1,hint-2,hint-3",
                    *asking,
                    "--timeout",
                    str(options.timeout),
                    "--retries",
                    "3",
                )
                replies = len((folder / ".replies.jsonl").read_text().splitlines())
                came = f"{seconds:.1f} s, {writer.calls - before:,} requests, {replies:,} replies kept in all"
                print(f"run {runs}: exit code {code}, {came}")
                if code:
                    print(said.strip())
                assert runs < 9
            made, wrong = nonsense_kept(folder)
            print(f"{len(writer.attempts):,} different requests\n\n{table(folder)}\n")
            print(f"Of the {made:,} variants {wrong:,} are not the text of a good reply.\n")
    print_sizes()


if __name__ == "__main__":
    main()
