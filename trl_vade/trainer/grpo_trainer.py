"""`VADEGRPOTrainer`: GRPO that chooses its prompts. Short overrides; each calls the parent, none repeats it."""

import functools
import inspect
import textwrap
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback
from trl import GRPOTrainer

from trl_vade.samplers.snapshot import POSTERIOR_FILE
from trl_vade.selection.batch_metrics import log_metrics

from .checkpoint.completeness import CheckpointFiles, resolve_checkpoint
from .checkpoint.output_folder import claim_output_dir
from .checkpoint.posterior import PosteriorState
from .checkpoint.preemption import LastCheckpoint
from .checkpoint.resuming import ResumingTrainer
from .dynamic_sampling import Refill
from .equal_processes import refuse_differing_weights
from .generation.corrections import correct_generation, without_missing_images
from .generation.engine_processor import engine_with_trainers_processor
from .generation.logprobs import compare_first_logprobs
from .generation.repeated_prompts import tokenize_once
from .initial_posterior import initialise_posterior
from .loader import TicketDataset, TicketSampler, generate_every, load_ahead, loading_ahead, of_tickets
from .plain_config import saying_where_settings_go
from .preflight import look_over
from .presets import is_adaptive
from .publishing.model_card import write_model_card
from .publishing.publication import Publication
from .publishing.publishing_trainer import PublishingTrainer
from .publishing.run_facts import RunFacts, live_run
from .report import leave_report
from .run_start import start_run
from .selection_choice import make_selection


class StepTimer(TrainerCallback):
    """Adds the wall time of each optimiser step, from its first micro-batch to its update, to `seconds["step"]`."""

    def __init__(self, seconds: Any):
        self._seconds = seconds  # a function that returns the dictionary: a resume replaces the dictionary
        self._start = 0.0

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._start = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._seconds()["step"] += time.perf_counter() - self._start


