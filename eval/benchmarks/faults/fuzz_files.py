"""Random damage to every file that trl_vade reads back; see `fuzz`."""

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from trl_vade.errors import SnapshotCorruptError, SnapshotError
from trl_vade.hub.posteriors.repository import posterior_card
from trl_vade.hub.posteriors.table import posterior_table
from trl_vade.samplers import ThompsonSampler, UniformSampler
from trl_vade.samplers.snapshot import POSTERIOR_FILE, load_snapshot, save_snapshot
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.outcomes import GroupOutcomes

from .fuzzing import check, dice, fuzz
from .mutations import NUMPY_DTYPES, altered, altered_tensors, arrays_of, canonical, damaged, packed, unpacked
from .result import Result

DOCUMENT = "vade_posterior"  # the key in the header

# ------------------------------------------------------------------------------------------------------- snapshots


FACTS = {
    **{"dataset_fingerprint": "ab", "base_model": "you/base", "dataset": "you/rows", "dataset_revision": "main"},
    **{
        "success_reward": "right",
        "success_threshold": 0.5,
        "num_generations": 8,
        "temperature": 1.0,
        "preset": "paper",
    },
    **{"posterior_init": "you/rates@main", "warm_start_discount": 0.2, "stratify_by": "task", "rewards": ["right"]},
    "run": {"global_step": 4, "rollouts": 8, "seconds": {"step": 0.1}},
}


@dataclass(frozen=True)
class Saved:
    """A snapshot as bytes, and all that a reader must find in it."""

    file: bytes
    content: str
    fresh: Callable[[], Any]  # a sampler that can load it


def fuzz_snapshots(tries: int, seed: int, directory: Path) -> Result:
    """Damage the file of a snapshot; half of the files get a right digest afterwards."""
    pool = [_saved_run(dice(seed, "a saved run", number), directory / "pool") for number in range(40)]
    folder = directory / "damaged"
    folder.mkdir(parents=True)

    def attempt(dice: random.Random, story: list[str]) -> str:
        saved, other = dice.choice(pool), dice.choice(pool)
        signed = dice.random() < 0.5
        how, file = _signed_again(dice, saved.file) if signed else damaged(dice, saved.file, other.file)
        story.append(f"{how}{', signed again' if signed else ''}")
        (folder / POSTERIOR_FILE).write_bytes(file)
        try:
            loaded = load_snapshot(folder)
        except SnapshotError as error:
            outcome = type(error).__name__
        else:
            whole = [each.content for each in (saved, other) if each.file == file]
            expected = [_what_it_says(file)] if signed else whole
            check(_content(loaded) in expected, "what was loaded is not what was saved, or what the file says")
            outcome = _use(saved.fresh(), loaded.sampler_state)
            _show(loaded)
        if dice.random() < 0.05:  # and the next save makes it good
            new = saved.fresh()
            save_snapshot(folder, new)
            loaded = load_snapshot(folder)
            check(canonical(loaded.sampler_state) == canonical(new.state_dict()), "a save failed")
        return outcome

    return fuzz("snapshots", tries, seed, attempt)


def _saved_run(dice: random.Random, folder: Path) -> Saved:
    num_samples = dice.choice([1, 2, 7, 25])
    settings: dict[str, Any] = {"seed": dice.choice([0, 7, 2**63 - 1]), "decay_sampled": dice.choice([0.0, 0.2, 1.0])}
    settings |= {"decay_unsampled": dice.choice([0.5, 0.999, 1]), "signal_aware_decay": dice.random() < 0.5}
    make: Callable[..., Any] = UniformSampler
    if dice.random() < 0.6:
        settings |= {"gain": dice.choice(["asymmetric", "symmetric"]), "greedy": dice.random() < 0.3}
        settings |= {"cooldown": dice.choice([0, 1, 3]), "stratify": dice.choice([None, [1] * num_samples])}
        make = ThompsonSampler
    sampler = make(num_samples, **settings)
    keys = np.array([dice.getrandbits(64) - 2**63 for _ in range(num_samples)]) if dice.random() < 0.5 else None
    metadata = dice.choice([{}, FACTS])
    for _ in range(dice.randrange(8)):
        rows = sampler.draw(dice.randrange(1, min(num_samples, 5) + 1)).sample_index
        sampler.observe(rows, [dice.randrange(5) for _ in rows], [4] * len(rows))
    save_snapshot(folder, sampler, metadata=metadata, sample_key=keys)
    state = sampler.state_dict()
    key = None if keys is None else keys[state["posterior"]["sample_index"]]
    content = canonical([state, metadata, key])
    return Saved((folder / POSTERIOR_FILE).read_bytes(), content, lambda: make(num_samples, **settings))


