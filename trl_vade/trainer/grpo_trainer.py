"""`VADEGRPOTrainer`: GRPO that chooses its prompts. Each override is short and calls the parent's method."""

import functools
import inspect
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from trl import GRPOTrainer

from trl_vade.data.decoding import naming_row
from trl_vade.data.own_values import own_rows
from trl_vade.hub.posteriors.facts import named_dataset
from trl_vade.selection.batch_metrics import log_metrics

from .checkpoint.lock import holding
from .checkpoint.preemption import LastCheckpoint
from .checkpoint.resuming import ResumingTrainer, begin_line, refuse_other_adapters, resolve_checkpoint
from .console import install_console, saying_how_it_ended
from .dynamic_sampling import Refill
from .equal_processes import refuse_differing_weights
from .generation.corrections import correct_generation, without_missing_images
from .generation.engine_processor import engine_with_trainers_processor
from .generation.logprobs import compare_first_logprobs
from .generation.repeated_prompts import tokenize_once
from .harmless import callback_of
from .images.trainer import ImagesOnce, ImagesOnceTrainer
from .initial_posterior import initialise_posterior
from .loader import TicketDataset, TicketSampler, generate_every, load_ahead, loading_ahead, of_tickets
from .method_owners import say_own_views
from .plain_config import saying_where_settings_go
from .preflight import look_over
from .presets import is_adaptive, setting
from .publishing.model_card import write_model_card
from .publishing.publication import Publication
from .publishing.publishing_trainer import PublishingTrainer
from .report import VADEReportCallback
from .run_start import start_run
from .seams import arguments_of, by_name
from .selection_choice import make_selection
from .step_timer import StepTimer
from .thinning import Thinning, ThinningTrainer