class VADEGRPOTrainer(ResumingTrainer, PublishingTrainer):
    """
    `trl.GRPOTrainer` whose prompts are chosen, on time, by a Thompson sampler over the pass rates of the training rows
    (VADE, arXiv 2511.18902, Algorithm 1).

    Each call of `train` is a run of its own, with a new posterior, unless it resumes. If `train_dataset` was replaced
    since the call before, the posterior keeps the counts of the rows that stayed.

    The arguments are those of `GRPOTrainer`. `args` may be a [`VADEGRPOConfig`], a plain `GRPOConfig` or `None`; VADE's
    defaults apply where its fields are missing.

    Attributes:
        selection (`OnTimeSelection` or `None`):
            The sampler with its posterior (`trainer.selection.sampler.posterior`) and the running totals. `None` where
            rows have no index or a fixed order (iterable data set, `shuffle_dataset=False`, split or dispatched
            batches, a subclass with a sampler or loader of its own): only `vade_sampler="uniform"` accepts these, and is
            then the stock trainer. Else the items of `get_train_dataloader()`, which a subclass's `_prepare_inputs`
            receives, are numbers that stand in for rows.

    Raises:
        ConfigurationError: before the model is loaded, for settings, data or reward names that cannot work. By
            `train`, for an `output_dir` that holds another run (see `vade_overwrite_output_dir`).
    """

    _claimed: str | None = None  # the output directory, once this trainer has begun a run in it
    _has_begun = False  # whether it has begun a run with its selection
    _logprobs_compared = False  # those of the engine and its own, of the first batch
    _tag_names = ["trl", "grpo", "vade"]
    _name = "VADE"
    _paper = {
        "title": "VADE: Variance-Aware Dynamic Sampling via Online Sample-Level Difficulty Estimation for Multimodal RL",
        "id": "2511.18902",
        "citation": textwrap.dedent("""\
            @article{hu2025vade,
                title        = {{VADE: Variance-Aware Dynamic Sampling via Online Sample-Level Difficulty Estimation for Multimodal RL}},
                author       = {Zengjie Hu and Jiantao Qiu and Tianyi Bai and Haojin Yang and Binhang Yuan and Qi Jing and Conghui He and Wentao Zhang},
                year         = 2025,
                eprint       = {arXiv:2511.18902},
            }"""),
    }

    @saying_where_settings_go
    @functools.wraps(GRPOTrainer.__init__)  # the signature is the parent's, whatever the installed TRL gives it
    def __init__(self, *positional: Any, **named: Any):
        signature = inspect.signature(GRPOTrainer.__init__)
        # A class between this one and GRPOTrainer may take arguments of its own, and fewer of them by their places.
        others = {name: named.pop(name) for name in named.keys() - signature.parameters}
        arguments = signature.bind(self, *positional, **named).arguments
        del arguments["self"]
        start = look_over(arguments, type(self))
        args, self._warm_start = arguments["args"], start.warm_start
        self.publication = Publication(args)
        with engine_with_trainers_processor(self, args):
            super().__init__(**arguments, **others)
        self._rows = self.train_dataset  # that the selection is of; the user may put another data set in its place
        refuse_differing_weights(self)
        correct_generation(self)
        self._last_checkpoint = LastCheckpoint(self.accelerator)
        self.add_callback(self._last_checkpoint)
        self.add_callback(CheckpointFiles())
        self.selection = self._refill = None
        if start.on_time:
            self.selection = make_selection(self)
            self._refill = Refill(self) if args.vade_dynamic_sampling else None
            self.add_callback(PosteriorState(POSTERIOR_FILE))
            self.add_callback(StepTimer(lambda: self.selection.feedback.seconds))

    @saying_where_settings_go
    @functools.wraps(GRPOTrainer.train)
    def train(self, resume_from_checkpoint=None, *positional: Any, **named: Any):
        checkpoint = resolve_checkpoint(resume_from_checkpoint, self.args.output_dir)
        if self._claimed != self.args.output_dir:
            claim_output_dir(self.args, checkpoint)
            self._claimed = self.args.output_dir
        if self.selection is not None and not is_adaptive(self.args):
            self.args.ignore_data_skip = False  # skipped tickets cost nothing, and uniform keeps to the stock's epochs
        with self._last_checkpoint.watching(self.args), loading_ahead(self):
            return super().train(checkpoint, *positional, **named)

    @functools.wraps(GRPOTrainer._inner_training_loop)
    def _inner_training_loop(self, *positional: Any, **named: Any):
        """Begin a run with its own rows and posterior; a trial of a hyperparameter search has set its seed by now."""
        call = inspect.signature(GRPOTrainer._inner_training_loop).bind(self, *positional, **named).arguments
        start_run(self, resumed=call.get("resume_from_checkpoint") is not None, trial=call.get("trial"))
        output = super()._inner_training_loop(*positional, **named)
        leave_report(self)
        return output

    @functools.wraps(GRPOTrainer._run_epoch)
    def _run_epoch(self, *positional: Any, **named: Any):
        """Leave a finished run as it is: resumed inside an epoch, it would take a step more (transformers 5.23)."""
        finished = self.state.global_step >= self.state.max_steps
        self.control.should_training_stop |= finished  # a callback may have asked for it
        if not finished:
            if self.selection is not None:
                self.selection.loader.decoder.begin_epoch()
            super()._run_epoch(*positional, **named)

    def get_train_dataloader(self):
        """The stock loader over tickets: same length, same repeats, nothing decoded and nothing chosen ahead."""
        if self.selection is None:
            return super().get_train_dataloader()
        with of_tickets(self):
            loader = super().get_train_dataloader()
        if is_adaptive(self.args):
            # Each epoch a loader takes a seed for its workers from torch's global generator. With `ignore_data_skip` a
            # resumed run has its epochs elsewhere, and would sample other completions. (uniform stays as stock.)
            loader.base_dataloader.generator = torch.Generator().manual_seed(self.args.seed)
        return loader

    def _get_train_sampler(self, dataset=None):
        """The stock sampler, or as many tickets where they stand for the rows."""
        stock = super()._get_train_sampler(dataset)
        return TicketSampler(stock) if isinstance(stock.data_source, TicketDataset) else stock

    def _prepare_inputs(self, generation_batch):
        """When a generation batch is due, choose and load its rows in place of the tickets."""
        if self.selection is None or not self.model.training or not self._generation_is_due():
            return super()._prepare_inputs(generation_batch)
        if self.args.vade_posterior_init != "prior" and self.selection.sampler.posterior.step == 0:
            initialise_posterior(self)
        rows = self.selection.choose()
        with self._generating():
            inputs = super()._prepare_inputs(rows)
        load_ahead(self)
        return inputs

    @contextmanager
    def _generating(self) -> Iterator[None]:
        """Time a generation batch, and keep its images out of the completions table where some process has none."""
        self.log_multimodal = self.args.log_multimodal and self.selection.loader.images_on_all_processes
        try:
            with self.selection.feedback.timed("generation"):
                yield
        finally:
            self.log_multimodal = self.args.log_multimodal

    def _generation_is_due(self) -> bool:
        """The parent's own condition for generating in this micro-batch (TRL 1.16, `GRPOTrainer._prepare_inputs`)."""
        return self._step % generate_every(self) == 0 or self._buffered_inputs is None

    def _generate_and_score_completions(self, inputs):
        """With dynamic sampling refill a training batch first; see `dynamic_sampling`. Compare the first one."""
        prepare, training = super()._generate_and_score_completions, self.model.training
        if self._refill is None or not training or self.selection.in_flight.initialising:
            batch = prepare(inputs)
        else:
            batch = self._refill.complete(inputs, prepare)
        if training and not self._logprobs_compared and "importance_sampling_ratio" in batch:
            self._logprobs_compared = True
            compare_first_logprobs(self, batch)
        return batch

    def _generate(self, prompts):
        """Hand a row without an image on as an empty list; see `corrections.without_missing_images`."""
        *output, images, tool_images = super()._generate(prompts)
        if self._refill is not None and self._refill.in_round:
            self._refill.finish_round(prompts, output)
        return (*output, without_missing_images(images), tool_images)

    def _tokenize_prompts(self, prompts):
        """With vLLM, tokenise a prompt once and not once for each of its completions."""
        tokenize = super()._tokenize_prompts
        plain = self.use_vllm and not self.tools and self.environment_factories is None
        return tokenize_once(prompts, tokenize) if plain else tokenize(prompts)

    @functools.wraps(GRPOTrainer._generate_single_turn)
    def _generate_single_turn(self, *positional: Any, **named: Any):
        """Generate, unless it was done in the rounds of a batch that is now put together."""
        if self._refill is not None and self._refill.replay:
            return self._refill.replay.completions()
        return super()._generate_single_turn(*positional, **named)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        """Feed the gathered rewards of a training batch to the sampler; evaluation never touches the posterior."""
        if self._refill is not None and self._refill.replay:
            return self._refill.replay.rewards_of(completion_ids_list)
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if self.selection is not None and self.model.training:
            outcomes = self.selection.feedback.signal.outcomes(
                rewards.double().cpu().numpy(),
                self.selection.in_flight.sample_index,
                weights=self.reward_weights.double().cpu().numpy(),
                normalise=self.multi_objective_aggregation == "normalize_then_sum",
            )
            log_metrics(self.selection.record(outcomes, self.state.global_step), to=self._metrics["train"])
        return rewards

    def create_model_card(self, model_name=None, dataset_name=None, tags=None):
        """TRL's card, and what VADE has to say."""
        super().create_model_card(model_name, dataset_name, tags)
        if self.is_world_process_zero():
            write_model_card(
                Path(self.args.output_dir),
                lambda: (RunFacts.of(self, dataset_name), live_run(self)),
                posterior_repo=self.publication.posterior_repo,
                revision=self.publication.revision,
                draw=self.hub_model_id is not None,  # a second: not for nobody
            )
