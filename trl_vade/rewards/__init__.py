"""Reward functions in TRL's shape, and the verifier of answers behind them."""

from .functions import accuracy_reward as accuracy_reward
from .functions import format_reward as format_reward
from .functions import metric_path as metric_path
from .functions import relaxed_accuracy_reward as relaxed_accuracy_reward
