"""Warnings of a run with too few rows to choose from, or with generation batches that teach nothing."""

from .outcomes import GroupOutcomes

PATIENCE = 10
"""Generation batches without a gradient before the first warning; each further warning takes ten times as many."""


def pool_notices(num_rows: int, num_groups: int, num_copies: int) -> list[str]:
    """Return the warnings for a training set with `num_copies` rows that equal an earlier row."""
    notices = []
    if num_rows < 2 * num_groups:
        notices.append(
            f"A generation batch takes {num_groups} of the {num_rows} training rows, so selection can leave out only "
            f"{num_rows - num_groups}. This is close to uniform choice. Add rows or use a smaller batch."
        )
    if num_copies:
        notices.append(
            f"{num_copies} of the {num_rows} training rows equal an earlier row in all columns. Each copy has its own "
            "posterior, which learns nothing from the other copies. Drop the copies, or add an id column if they are "
            "different questions."
        )
    return notices


TRANSFORM_NOTICE = (
    "The training rows have a transform (`Dataset.set_transform`). The trainer runs it once for each chosen row; TRL "
    "runs it once for each completion. This matters only for a random transform: the completions of a group then "
    "share one draw."
)


class GradientWatch:
    """A watch for successive generation batches without a gradient, or with a constant success signal."""

    def __init__(self) -> None:
        self.of_spreads = False  # whether the signal is the spread of the rewards instead of success
        self._without_gradient, self._constant = _Stretch(), _Stretch()

    def observe(self, outcomes: GroupOutcomes) -> str | None:
        """Count a generation batch and return a warning, or None."""
        differs, mixed = bool(outcomes.has_gradient.any()), bool(outcomes.is_mixed.any())
        if length := self._without_gradient.observe(over=differs):
            return f"No group has had a gradient for {length} generation batches: {self._reason(outcomes)}"
        if length := self._constant.observe(over=mixed or not differs):
            answers = "right" if outcomes.pass_rate[outcomes.trials > 0].mean() > 0.5 else "wrong"
            return (
                f"The rewards differ, but in {length} generation batches all answers of each group counted the same "
                f"(now {answers}). Selection needs answers that differ: set vade_success_threshold to a reward that "
                "only some answers reach, or to 'spread'."
            )
        return None

    def _reason(self, outcomes: GroupOutcomes) -> str:
        scored = outcomes.trials > 0
        if not scored.any():
            return "no completion got a score. Check the values that the reward function returns."
        pass_rate = outcomes.pass_rate[scored]
        if not self.of_spreads and (pass_rate == 1).all():
            return (
                "every answer is right. Either the rows are mastered (add harder ones, or stop), or the reward "
                "function accepts everything."
            )
        if not self.of_spreads and (pass_rate == 0).all():
            return (
                "every answer is wrong. Either the rows are too hard (add easier ones, or start from a better "
                "checkpoint), or the reward function does not recognise the format of the answers."
            )
        return (
            "the answers of each group all get the same reward. Either sampling has no variety (check temperature and "
            "top_k), or the reward does not depend on the answer."
        )


class _Stretch:
    """A counter of successive generation batches of one kind."""

    def __init__(self) -> None:
        self._length, self._next = 0, PATIENCE

    def observe(self, *, over: bool) -> int:
        """Count a batch, or reset if the stretch is over; return the length if a warning is due, else 0."""
        if over:
            self._length, self._next = 0, PATIENCE
            return 0
        self._length += 1
        if self._length < self._next:
            return 0
        self._next *= 10
        return self._length