def _content(snapshot: Any) -> str:
    return canonical([snapshot.sampler_state, snapshot.metadata, snapshot.sample_key])


def _signed_again(dice: random.Random, file: bytes) -> tuple[str, bytes]:
    """Alter the arrays or the document, and make the digest right again."""
    if dice.random() < 0.5:
        how, file = altered_tensors(dice, file)
    else:
        header, data = unpacked(file)
        how, document = "a document", json.loads(header["__metadata__"][DOCUMENT])
        sampler = document["sampler"]
        counters = [(sampler, name) for name in ("num_draws", "epoch", "position") if name in sampler]
        if dice.random() < 0.5:  # how far the random numbers were used, or the posterior
            holder, name = dice.choice([*counters, (sampler["posterior"], "step")])
            holder[name] = dice.choice(
                [0, 1, 3, 10**6, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, -1, 1.0, True]
            )
        else:
            document = altered(dice, document)
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        file = packed({**header, "__metadata__": {DOCUMENT: text}}, data)
    mark = rb"{\"document_sha256\":\""
    start, end, rest = file.partition(mark)
    unsigned = start + end + b"0" * 64 + rest[64:]
    return how, start + end + hashlib.sha256(unsigned).hexdigest().encode() + rest[64:] if end else file


def _what_it_says(file: bytes) -> str:
    """The content of a snapshot, read by other means than the package's."""
    arrays = {}
    for name, (dtype, shape, data) in arrays_of(file).items():
        arrays[name] = np.frombuffer(data, dtype=NUMPY_DTYPES[dtype]).reshape(shape)
    document, key = json.loads(unpacked(file)[0]["__metadata__"][DOCUMENT]), arrays.pop("sample_key", None)
    sampler = document["sampler"]
    return canonical([sampler | {"posterior": sampler["posterior"] | arrays}, document["metadata"], key])


def _use(sampler: Any, state: dict[str, Any]) -> str:
    """Load the state; the sampler has its evidence exactly and goes on, or refuses it and is as it was."""
    before, num_samples = canonical(sampler.state_dict()), sampler.posterior.num_samples
    try:
        sampler.load_state_dict(state)
    except SnapshotError as error:
        check(canonical(sampler.state_dict()) == before, "a refused state was taken over in part")
        return type(error).__name__
    ours, decay = sampler.state_dict(), "decay_unsampled"
    rescaled = {"alpha", "beta"} if ours["posterior"][decay] != state["posterior"][decay] else set()
    check(_evidence(ours, rescaled) == _evidence(state, rescaled), "the evidence is not what it loaded")
    for k in (1, num_samples):
        draw = sampler.draw(k)
        check(len(set(draw.sample_index.tolist())) == k, "a draw names a row twice")
        figures = [draw.sampled_pass_rate, draw.information_gain, draw.posterior_mean]
        check(bool(np.isfinite(figures).all()), "a draw is not finite")
        sampler.observe(draw.sample_index, [1.0] * k, [4.0] * k)
    check(bool(np.isfinite(list(sampler.metrics().values())).all()), "a metric is not finite")
    return "loaded exactly"


def _show(snapshot: Any) -> None:
    """Make the table and the card of it, as for a stranger's file: possible numbers and readable lines, or words."""
    try:
        table = posterior_table(snapshot)
    except SnapshotError:
        return
    check(bool(((table.pass_rate > 0) & (table.pass_rate < 1)).all()), "a pass rate is not in (0, 1)")
    lines = posterior_card(table, [], "you/posterior").split("\n")
    check(all(line.isprintable() for line in lines), "a card steers the terminal")


def _evidence(state: dict[str, Any], rescaled: set[str]) -> str:
    """All but the rules, which are the run's own; another lambda_2 has other counts at the last update."""
    rules = rescaled | {"decay_sampled", "decay_unsampled", "signal_aware_decay"}
    kept = {name: value for name, value in state["posterior"].items() if name not in rules}
    return canonical({**state, "settings": None, "posterior": kept})