class VADEGRPOTrainer(PublishingTrainer, ResumingTrainer, ThinningTrainer, ImagesOnceTrainer):
    """`trl.GRPOTrainer` that chooses the prompts of each generation batch by their posterior pass rates.

    It implements VADE (arXiv 2511.18902, Algorithm 1). The arguments are those of `GRPOTrainer`. `args` may be a
    `VADEGRPOConfig`, a plain `GRPOConfig` or None; missing VADE fields get their defaults.

    Each call of `train` is a run of its own with a new posterior, unless it resumes. If `train_dataset` was replaced
    since the last call, the posterior keeps the counts of the rows that stayed.

    Overrides, each of which calls the parent's method (see also `ResumingTrainer`, `PublishingTrainer`,
    `ThinningTrainer` and `ImagesOnceTrainer`):

    * `__init__`: checks settings and data before a model is loaded, and corrects TRL's generation engines.
    * `train`: finds the checkpoint, refuses to mix two runs in `output_dir`, and saves a last checkpoint on a signal.
    * `_inner_training_loop`: gives each run its rows and posterior when a trial of a search has set its seed, and
      leaves a report at the end.
    * `_run_epoch`: stops a finished run that is resumed inside an epoch from taking one step more (transformers 5.23).
    * `get_train_dataloader`, `_get_train_sampler`: the loader carries tickets in place of rows. Loaders read ahead, so
      rows chosen there would be chosen before the batch before them is scored.
    * `_prepare_inputs`: chooses and loads the rows in place of the tickets when a generation batch is due.
    * `_generate_and_score_completions`: refills the batch with dynamic sampling, notes the rows of its images, and
      checks vLLM's first log-probabilities.
    * `_generate`, `_generate_single_turn`: end a round of dynamic sampling, and reuse the completions of the rounds.
      Score the completions before the passes over them, so that rows without a gradient are left out.
    * `_tokenize_prompts`: tokenises each prompt once with vLLM, not once for each of its completions. Names the row of
      a prompt that the processor refuses.
    * `_calculate_rewards`: gives each completion a copy of its row's values, which rewards may change. Passes the
      gathered rewards of training batches to the sampler. Evaluations do not count.
    * `create_model_card`: adds VADE's sections to TRL's card.

    Attributes:
        selection: the sampler with its posterior (`trainer.selection.sampler.posterior`) and the running totals. None
            for an iterable data set, a data set smaller than a generation batch, `shuffle_dataset=False`, split or
            dispatched batches, or a subclass with its own sampler or loader. Only `vade_sampler="uniform"` accepts
            these, and then behaves like `GRPOTrainer`. Otherwise `get_train_dataloader()` yields tickets, which a
            subclass's `_prepare_inputs` receives.

    Raises:
        ConfigurationError: before the model is loaded, for settings, data or reward names that cannot work. By
            `train`, for an `output_dir` with checkpoints that this run does not go on from.
    """

    dataset_name: str | None = None  # of the data, for the console and the cards; the Hub's id may have "@revision"
    _has_begun = False  # whether a run has used the selection
    _logprobs_compared = False  # whether the first batch was compared
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
    @functools.wraps(GRPOTrainer.__init__)  # the signature of the installed TRL
    def __init__(self, *positional: Any, **named: Any):
        signature = inspect.signature(GRPOTrainer.__init__)
        # A class between this one and GRPOTrainer may take other arguments, and fewer positional ones.
        others = {name: named.pop(name) for name in named.keys() - signature.parameters}
        arguments = signature.bind(self, *positional, **named).arguments
        del arguments["self"]
        start = look_over(arguments, type(self))
        args, self._warm_start = arguments["args"], start.warm_start
        self.publication = Publication(args, self._rows_with_keys if start.on_time else None)
        with engine_with_trainers_processor(self, args):
            super().__init__(**arguments, **others)
        self._rows = self.train_dataset  # the rows of the selection; the user may replace `train_dataset`
        refuse_differing_weights(self)
        self._images = ImagesOnce(self)
        correct_generation(self)
        self._last_checkpoint = LastCheckpoint(self.accelerator)
        self.add_callback(self._last_checkpoint)
        self.selection = self._refill = None
        if start.on_time:
            self.selection = make_selection(self)
            self._refill = Refill(self) if args.vade_dynamic_sampling else None
            self.add_callback(StepTimer(lambda: self.selection.feedback.seconds, self._metrics["train"]))
        if start.on_time or args.vade_down_sampling not in (None, "none"):
            self._thinning = Thinning(self)
        say_own_views(self)
        self.add_callback(VADEReportCallback(self))
        install_console(self)

    @saying_where_settings_go
    @functools.wraps(GRPOTrainer.train)
    def train(self, resume_from_checkpoint=None, *positional: Any, **named: Any):
        """Train, from the newest checkpoint of `output_dir` or from another one that no newer one there follows.

        `resume_from_checkpoint` is a folder, True for the newest whole checkpoint, or "auto" for that or, where no
        save was ever finished, a run that begins anew. None begins anew, and is refused where there is a checkpoint.
        """
        with holding(self.args.output_dir):
            checkpoint = resolve_checkpoint(resume_from_checkpoint, self.args.output_dir)
            if checkpoint is not None:
                refuse_other_adapters(self.model, checkpoint)
            self._line = begin_line(checkpoint)
            if self.selection is not None and not is_adaptive(self.args):
                self.args.ignore_data_skip = False  # skipping tickets is free, and uniform keeps TRL's epochs
            with self._last_checkpoint.watching(self.args), loading_ahead(self), saying_how_it_ended(self):
                return super().train(checkpoint, *positional, **named)

    @functools.wraps(GRPOTrainer._inner_training_loop)
    def _inner_training_loop(self, *positional: Any, **named: Any):
        call = arguments_of(GRPOTrainer, "_inner_training_loop", positional, named)
        start_run(self, resumed=call.get("resume_from_checkpoint") is not None, trial=call.get("trial"))
        output = super()._inner_training_loop(*positional, **named)
        if report := callback_of(self, VADEReportCallback):
            report.finish()
        return output

    @functools.wraps(GRPOTrainer._run_epoch)
    def _run_epoch(self, *positional: Any, **named: Any):
        finished = self.state.global_step >= self.state.max_steps
        self.control.should_training_stop |= finished  # a callback may have asked for it
        if not finished:
            super()._run_epoch(*positional, **named)

    def get_train_dataloader(self):
        """Return TRL's data loader over tickets: same length and repeats, and no row is chosen or decoded ahead."""
        if self.selection is None:
            return super().get_train_dataloader()
        with of_tickets(self):
            loader = super().get_train_dataloader()
        if is_adaptive(self.args):
            # Each epoch, a loader draws a seed for its workers from torch's global generator. With `ignore_data_skip`
            # a resumed run starts its epochs elsewhere, and would sample other completions. uniform stays like TRL.
            loader.base_dataloader.generator = torch.Generator().manual_seed(self.args.seed)
        return loader

    def _get_train_sampler(self, dataset=None):
        stock = super()._get_train_sampler(dataset)
        return TicketSampler(stock) if isinstance(stock.data_source, TicketDataset) else stock

    def _prepare_inputs(self, generation_batch):
        training = self.model.training
        if self.selection is None or not training or not self._generation_is_due():
            return super()._prepare_inputs(generation_batch)
        if setting(self.args, "posterior_init") != "prior" and self.selection.sampler.posterior.step == 0:
            initialise_posterior(self)
        rows = self.selection.choose()
        with self._generating():
            inputs = super()._prepare_inputs(rows)
        load_ahead(self)
        return inputs

    @contextmanager
    def _generating(self) -> Iterator[None]:
        """Time a generation batch. Leave its images out of the completions table if some process has none."""
        self.log_multimodal = self.args.log_multimodal and self.selection.loader.images_on_all_processes
        try:
            with self.selection.feedback.timed("generation"):
                yield
        finally:
            self.log_multimodal = self.args.log_multimodal

    def _generation_is_due(self) -> bool:
        """Return whether TRL generates in this micro-batch; a seam holds this against `GRPOTrainer._prepare_inputs`."""
        return self._step % generate_every(self) == 0 or self._buffered_inputs is None

    def _generate_and_score_completions(self, inputs):
        prepare, training = super()._generate_and_score_completions, self.model.training
        if self._refill is None or not training or self.selection.in_flight.initialising:
            batch = prepare(inputs)
        else:
            batch = self._refill.complete(inputs, prepare)
        if training and self.selection is not None and not self.selection.loader.decoder.has_transform:
            self._images.stores[True].of_rows = list(dict.fromkeys(self.selection.loader.numbers))
        if training and not self._logprobs_compared and "importance_sampling_ratio" in batch:
            self._logprobs_compared = True
            compare_first_logprobs(self, batch)
        return batch

    def _generate(self, prompts):
        output = by_name(GRPOTrainer, "_generate", super()._generate(prompts))
        if self._refill is not None and self._refill.in_round:
            self._refill.finish_round(prompts, output)
        if self._thinning is not None:
            self._thinning.score(prompts, output)
        output["images"] = without_missing_images(output["images"])
        return (*output.values(),)

    def _tokenize_prompts(self, prompts):
        tokenize = super()._tokenize_prompts
        if self.environment_factories is not None:  # TRL passes no single prompt
            return tokenize(prompts)
        numbers = self.selection.loader.numbers if self.selection is not None and self.model.training else []
        names = numbers if len(numbers) == len(prompts) else prompts  # TRL loads the rows of an evaluation
        if self.use_vllm and not self.tools:
            return naming_row(names, prompts, lambda some: tokenize_once(some, tokenize))
        return naming_row(names, prompts, tokenize)

    @functools.wraps(GRPOTrainer._generate_single_turn)
    def _generate_single_turn(self, *positional: Any, **named: Any):
        turn = super()._generate_single_turn
        if self._refill is None:
            return turn(*positional, **named)
        return self._refill.turn(lambda: turn(*positional, **named))

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list):
        if self._thinning is not None and self._thinning.rewards is not None:
            return self._thinning.rewards
        if self._refill is not None and self._refill.replay:
            self._raw_rewards = self._refill.replay.rewards_of(completion_ids_list)
            return self._raw_rewards
        chosen = self.selection is not None and self.model.training
        if chosen:
            inputs, prompts = own_rows(inputs, prompts)
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list)
        if chosen:
            outcomes = self.selection.feedback.signal.outcomes(
                rewards.double().cpu().numpy(),
                self.selection.in_flight.sample_index,
                weights=self.reward_weights.double().cpu().numpy(),
                normalise=self.multi_objective_aggregation == "normalize_then_sum",
            )
            log_metrics(self.selection.record(outcomes, self.state.global_step), to=self._metrics["train"])
        self._raw_rewards = rewards  # a subclass may change what it gets, and must get the same when TRL asks again
        return rewards

    def create_model_card(self, model_name=None, dataset_name=None, tags=None):
        """Write TRL's model card with VADE's sections into the output directory, on the main process."""
        super().create_model_card(model_name, named_dataset(dataset_name)["dataset"], tags)  # else a link to nothing
        if self.is_world_process_zero():
            write_model_card(self, dataset_name)
