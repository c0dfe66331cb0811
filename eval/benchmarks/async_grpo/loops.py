"""TRL's rollout loop in this process, against the stub, with what it pushes."""

import multiprocessing as mp
import queue
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import Any

from accelerate import PartialState

from trl_vade.trainer.async_grpo import RolloutLoop, Stream, VADERolloutLoop

from . import stub


@contextmanager
def running(address: str, dataset: Any, stream: Stream | None, *, in_flight: int, **changes: Any):
    """Run a loop in a thread; yield `wait(done, seconds)` and the queue of samples. No stream: TRL's own loop."""
    PartialState()  # which TRL makes in the process of the loop: accelerate's loggers ask for it
    context, samples = mp.get_context("spawn"), queue.Queue()
    more = {} if stream is None else {"stream": stream, "score_queue_maxsize": stream.settings.score_queue}
    loop = (RolloutLoop if stream is None else VADERolloutLoop)(
        model_name=stub.MODEL,
        dataset=dataset,
        reward_funcs=[stub.says_yes],
        processing_class=stub.tokenizer(),
        eos_token_ids=[stub.tokenizer().eos_token_id],
        rollout_buffer=samples,
        model_version_value=context.Value("i", 0),
        heartbeat_value=context.Value("d", 0.0),
        failed_event=context.Event(),
        exception_info_queue=queue.Queue(),
        metrics_queue=queue.Queue(),
        max_inflight_tasks=in_flight,
        vllm_server_url=address,
        **({"num_generations": 8} | more | changes),
    )
    failure = []

    def run() -> None:
        try:
            loop.run()
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield lambda done, seconds=120.0: _wait(lambda: done() or failure, seconds), samples
    finally:
        if not failure:
            loop._loop.call_soon_threadsafe(loop._stop_event.set)
        thread.join(timeout=30)
        if failure:
            raise failure[0]


def _wait(done: Callable[[], Any], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError(f"not done after {seconds:g} s")
        time.sleep(0.02)
