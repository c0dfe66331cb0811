"""Seeds of the requests to a colocated engine; `tests/engines` resumes runs with the real one."""

import copy
from types import SimpleNamespace

from trl_vade.trainer.generation.request_seeds import request_seed


def test_each_place_in_a_run_has_a_seed_of_its_own_and_a_tensor_parallel_group_shares_it():
    def seed(index=0, prompt=(5, 6), *, process=0, **changes):
        trainer = SimpleNamespace(
            selection=SimpleNamespace(feedback=SimpleNamespace(rollouts=changes.get("rollouts", 0))),
            state=SimpleNamespace(global_step=changes.get("step", 0)),
            model=SimpleNamespace(training=changes.get("training", True)),
            args=SimpleNamespace(seed=changes.get("seed", 3)),
            accelerator=SimpleNamespace(process_index=process),
            vllm_generation=SimpleNamespace(tensor_parallel_size=2),
        )
        return request_seed(copy.deepcopy(trainer), index, [*prompt])

    different = [
        *(seed(index) for index in range(3)),
        *(seed(**{name: value}) for name, value in {"rollouts": 16, "step": 1, "training": False, "seed": 4}.items()),
        *(seed(prompt=(6, 5)), seed(process=2)),
    ]
    assert len(set(different)) == len(different)
    assert seed() == seed(process=1) == different[0]
