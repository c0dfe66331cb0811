"""`VADEGRPOTrainer`: its overrides are short, call the parent's method, and stand in the order of a training run."""

import inspect
import textwrap
from pathlib import Path
from typing import Any

from accelerate.logging import get_logger
from trl import GRPOTrainer

from trl_vade.data.decoding import naming_row, own_rows
from trl_vade.hub.posteriors.table import named_dataset
from trl_vade.hub.publication import Publication
from trl_vade.processes import refuse_differing_weights
from trl_vade.selection.batch_metrics import log_metrics
from trl_vade.selection.on_time import OnTimeSelection

from .batch import GenerationBatch
from .batch_rows import with_gradient, with_pixels_counted
from .callbacks import LastCheckpoint, StepTimer, callback_of
from .checkpoint.resuming import (
    checkpoint_being_saved,
    index_weights,
    load_saved_weights,
    load_states,
    model_being_saved,
    say_what_lacks,
)
from .console import install_console
from .generation.colocated import engine_with_trainers_processor
from .generation.corrections import correct_generation, without_missing_images
from .images.once import ImagesOnce
from .initial_posterior import may_resume, read_warm_start
from .loader import draws_apart, numbers_of, of_tickets, rows_of_batch
from .logs import TaskMetrics, pictures_once
from .preflight import look_over
from .presets import is_adaptive
from .report import PRIVATE, VADEReportCallback, push_checkpoint, push_now, write_model_card
from .run_start import OF_A_RUN, set_choice, start_run, whole_run
from .seams import arguments_of, with_signatures
from .thinning import PLACE, ROW_SHARE

logger = get_logger(__name__)


