"""What a run says about its rows where selection has little to choose from, or chooses and learns nothing."""

from .outcomes import GroupOutcomes

PATIENCE = 10
"""Generation batches without any gradient before it is said; it is said again after ten times as many."""


def pool_notices(num_rows: int, num_groups: int, num_copies: int) -> list[str]:
    """What is to be said of a data set of `num_rows`, of which a generation batch takes `num_groups`."""
    notices = []
    if num_rows < 2 * num_groups:
        notices.append(
            f"A generation batch takes {num_groups} of the {num_rows} training rows, so selection can leave out "
            f"{num_rows - num_groups} at a time: this is close to uniform choice. Add rows or make the batch smaller."
        )
    if num_copies:
        notices.append(
            f"{num_copies} of the {num_rows} training rows equal an earlier one in prompt and images. Each copy gets "
            "a posterior of its own, so what is learned of one is not known of the others. Drop the copies, or give "
            "the data set an id column if they are different questions."
        )
    return notices


TRANSFORM_NOTICE = (
    "The training rows have a transform (`Dataset.set_transform`). It runs once for each chosen row, and each "
    "completion gets a copy of its result; stock TRL runs it once for each completion. This differs only where the "
    "transform draws at random: the completions of a group then share one draw."
)


class GradientWatch:
    """Notices a stretch of generation batches in which no group had a gradient."""

    def __init__(self) -> None:
        self._length = 0
        self._next = PATIENCE

    def observe(self, outcomes: GroupOutcomes) -> str | None:
        """Look at a generation batch; return what is to be said, or None."""
        if outcomes.has_gradient.any():
            self._length, self._next = 0, PATIENCE
            return None
        self._length += 1
        if self._length < self._next:
            return None
        self._next *= 10
        return f"No group has had a gradient for {self._length} generation batches: {self._reason(outcomes)}"

    @staticmethod
    def _reason(outcomes: GroupOutcomes) -> str:
        scored = outcomes.trials > 0
        if not scored.any():
            return "no completion got a score. Look at what the reward function returns."
        pass_rate = outcomes.pass_rate[scored]
        if (pass_rate == 1).all():
            return (
                "every answer is right. Either the rows are mastered (add harder ones, or stop), or the reward "
                "function says yes to everything."
            )
        if (pass_rate == 0).all():
            return (
                "every answer is wrong. Either the rows are beyond this policy (add easier ones, or start from a "
                "better checkpoint), or the reward function finds no answer in its format."
            )
        return (
            "the answers of each group all get the same reward. Either the sampling has no variety (temperature, "
            "top_k), or the reward does not depend on the answer."
        )