# -------------------------------------------------------------------------------------------------------- the log


def fuzz_selection_logs(tries: int, seed: int, directory: Path) -> Result:
    """Damage the log of the choices; then read it, shorten it and set it aside."""
    pool = [_some_log(dice(seed, "a log", number), directory / f"pool-{number}") for number in range(20)]
    log = SelectionLog(directory / "damaged")
    log.path.parent.mkdir(parents=True)

    def attempt(dice: random.Random, story: list[str]) -> str:
        whole, other = dice.choice(pool), dice.choice(pool)
        how, content = _damaged_log(dice, whole, other)
        story.append(how)
        log.path.write_bytes(content)
        texts, same = lines_of(content), any(sound.startswith(content) for sound in pool)
        try:
            lines = SelectionLog(log.path.parent).read()
        except SnapshotCorruptError as error:
            named = re.match(r"Line (\d+) of (.*?) ", str(error))
            check(named is not None and named[2] == str(log.path), "file and line are not named")
            check(not same, "a sound log was refused")
            outcome = type(error).__name__
        else:
            half = bool(texts) and not texts[-1].endswith(b"\n")
            said = [json.loads(text) for text in (texts[:-1] if half else texts)]
            check(all(line.pop("chain") for line in said), "a line has no digest")
            check(canonical(lines) == canonical(said), "the lines read are not those of the file")
            check(any(sound.startswith(b"".join(texts[: len(lines)])) for sound in pool), "an altered log was read")
            outcome = "read exactly, but a half last line" if half else "read exactly"
        saved = lines_of(whole)[: dice.randrange(len(lines_of(whole)) + 1)]
        chain = json.loads(saved[-1])["chain"] if saved else ""
        notice = log.resume({"lines": len(saved), "bytes": len(b"".join(saved)), "chain": chain})
        check((notice is None) == content.startswith(b"".join(saved)), "a resume did not tell what the log is")
        check(notice is not None or log.path.read_bytes() == content, "a log that goes on was changed")
        log.set_aside()
        kept = [path.read_bytes() for path in log.path.parent.glob("vade_selection-*.jsonl")]
        check(kept == ([content] if content else []), "what was set aside is not the log")
        shutil.rmtree(log.path.parent)
        log.path.parent.mkdir()
        return outcome

    return fuzz("selection logs", tries, seed, attempt)


def lines_of(content: bytes) -> list[bytes]:
    """The lines with their line breaks; `splitlines` would break at a carriage return too."""
    return [line for line in re.split(rb"(?<=\n)", content) if line]


def _some_log(dice: random.Random, folder: Path) -> bytes:
    log, count = SelectionLog(folder), dice.choice([1, 2, 5, 9])
    for step in range(1, count + 1):
        size = dice.randrange(4)
        trials = np.array([dice.randrange(5) for _ in range(size)], dtype=np.float64)
        rows = np.array(dice.sample(range(50), size), dtype=np.int64)
        outcomes = GroupOutcomes(rows, trials * dice.choice([0.0, 0.5, 1.0]), trials, trials > 2)
        restored = {"restored_to": step - 1} if dice.random() < 0.1 else {}
        numbers = {"global_step": step - 1, "rollouts": 8 * step, "predicted_effective_ratio": dice.random()}
        log.append(outcomes, step=step, **numbers, **restored)
    return log.path.read_bytes()


def _damaged_log(dice: random.Random, content: bytes, other: bytes) -> tuple[str, bytes]:
    lines, how = lines_of(content), dice.choice(["bytes", "bytes", "lines", "values", "half"])
    number = dice.randrange(len(lines))
    if how == "bytes":
        return damaged(dice, content, other)
    if how == "lines":
        mutation = dice.randrange(4)
        moved = lines.pop(number)
        if mutation:
            lines.insert(dice.randrange(len(lines) + 1), moved)
        if mutation == 2:
            lines.insert(dice.randrange(len(lines) + 1), moved)
        if mutation == 3:
            lines.insert(number, dice.choice([b"\n", b"{}\n", b"1\n", b"null\n", b"[]\n", b"\0" * 64 + b"\n"]))
    elif how == "values":
        lines[number] = json.dumps(altered(dice, json.loads(lines[number]))).encode() + b"\n"
    else:
        lines[-1] = lines[-1][: dice.randrange(len(lines[-1]))]
    return how, b"".join(lines)
