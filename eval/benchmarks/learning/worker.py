"""What the workers do; not in `__main__.py`, which a worker, a fresh interpreter, does not import."""

import os


def work(stage, **arguments):
    """One run; returns its record."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    if stage == "trainer":
        from .trainer_run import run
    else:
        from .one_run import run

        arguments |= {"brief": stage == "tune", "compiled": True}
    return {"stage": stage, **run(**arguments)}


def build(pair):
    """The base policy and the pool of a regime; cached for the runs."""
    from .pools import load_regime

    seed, regime = pair
    load_regime(regime, seed, progress=False)
