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
            f"{num_copies} of the {num_rows} training rows equal an earlier one in all columns. Each copy gets "
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
    """Notices stretches of generation batches in which no group had a gradient, or the signal never differed.

    Args:
        of_spreads: whether the signal is the spread of the rewards, and no success.
    """

    def __init__(self, *, of_spreads: bool = False) -> None:
        self.of_spreads = of_spreads
        self._without_gradient, self._constant = _Stretch(), _Stretch()

    def observe(self, outcomes: GroupOutcomes) -> str | None:
        """Look at a generation batch; return what is to be said, or None."""
        differs, mixed = bool(outcomes.has_gradient.any()), bool(outcomes.is_mixed.any())
        if length := self._without_gradient.observe(over=differs):
            return f"No group has had a gradient for {length} generation batches: {self._reason(outcomes)}"
        if length := self._constant.observe(over=mixed or not differs):
            answers = "right" if outcomes.pass_rate[outcomes.trials > 0].mean() > 0.5 else "wrong"
            return (
                f"The rewards differ, and the answers of each group have all been equally right for {length} "
                f"generation batches (now {answers}), so selection rests on a constant. Set vade_success_threshold to "
                "a reward that a part of the answers reaches, or to 'spread'."
            )
        return None

    def _reason(self, outcomes: GroupOutcomes) -> str:
        scored = outcomes.trials > 0
        if not scored.any():
            return "no completion got a score. Look at what the reward function returns."
        pass_rate = outcomes.pass_rate[scored]
        if not self.of_spreads and (pass_rate == 1).all():
            return (
                "every answer is right. Either the rows are mastered (add harder ones, or stop), or the reward "
                "function says yes to everything."
            )
        if not self.of_spreads and (pass_rate == 0).all():
            return (
                "every answer is wrong. Either the rows are beyond this policy (add easier ones, or start from a "
                "better checkpoint), or the reward function finds no answer in its format."
            )
        return (
            "the answers of each group all get the same reward. Either the sampling has no variety (temperature, "
            "top_k), or the reward does not depend on the answer."
        )


class _Stretch:
    """Generation batches in a row of one kind, said after `PATIENCE` and then after ten times as many."""

    def __init__(self) -> None:
        self._length, self._next = 0, PATIENCE

    def observe(self, *, over: bool) -> int:
        """Count a batch, or start anew; return the length where it is to be said, else 0."""
        if over:
            self._length, self._next = 0, PATIENCE
            return 0
        self._length += 1
        if self._length < self._next:
            return 0
        self._next *= 10
        return self._length
