"""What do saves and resumes cost? Their time, bytes and memory, with a long log and pictures in a generation batch.

    python -m eval.benchmarks.saves --rows 8 --num_generations 8 --megapixels 1 --lines 5000

The generation batch is as the trainer buffers it: photographs through the image processor of Qwen2.5-VL with its
patches, each once; token ids and log-probabilities are random numbers. The testbed's model is not run. Measured are
the posterior with the batch, and nothing else of a checkpoint. Memory is what the process takes above what it had
before the call, the batch that a resume makes included. The selection log has `--lines` lines of 512 rows. The marker
of a checkpoint of a 3B model's size is measured by itself, on sparse files.
"""

import argparse
import statistics
import tempfile
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import torch
from transformers import Qwen2VLImageProcessor
from transformers.trainer_callback import ExportableState
from trl.data_utils import prepare_multimodal_messages
from trl.trainer.utils import shuffle_sequence_dict, split_pixel_values_by_grid, split_tensor_dict
from trl.trainer.utils import unsplit_pixel_values_by_grid as unsplit

from eval.benchmarks.loading import data_set, photographs
from trl_vade import VADEGRPOConfig, VADEGRPOTrainer
from trl_vade.selection.outcomes import GroupOutcomes
from trl_vade.testbed.model import build_model
from trl_vade.testbed.processor import build_processor
from trl_vade.trainer.checkpoint.folders import look_at, write_marker
from trl_vade.trainer.checkpoint.posterior import resume_posterior, save_posterior

OF_3B = {  # Qwen2.5-VL-3B: 3.75 billion parameters in bf16, and two moments of each in fp32
    "model-00001-of-00002.safetensors": 5_000_000_000,
    "model-00002-of-00002.safetensors": 2_500_000_000,
    "optimizer.pt": 30_000_000_000,
}
ROWS_OF_A_LINE = 512
QUESTION = [{"role": "user", "content": "What is this?"}]


def make_trainer(options, folder):
    processor = build_processor()
    processor.image_processor = Qwen2VLImageProcessor(size={"shortest_edge": 56**2, "longest_edge": 2**30})
    rows = data_set(list(photographs(options.rows, options.megapixels)))
    rows = rows.remove_columns("prompt").add_column("prompt", [QUESTION] * options.rows)
    args = VADEGRPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=options.rows * options.num_generations // 2,
        steps_per_generation=2,
        num_generations=options.num_generations,
        use_cpu=True,
        bf16=False,
        report_to="none",
        disable_tqdm=True,
    )
    reward = [lambda completions, **kwargs: [0.0] * len(completions)]
    reward[0].__name__ = "accuracy"
    return VADEGRPOTrainer(build_model(processor), reward, args, rows, processing_class=processor)


def buffered(trainer, tokens=1024):
    """A generation batch of all rows, shuffled and split as TRL 1.16 does."""
    numbers = [row for row in range(len(trainer.train_dataset)) for _ in range(trainer.num_generations)]
    loaded = trainer.selection.loader.decoder.load(numbers)
    prompts = [prepare_multimodal_messages(row["prompt"], images=row["images"]) for row in loaded]
    with trainer._images.preparing(True):
        ids, images, fields = trainer._tokenize_prompts(prompts)
    trainer._images.store.of_rows = list(dict.fromkeys(numbers))
    batch = {
        "prompt_ids": torch.tensor(ids),
        "completion_ids": torch.randint(0, 1000, (len(ids), tokens)),
        "advantages": torch.rand(len(ids)),
        "old_per_token_logps": torch.rand(len(ids), tokens),
        "num_images": [len(each) for each in images],
        **{name: torch.as_tensor(fields[name]) for name in ("pixel_values", "image_grid_thw")},
    }
    return [unsplit(part) for part in split_tensor_dict(shuffle_sequence_dict(split_pixel_values_by_grid(batch)), 2)]


def write_log(log, lines):
    """Append so many lines, and print what one takes at both ends."""
    rng, appended = np.random.default_rng(0), []
    for step in range(1, lines + 1):
        rows = rng.choice(100 * ROWS_OF_A_LINE, ROWS_OF_A_LINE, replace=False)
        successes = rng.integers(0, 9, ROWS_OF_A_LINE).astype(float)
        mixed = (successes > 0) & (successes < 8)
        outcomes = GroupOutcomes(rows, successes, np.full(ROWS_OF_A_LINE, 8.0), mixed, mixed)
        start = time.perf_counter()
        log.append(outcomes, step=step, global_step=step - 1, rollouts=step, predicted_effective_ratio=0.5)
        appended.append(1000 * (time.perf_counter() - start))
    first, last = (statistics.median(some) for some in (appended[:100], appended[-100:]))
    size = log.path.stat().st_size / 2**20
    print(f"log of {size:,.0f} MiB: a line takes {first:.2f} ms first, {last:.2f} ms last (medians of 100)")


def measure_marker(folder):
    """Write and check the marker of a checkpoint of a 3B model, and print medians of three; the files are sparse."""
    folder.mkdir()
    for name, size in OF_3B.items():
        with open(folder / name, "wb") as file:
            file.truncate(size)
    seconds = {"written": [], "checked": []}
    for _ in range(3):
        start = time.perf_counter()
        write_marker(folder, [("a run", 1)])
        between = time.perf_counter()
        assert look_at(folder).fault is None
        seconds["written"].append(between - start)
        seconds["checked"].append(time.perf_counter() - between)
    for what, values in seconds.items():
        size = sum(OF_3B.values()) / 1e9
        print(f"marker of a checkpoint of {size:.1f} GB {what}: {statistics.median(values):.4f} s (median of 3)")


@contextmanager
def measured(name):
    """Print the seconds of the block and the most memory that it took, seen every 2 ms."""
    process, over = psutil.Process(), threading.Event()
    before = most = process.memory_info().rss

    def watch():
        nonlocal most
        while not over.wait(0.002):
            most = max(most, process.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    yield
    seconds = time.perf_counter() - start
    over.set()
    watcher.join()
    print(f"{name}: {seconds:.2f} s, {(most - before) / 2**20:,.0f} MiB more memory")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8, help="rows in the generation batch (default 8)")
    parser.add_argument("--num_generations", type=int, default=8, help="completions of each row (default 8)")
    parser.add_argument("--megapixels", type=float, default=1.0, help="size of each picture (default 1)")
    parser.add_argument("--lines", type=int, default=5000, help="lines of the selection log (default 5000)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        measure_marker(folder / "marked")
        trainer = make_trainer(options, folder)
        trainer._buffered_inputs, trainer._step = buffered(trainer), 1
        write_log(trainer.selection.feedback.log, options.lines)
        print(f"a generation batch with {trainer._images.store.bytes / 2**20:,.0f} MiB of pictures")
        with measured("save"):
            save_posterior(trainer, folder / "checkpoint", checkpoint=True)
        size = sum(path.stat().st_size for path in (folder / "checkpoint").iterdir())
        print(f"on the disk: {size / 2**20:,.1f} MiB")
        before, trainer._buffered_inputs = trainer._buffered_inputs, None
        trainer.state.stateful_callbacks = {
            type(each).__name__: each.state()
            for each in trainer.callback_handler.callbacks
            if isinstance(each, ExportableState)
        }
        with measured("resume"):
            resume_posterior(trainer, folder / "checkpoint")
        for mine, theirs in zip(trainer._buffered_inputs, before, strict=True):
            assert all(torch.equal(mine[name], theirs[name]) for name in theirs if name != "num_images")


if __name__ == "__main__":
    main()
