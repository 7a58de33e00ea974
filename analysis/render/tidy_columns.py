"""The columns of the tidy tables: name, kind, meaning. A test compares them with docs/tidy-tables.md.

A unit is in the name (`_seconds`, `_bytes`, `samples_per_second`). Unknown values are empty in CSV and null in
Parquet, never 0.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

Kind = Literal["string", "integer", "number", "boolean"]  # as a Data Package names them


class Column(NamedTuple):
    """A column of a tidy table."""

    name: str
    kind: Kind
    meaning: str


KEY = (
    Column("study", "string", "the study, with the digest of its plan"),
    Column("case_id", "string", "one launch of a cell, as planned"),
    Column("attempt", "integer", "1 for the first try at that launch"),
)
LAUNCHES = (
    *KEY,
    Column(
        "counts",
        "boolean",
        "the report's numbers are made of it: of its case the latest attempt with a number",
    ),
    Column("system", "string", "the machine"),
    Column("cell_id", "string", "what was measured: equal for the launches that are compared"),
    Column("workload", "string", "what is trained"),
    Column("preset", "string", "the size of the workload"),
    Column("framework", "string", "torch or tensorflow"),
    Column("backend", "string", "how ranks combine gradients; `none` does not"),
    Column("backend_options", "string", "`name=value, ...`; empty without any"),
    Column("algorithm", "string", "how ranks train one network: `sync` averages gradients in every step"),
    Column("algorithm_options", "string", "`name=value, ...`; empty without any"),
    Column(
        "environment",
        "string",
        "the set of installed software, with variables that the study sets: `name, X=1`",
    ),
    Column("scaling_mode", "string", "weak: samples per rank are fixed; strong: samples over all ranks"),
    Column("num_ranks", "integer", "processes that train"),
    Column("num_servers", "integer", "processes that serve parameters"),
    Column("num_nodes", "integer", "nodes that they are on"),
    Column("cores_per_rank", "integer", "cores that each is bound to"),
    Column("threads_per_rank", "integer", "threads of its framework"),
    Column("local_batch", "integer", "samples per rank and step"),
    Column("global_batch", "integer", "samples per step over all ranks"),
    Column("precision", "string", "fp32, bf16 ..."),
    Column("compiled", "boolean", "by torch.compile or XLA"),
    Column("memory_format", "string", "channels_last or channels_first"),
    Column("device", "string", "cpu or gpu"),
    Column("control", "string", "`train` is the real thing; the others are in docs/metrics.md"),
    Column("target", "string", "of a training that ends at one: `AUC 0.993`; else empty"),
    Column("learning_rate", "number", "of a training with a target, after scaling"),
    Column("tuning", "string", "of that rate: `tuned: 5 rates x 3 seeds`, or `not tuned`; else empty"),
    Column("data", "string", "synthetic, or name and digest of the input"),
    Column("slept", "string", "what computation was replaced by (docs/emulated.md); else empty"),
    Column("unchecked", "string", "of a user's own model or of sleep: what gates cannot check; else empty"),
    Column("block", "integer", "launches of one block ran close in time"),
    Column("position", "integer", "the place in the block's random order"),
    Column("evidence", "string", "measured, emulated, simulated or published"),
    Column("started_at", "string", "UTC, ISO 8601"),
    Column("fingerprint", "string", "equal for what may lie on one curve"),
    Column("commit", "string", "of the checkout that measured"),
    Column("failure_kind", "string", "empty unless it failed"),
    Column("reason", "string", "why it gives no number; empty if it does"),
    Column("oversubscribed", "boolean", "more ranks x cores than the machine has"),
    Column("steady", "boolean", "whether the warm-up met its steady-state test"),
    Column("exchange", "string", "of gradients: overlapped, in line, mixed; empty if unknown"),
    Column("num_windows", "integer", "after the warm-up"),
    Column("num_steps", "integer", "in these windows"),
    Column("num_samples", "integer", "in these windows, over all ranks"),
    Column("seconds_per_step", "number", "median over these windows, of the slowest rank"),
    Column("samples_per_second", "number", "over all ranks: the batch over `seconds_per_step`"),
    Column(
        "start_skew_of_window",
        "number",
        "last start - first start of ranks on one machine, as a share of a window; median",
    ),
    Column("peak_rss_bytes", "integer", "the largest rank's resident set"),
    Column("num_skipped_samples", "integer", "unreadable ones, over all ranks"),
    Column(
        "energy_joules", "number", "of all nodes over these windows; not known unless every machine gave it"
    ),
    Column("joules_per_sample", "number", "`energy_joules` / `num_samples`"),
    Column("energy_sources", "string", "what counted: rapl, pm_counters, nvml; empty if nothing did"),
    Column(
        "start_up_seconds", "number", "from mpiexec to the end of imports and MPI_Init, of the slowest rank"
    ),
    Column("import_backend_seconds", "number", "importing what the backend needs, of the slowest rank"),
    Column("connect_seconds", "number", "until the ranks have found each other, of the slowest rank"),
    Column("gates_seconds", "number", "checks of correctness, of the slowest rank"),
    Column("first_step_seconds", "number", "of the trainer that is measured, of the slowest rank"),
    Column("warm_up_seconds", "number", "all steps of the warm-up, of the slowest rank"),
)
WINDOWS = (
    *KEY,
    Column("counts", "boolean", "after the warm-up, of an attempt that counts"),
    Column("workload", "string", "as in launches"),
    Column("framework", "string", "as in launches"),
    Column("backend", "string", "as in launches"),
    Column("control", "string", "as in launches"),
    Column("num_ranks", "integer", "as in launches"),
    Column("block", "integer", "as in launches"),
    Column("window", "integer", "from 0, the warm-up's among them"),
    Column("phase", "string", "warmup or steady"),
    Column("num_steps", "integer", "of a rank; where ranks do not step together the most that any took"),
    Column(
        "num_applied", "integer", "local batches that the weights took up, where ranks do not step together"
    ),
    Column("num_samples", "integer", "over all ranks; where ranks do not step together those applied"),
    Column("start_seconds", "number", "the earliest start on rank 0's machine, since the first window's"),
    Column("start_skew_seconds", "number", "last start - first start of ranks on one machine"),
    Column("slowest_rank", "integer", "the first of those that took longest"),
    Column("slowest_rank_seconds", "number", "the window's world time"),
    Column("mean_rank_seconds", "number", "mean over ranks"),
    Column("fastest_rank_seconds", "number", "the least of any rank"),
    Column(
        "seconds_per_step",
        "number",
        "world time / steps; of control `exchange` with what ranks do between buckets, which its numbers leave out",
    ),
    Column("samples_per_second", "number", "`num_samples` / world time"),
)
RANKS = (
    *KEY,
    Column("window", "integer", "as in windows"),
    Column("rank", "integer", "from 0"),
    Column("num_steps", "integer", "that this rank took"),
    Column("start_seconds", "number", "this rank's start, since the first window's earliest on its machine"),
    Column("seconds", "number", "from this rank's first stamp to its last"),
)
TRAININGS = (
    *KEY,
    Column("counts", "boolean", "the report's numbers are made of it"),
    Column("workload", "string", "as in launches"),
    Column("preset", "string", "as in launches"),
    Column("framework", "string", "as in launches"),
    Column("backend", "string", "as in launches"),
    Column("num_ranks", "integer", "as in launches"),
    Column("global_batch", "integer", "as in launches"),
    Column("block", "integer", "as in launches"),
    Column("seed", "integer", "of initial weights, order of samples and dropout"),
    Column("metric", "string", "what the target is about"),
    Column("threshold", "number", "the metric's value to be reached"),
    Column("learning_rate", "number", "that was used"),
    Column("learning_rate_scaling", "string", "how it follows the global batch"),
    Column("evaluate_every", "integer", "steps between evaluations; unknown where they come after seconds"),
    Column(
        "evaluate_seconds", "number", "of training between evaluations; unknown where they come after samples"
    ),
    Column("end", "string", "reached, budget or diverged"),
    Column("reached", "boolean", "if not, all times and counts would have been larger: they are censored"),
    Column("num_steps", "integer", "until its end"),
    Column("num_samples", "integer", "that the weights took up, over all ranks"),
    Column("num_epochs", "number", "`num_samples` / `num_training_samples`"),
    Column("num_training_samples", "integer", "of an epoch"),
    Column("num_held_out_samples", "integer", "that it was evaluated on"),
    Column("num_evaluations", "integer", "rows of evaluations"),
    Column("seconds", "number", "time to solution: from the launch, gates left out, to the end"),
    Column("launch_seconds", "number", "start of the ranks, imports, connecting"),
    Column("set_up_seconds", "number", "building the networks"),
    Column("training_seconds", "number", "of the steps, slowest rank"),
    Column("evaluating_seconds", "number", "of the evaluations, slowest rank"),
    Column("value", "number", "of the metric at the end"),
)
EVALUATIONS = (
    *KEY,
    Column("counts", "boolean", "as in trainings"),
    Column("workload", "string", "as in launches"),
    Column("framework", "string", "as in launches"),
    Column("backend", "string", "as in launches"),
    Column("num_ranks", "integer", "as in launches"),
    Column("block", "integer", "as in launches"),
    Column("evaluation", "integer", "from 0"),
    Column("num_steps", "integer", "until then"),
    Column("num_samples", "integer", "until then, over all ranks"),
    Column("num_epochs", "number", "until then"),
    Column("seconds", "number", "from the launch, gates left out, to the end of this evaluation"),
    Column("training_seconds", "number", "of the steps until then, slowest rank"),
    Column("evaluating_seconds", "number", "of all evaluations until then, slowest rank"),
    Column("loss", "number", "of the step's batch, mean over ranks; unknown if it is no finite number"),
)
METRICS = (
    *KEY,
    Column("evaluation", "integer", "as in evaluations"),
    Column("metric", "string", "its name; docs/time-to-solution.md says what it is"),
    Column("value", "number", "on the held-out samples"),
)
GRADIENTS = (
    *KEY,
    Column("counts", "boolean", "as in launches"),
    Column("workload", "string", "as in launches"),
    Column("framework", "string", "as in launches"),
    Column("local_batch", "integer", "as in launches"),
    Column("block", "integer", "as in launches"),
    Column("place", "integer", "from 0, in the order in which they are complete"),
    Column("gradient", "string", "the trained tensor's name"),
    Column("num_bytes", "integer", "of the tensor"),
    Column("ready_low_seconds", "number", "5 % quantile over the stamped steps"),
    Column(
        "ready_seconds", "number", "from the start of the step until it is complete, the median over them"
    ),
    Column("ready_high_seconds", "number", "95 % quantile"),
)
PREDICTIONS = (
    Column("system", "string", "the machine that is predicted"),
    Column("workload", "string", "as in launches"),
    Column("preset", "string", "as in launches"),
    Column("framework", "string", "as in launches"),
    Column("backend", "string", "as in launches"),
    Column("backend_options", "string", "as in launches"),
    Column("exchange_algorithm", "string", "between nodes, in the place of the backend's own; else empty"),
    Column("scaling_mode", "string", "as in launches"),
    Column("num_ranks", "integer", "as in launches"),
    Column("num_servers", "integer", "as in launches"),
    Column("num_nodes", "integer", "that the ranks are on; servers are on further ones"),
    Column("local_batch", "integer", "as in launches"),
    Column("global_batch", "integer", "as in launches"),
    Column("evidence", "string", "always simulated"),
    Column("samples_per_second", "number", "predicted, over all ranks: the median of the replicates"),
    Column("samples_per_second_low", "number", "their 5 % quantile"),
    Column("samples_per_second_high", "number", "their 95 % quantile"),
    Column("efficiency", "number", "predicted, relative to one rank without a communication layer"),
    Column("efficiency_low", "number", "5 % quantile"),
    Column("efficiency_high", "number", "95 % quantile"),
    Column("seconds_per_step", "number", "predicted, the median"),
    Column("seconds_per_step_low", "number", "5 % quantile"),
    Column("seconds_per_step_high", "number", "95 % quantile"),
    Column("batch_effect_loss", "number", "share of the predicted step"),
    Column("stragglers_loss", "number", "share of the predicted step"),
    Column("exposed_communication_loss", "number", "share of the predicted step"),
    Column("engine", "string", "what found the times of exchanges: loggp"),
    Column("engine_version", "string", "its version"),
    Column("num_replicates", "integer", "of the Monte Carlo"),
    Column("profile_evidence", "string", "of the step that it was made from: measured or published"),
    Column("profile_digest", "string", "of that profile"),
    Column("network_digest", "string", "of the network"),
    Column("calibrated_nodes", "integer", "the most that the network was calibrated on"),
    Column("held_out_error", "number", "of the largest calibration point, by a calibration without it"),
    Column("doubts", "string", "why it is not to be trusted; else empty"),
)
TABLES: dict[str, tuple[Column, ...]] = {
    "launches": LAUNCHES,
    "windows": WINDOWS,
    "ranks": RANKS,
    "trainings": TRAININGS,
    "evaluations": EVALUATIONS,
    "metrics": METRICS,
    "gradients": GRADIENTS,
    "predictions": PREDICTIONS,
}
ROW_KEYS: dict[str, tuple[str, ...]] = {  # what identifies a row beside KEY
    "launches": (),
    "windows": ("window",),
    "ranks": ("window", "rank"),
    "trainings": (),
    "evaluations": ("evaluation",),
    "metrics": ("evaluation", "metric"),
    "gradients": ("place",),
}
# What identifies a prediction, which no launch has made.
PREDICTION_KEY = (
    *("system", "workload", "preset", "framework", "backend", "backend_options", "exchange_algorithm"),
    *("scaling_mode", "num_ranks", "num_servers", "num_nodes", "local_batch"),
)