@with_signatures
class VADEGRPOTrainer(GRPOTrainer):
    """`trl.GRPOTrainer` that chooses the prompts of each generation batch by their posterior pass rates.

    It implements VADE (arXiv 2511.18902, Algorithm 1). The arguments are those of `GRPOTrainer`. `args` may be a
    `VADEGRPOConfig`, a plain `GRPOConfig` or None; missing VADE fields get their defaults. `compute_metrics` is called
    after each evaluation with an `EvalPrediction`: `predictions`, the texts of all N completions, and `label_ids`, their
    rewards, (N, F). What it returns is logged as `eval_<name>`, and `metric_for_best_model` may name it.

    Each call of `train` is a run of its own with a new posterior, unless it resumes.

    Attributes:
        selection: the sampler with its posterior (`trainer.selection.sampler.posterior`) and the running totals. None
            where no sampler can choose: a stream, `shuffle_dataset=False`, split or dispatched batches, or a subclass
            with its own sampler or loader. The run then is `GRPOTrainer`'s.
            Otherwise `get_train_dataloader()` yields tickets, which a subclass's `_prepare_inputs` receives.

    Raises:
        ConfigurationError: for settings, data or reward names that cannot work, most of them before the model is
            loaded. By `train`, for an `output_dir` with checkpoints that this run does not go on from.
    """

    dataset_name: str | None = None  # of the data, for the console and the cards; the Hub's id may have "@revision"
    _has_begun = False  # whether a run has used the selection
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

    publication: Publication  # the uploads; set before `GRPOTrainer.__init__`, which creates the repository
    selection: OnTimeSelection | None = None
    _batch: GenerationBatch | None = None  # None until the trainer is made, or where TRL's batches stay as they are
    _images = ImagesOnce()
    _line: tuple[str, tuple[tuple[str, int], ...]]  # its id and the line of its checkpoint, see `write_marker`
    _weights_left_out = False  # whether a checkpoint had weights that transformers passed over

    def __init__(self, *positional: Any, **named: Any):
        signature = inspect.signature(GRPOTrainer.__init__)
        # A class between this one and GRPOTrainer may take other arguments, and fewer positional ones.
        others = {name: named.pop(name) for name in named.keys() - signature.parameters}
        arguments = signature.bind(self, *positional, **named).arguments
        del arguments["self"]
        self._task_metrics = TaskMetrics(others.pop("compute_metrics", None))  # TRL's own, when it has them
        on_time = look_over(arguments, type(self))
        args = arguments["args"]
        self._warm_start = None if may_resume(args) else read_warm_start(args)
        rows = (lambda: (self._rows, self.selection.sample_keys)) if on_time else None
        self.publication = Publication(args, rows, PRIVATE)
        with engine_with_trainers_processor(self, args):
            super().__init__(**arguments, **others)
        self._of_first_run = {name: value for name, value in vars(self).items() if name in OF_A_RUN}
        self._rows = self.train_dataset  # the rows of the selection; the user may replace `train_dataset`
        rewards = zip(self.reward_func_names, self.reward_funcs, strict=True)
        refuse_differing_weights([("The reference model", self.ref_model), *rewards])
        correct_generation(self)
        self._last_checkpoint = LastCheckpoint(self.accelerator)
        self.add_callback(self._last_checkpoint)
        set_choice(self, on_time)
        self.add_callback(StepTimer(lambda: self.selection, self._metrics["train"]))
        self.add_callback(VADEReportCallback(self))
        install_console(self)

    def train(self, resume_from_checkpoint=None, *positional: Any, **named: Any):
        """Train, from the newest checkpoint of `output_dir` or from another one that no newer one there follows.

        `resume_from_checkpoint` is a folder, True for the newest whole checkpoint, or "auto" for that or, where no
        save was ever finished, a run that begins anew. None begins anew, and is refused where there is a checkpoint.
        """
        with whole_run(self, resume_from_checkpoint) as checkpoint:
            return super().train(checkpoint, *positional, **named)

    def _inner_training_loop(self, *positional: Any, **named: Any):
        """Give the run its rows and posterior, when a trial of a search has set its seed; leave a report at the end."""
        call = arguments_of("_inner_training_loop", positional, named)
        start_run(self, resumed=call.get("resume_from_checkpoint") is not None, trial=call.get("trial"))
        output = super()._inner_training_loop(*positional, **named)
        if report := callback_of(self, VADEReportCallback):
            report.finish()
        return output

    def _run_epoch(self, *positional: Any, **named: Any):
        """Take no step of a finished run that is resumed inside an epoch, as transformers 5.23 would."""
        finished = self.state.global_step >= self.state.max_steps
        self.control.should_training_stop |= finished  # a callback may have asked for it
        if not finished:
            super()._run_epoch(*positional, **named)
        if self.selection is not None and self.args.dataloader_persistent_workers:  # these draw a seed once
            draws_apart(self.callback_handler.train_dataloader, self.args.seed)

    def get_train_dataloader(self):
        """Return TRL's data loader over tickets: same length and repeats, and no row is chosen or decoded ahead."""
        if self.selection is None:
            return super().get_train_dataloader()
        with of_tickets(self):
            loader = super().get_train_dataloader()
        # With `ignore_data_skip` a resumed run starts its epochs elsewhere, and would sample other completions.
        return draws_apart(loader, self.args.seed) if is_adaptive(self.args) else loader

    def _prepare_inputs(self, generation_batch, *more, **named):
        """Choose the rows in place of the tickets when a generation batch is due, and keep those to train on."""
        with rows_of_batch(self, generation_batch) as rows:
            last = self._batch and self._batch.thinning.replay.last_update()
            inputs = super()._prepare_inputs(rows, *more, **named)
            if self.model.training and PLACE in inputs:
                self._buffered_inputs = self._batch.thinning.thin(self._buffered_inputs, last)
                inputs = self._buffered_inputs[self._step % self.args.steps_per_generation]
            return inputs

    def _generate_and_score_completions(self, inputs, *more, **named):
        """Generate and score first, and refill; then let TRL prepare the batch. Process each of its images once."""
        stock, training = super()._generate_and_score_completions, self.model.training
        prepare = lambda rows: stock(rows, *more, **named)  # noqa: E731
        with self._images.preparing(training, self.selection):
            batch = self._batch.make(inputs, prepare) if self._batch and training else prepare(inputs)
        return with_pixels_counted(batch)

    def _generate(self, prompts, *more, **named):
        """Generate. Give a row without an image none of its own."""
        return without_missing_images(super()._generate(prompts, *more, **named))

    def _tokenize_prompts(self, prompts, *more, **named):
        """Note the images, and name the row of a prompt that the processor refuses."""
        tokenize = super()._tokenize_prompts
        self._images.note(prompts)
        if more or named or self.environment_factories is not None:  # what belongs to all prompts fits no single one
            return tokenize(prompts, *more, **named)
        return naming_row(numbers_of(self, prompts), prompts, tokenize)

    def _generate_single_turn(self, *positional: Any, **named: Any):
        with self._images.in_passes(self.model):
            return super()._generate_single_turn(*positional, **named)

    def _calculate_rewards(self, inputs, prompts, completions, completion_ids_list, *more, **named):
        """Give each completion values of its own, and pass the rewards of a training batch to the sampler, once."""
        chosen = self.selection is not None and self.model.training
        if chosen:
            self.selection.note(completions)
            inputs, prompts = own_rows(inputs, prompts)
        rewards = super()._calculate_rewards(inputs, prompts, completions, completion_ids_list, *more, **named)
        if chosen:
            about = {"normalise": self.multi_objective_aggregation == "normalize_then_sum"}
            about["clipped"] = [0.0, *self._metrics["train"].get("completions/clipped_ratio", ())][-1]
            found = self.selection.score(rewards, self.reward_weights, self.state.global_step, **about)
            log_metrics(found, to=self._metrics["train"])
        if not self.model.training:
            self._task_metrics.note(completions, rewards)
        self._raw_rewards = rewards
        return rewards

    def _get_per_token_logps_and_entropies(self, *positional: Any, **named: Any):
        """Compute with the images kept once, and for the rows and tokens that are trained on."""
        forward = super()._get_per_token_logps_and_entropies
        model = arguments_of("_get_per_token_logps_and_entropies", positional, named)["model"]
        with self._images.in_passes(model):
            if self._batch is None:
                return forward(*positional, **with_pixels_counted(named))
            return self._batch.thinning.logps(forward, *positional, **named)

    def _compute_loss(self, model, inputs, *more, **named):
        """Count the rows and tokens trained on. Weigh a mean over the kept rows like one over all rows."""
        if self._batch is None or not self.model.training:
            return super()._compute_loss(model, inputs, *more, **named)
        with self._batch.thinning.loss_of(inputs):
            loss = super()._compute_loss(model, inputs, *more, **named)
        return with_gradient(loss, model) * inputs.get(ROW_SHARE, 1.0)

    def log(self, logs, start_time=None, *more, **named):
        """Add the metrics of the task to those of an evaluation, and log each picture of a table once."""
        if not self.model.training:
            self._task_metrics.add_to(self._metrics["eval"])
        with pictures_once():
            super().log(logs, start_time, *more, **named)

    def _save_checkpoint(self, model, trial, *more, **named):
        with checkpoint_being_saved(self, trial) as folder:
            super()._save_checkpoint(model, trial, *more, **named)
        push_checkpoint(self, folder)

    def save_model(self, output_dir=None, _internal_call=False):
        """Save the model as the Trainer does, and the posterior (in a checkpoint: the reference model, too)."""
        with model_being_saved(self, Path(output_dir or self.args.output_dir), by_trainer=_internal_call):
            super().save_model(output_dir, _internal_call)

    def _save(self, output_dir=None, state_dict=None):
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            index_weights(output_dir or self.args.output_dir)

    def _issue_warnings_after_load(self, load_result):
        # The parent would only warn.
        self._weights_left_out = bool(load_result.unexpected_keys)
        if not self._weights_left_out:
            super()._issue_warnings_after_load(load_result)

    def _load_from_checkpoint(self, resume_from_checkpoint, model=None):
        super()._load_from_checkpoint(resume_from_checkpoint, model)
        if self._weights_left_out:
            load_saved_weights(self.model if model is None else model, resume_from_checkpoint)

    def _load_best_model(self):
        self._weights_left_out = False
        if not Path(best := self.state.best_model_checkpoint).is_dir():  # an error with FSDP, or with a limit of 1
            self.state.best_model_checkpoint = None
            return logger.warning(f"The best checkpoint, {best}, is gone: the model stays that of the last step.")
        super()._load_best_model()
        if self._weights_left_out:
            load_saved_weights(self.model, self.state.best_model_checkpoint)

    def _load_optimizer_and_scheduler(self, checkpoint, *more, **named):
        """Load the posterior, too: all processes call this method, with every backend."""
        if checkpoint is not None:
            say_what_lacks(self, Path(checkpoint))
        super()._load_optimizer_and_scheduler(checkpoint, *more, **named)
        if checkpoint is not None:
            load_states(self, checkpoint)

    def init_hf_repo(self, token=None, private=None):
        """Create the repository and its branch, unless offline. All processes must call it: they get name or error."""
        self.publication.open(token, private)
        self.hub_model_id = self.publication.model.repo_id

    def _push_from_checkpoint(self, checkpoint_folder):
        """Push nothing: `_save_checkpoint` pushes a checkpoint that is whole."""

    def push_to_hub(
        self, commit_message="End of training", blocking=True, token=None, revision=None, private=None, **card: Any
    ):
        """With `blocking=True`, all processes wait, and raise if an upload failed: during training only at its end."""
        self.callback_handler.on_push_begin(self.args, self.state, self.control)
        try:
            if self.hub_model_id is None:
                self.init_hf_repo(token, private)
        finally:  # a model whose repository cannot be made is on the disk
            self.save_model(_internal_call=True)
        pushed = push_now(self, commit_message, {"revision": revision, "token": token}, card)
        if not blocking:
            return pushed
        self.publication.wait() if self.is_in_train else self.publication.finish()
        return pushed.result() if pushed and pushed.exception() is None else None

    def create_model_card(self, model_name=None, dataset_name=None, tags=None):
        """Write TRL's model card with VADE's sections into the output directory, on the main process."""
        super().create_model_card(model_name, named_dataset(dataset_name)["dataset"], tags)  # else a link to nothing
        if self.is_world_process_zero():
            write_model_card(self, dataset_name)
