"""Asynchronous GRPO's rollout loop with rows that VADE draws: share of live groups, lag, samples that train nothing.

    python -m eval.benchmarks.async_grpo            # about 5 minutes on two cores

200 rows, 60 % of which no answer solves; G = 8; 600 groups a run; pass rates do not change. The loop is that of TRL,
the server a stand-in that answers after 20 ms on average, so nothing here is a statement on speed.
"""

import json
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import typer

from trl_vade.selection.feedback import Feedback
from trl_vade.selection.log import SelectionLog
from trl_vade.selection.signal import RewardSignal
from trl_vade.trainer.async_grpo import AsyncSelection, Stream

from ..machine import machine
from . import stub
from .loops import running

ROWS, GROUPS, IMPOSSIBLE = 200, 600, 0.6
ARMS = {
    "uniform": AsyncSelection("uniform"),
    "ours": AsyncSelection(),
    "ours, dead groups dropped": AsyncSelection(drop_dead_groups=True),
}


class Recorded(Stream):
    """Notes of each group whether it is live, and its lag."""

    def __init__(self, *given):
        super().__init__(*given)
        self.live, self.lags = [], []

    def score(self, group, rewards, model_version):
        self.lags.append(self.num_scored - self._drawn[group][1])
        self.live.append(bool(np.ptp(rewards[:, 0]) > 0))
        super().score(group, rewards, model_version)


def stream(settings: AsyncSelection, count: int, seed: int, folder: Path, kind=Recorded) -> Stream:
    signal = RewardSignal("says_yes", ["says_yes"])
    feedback = Feedback(settings.sampler(count, seed), num_generations=8, log=SelectionLog(folder), signal=signal)
    return kind(feedback, settings)


def run(arm: str, in_flight: int, seed: int, groups: int = GROUPS) -> dict:
    rates = stub.pass_rates(ROWS, impossible=IMPOSSIBLE, seed=seed)
    with TemporaryDirectory() as folder, stub.serving(rates, seed=seed) as address:
        made = stream(ARMS[arm], ROWS, seed, Path(folder))
        with running(address, stub.rows(ROWS), made, in_flight=in_flight) as (wait, samples):
            wait(lambda: made.num_scored >= groups, 600)
        pushed = [samples.get_nowait() for _ in range(samples.qsize())]
    live, lags = made.live[:groups], made.lags[:groups]
    return {
        "arm": arm,
        "in_flight": in_flight,
        "seed": seed,
        "live_first_100": float(np.mean(live[:100])),
        "live_last_200": float(np.mean(live[-200:])),
        "lag_median": float(np.median(lags)),
        "lag_max": int(np.max(lags)),
        "pushed": len(pushed),
        "pushed_dead": sum(sample.advantage == 0.0 for sample in pushed),
        **machine(),
    }


def table(records: list[dict]) -> str:
    """Mean over the seeds (lowest to highest)."""
    cells = defaultdict(list)
    for record in records:
        cells[record["arm"], record["in_flight"]].append(record)

    def cell(of, name, digits):
        values = [record[name] for record in of]
        return f"{np.mean(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"

    lines = [
        "| rows drawn | completions in flight | live share, first 100 groups | live share, last 200 groups | "
        "lag, groups: median | lag, groups: largest | samples pushed | of these with advantage 0 |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for (arm, in_flight), of in cells.items():
        figures = [cell(of, f"live_{name}", 2) for name in ("first_100", "last_200")]
        figures += [cell(of, name, 0) for name in ("lag_median", "lag_max", "pushed", "pushed_dead")]
        lines.append(f"| {arm} | {in_flight} | {' | '.join(figures)} |")
    return "\n".join(lines)


def main(seeds: int = 3, results: Path | None = None) -> None:
    """Run every arm at 64 and 256 completions in flight; print the table."""
    records = []
    for in_flight in (64, 256):
        for arm in ARMS:
            for seed in range(seeds):
                records.append(run(arm, in_flight, seed))
                print(json.dumps(records[-1]), flush=True)
    if results is not None:
        results.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    print(table(records))


if __name__ == "__main__":
    typer.run(main)
