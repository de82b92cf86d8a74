"""Errors of trainers for reinforcement learning, such as verl, TRL and OpenRLHF: batches, generation and rewards.

The wordings are from the sources of verl 0.10, TRL 1.10 and OpenRLHF 0.11, and from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Reinforcement learning"

_VERL: Final = "https://verl.readthedocs.io/en/latest/examples/config.html"
_TRL: Final = "https://huggingface.co/docs/trl/main/en/vllm_integration"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="rl-batch",
        section=SECTION,
        title="Batches of the reinforcement learning do not fit each other",
        summary="The batch of prompts, the mini-batch of an update and the micro-batch of a GPU exclude each other.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "normalized ppo_mini_batch_size",
                r"normalized ppo_mini_batch_size (?P<batch>\d{1,9}) should be (?:divisible by|larger than)"
                r" ppo_micro_batch_size_per_gpu (?P<micro>\d{1,9})",
            ),
            Pattern(
                "must be divisible by ppo_micro_batch_size",
                r"ppo_mini_batch_size \((?P<batch>\d{1,9})\) must be divisible by ppo_micro_batch_size"
                r" \((?P<micro>\d{1,9})\)",
            ),
            Pattern(
                "train_batch_size (",
                r"train_batch_size \((?P<batch>\d{1,9})\) must be >= [\w.]{0,20}ppo_mini_batch_size"
                r" \((?P<micro>\d{1,9})\)",
            ),
            literal("assert config.data.train_batch_size >= config.actor_rollout_ref.actor.ppo_mini_batch_size"),
            Pattern("must be >= n_gpus", r"ppo_micro_batch_size \((?P<micro>\d{1,9})\) [^\n]{1,70}must be >= n_gpus"),
            Pattern(
                "assert num_micro_batches <=", r"assert num_micro_batches <= (?:len\(seq_len_effective\)|num_groups)"
            ),
            Pattern("Please set at least one of '", r"Please set at least one of '(?P<setting>[\w.]{1,60}batch_size)'"),
            Pattern(
                "is supported (the former is deprecated)",
                r"Please remove '(?P<setting>[\w.]{1,60})'[^\n]{0,100} is supported \(the former is deprecated\)",
            ),
            Pattern(
                "generation_batch_size (",
                r"generation_batch_size \((?P<batch>\d{1,9})\) must be divisible by (?:the global batch size"
                r"|num_generations) \((?P<micro>\d{1,9})\)",
            ),
            literal("'generation_batch_size' and 'steps_per_generation' can not be both configured"),
            literal("GRPO requires at least 2 generations per prompt"),
            Pattern("requires n_samples_per_prompt > 1", r"requires n_samples_per_prompt > 1"),
            Pattern("self.train_dataloader", r"assert len\(self\.train_dataloader\) >= 1"),
            literal("Train dataloader is empty!"),
        ),
        causes=(
            "The settings of an example were changed for fewer GPUs, without changing the batches.",
            "The loader is empty: the data has fewer prompts than one batch, or all of them were filtered as too long.",
            "Per GPU, verl divides the mini-batch by the number of data parallel processes and multiplies it by n.",
        ),
        fixes=(
            Fix(
                "Choose multiples: prompts, those of one update, and samples on a GPU at once.",
                "python -m verl.trainer.main_ppo data.train_batch_size=256"
                " actor_rollout_ref.actor.ppo_mini_batch_size=64"
                " actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4",
            ),
            Fix(
                "In TRL, make the batch of all processes a multiple of the generations.",
                "GRPOConfig(per_device_train_batch_size=8, num_generations=8)",
            ),
            Fix("If the loader is empty, check the length of the data and the limit on prompts."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_VERL, "https://huggingface.co/docs/trl/main/en/grpo_trainer"),
        said_by="verl 0.2-0.10, TRL 0.14-1.10, OpenRLHF 0.8-0.11",
    ),
    KnownError(
        id="rl-generation",
        section=SECTION,
        title="Trainer and its generation server do not fit each other",
        summary="The trainer generates with a vLLM server or engine, which is missing or shares GPUs in a wrong way.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "The vLLM server can't be reached at",
                r"The vLLM server can't be reached at (?P<address>\S{1,160}) after (?P<waited>[\d.]{1,10}) seconds",
            ),
            Pattern(
                "Attempting to use the same CUDA device",
                r"Attempting to use the same CUDA device \(UUID: (?P<device>[\w-]{1,60})\) for multiple distinct",
            ),
            literal("Weight update group already initialized"),
            literal("Communicator not initialized. Call `init_communicator` first"),
            Pattern(
                "this nccl communicator is created to work on",
                r"this nccl communicator is created to work on (?P<device>[\w:]{1,12}), but the input tensor is on"
                r" (?P<other_device>[\w:]{1,12})",
            ),
            Pattern("GRPO with vLLM is not compatible with", r"GRPO with vLLM is not compatible with `?device_map`?"),
            Pattern(
                "The requested device for v",
                r"The requested device for vllm \((?P<device>[\w:]{1,12})\) is not available",
            ),
            literal("Seed must be set when using external launcher backend"),
            Pattern(
                "actor_num_gpus_per_node must be equal to",
                r"actor_num_gpus_per_node must be equal to vllm_num_engines \* vllm_tensor_parallel_size",
            ),
        ),
        causes=(
            "No server was started, or it is on another host or port; loading its model can take minutes.",
            "The server and the trainer have the same GPUs, or the trainer takes all of them.",
            "An earlier trainer ended without closing its group in the server.",
            "The model of the trainer is spread over several GPUs with device_map.",
        ),
        fixes=(
            Fix(
                "Start the server on other GPUs than the trainer, and wait until it is ready.",
                "CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model MODEL",
            ),
            Fix(
                "Start the trainer on the others.",
                "CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes 3 train.py",
            ),
            Fix("Start the server again after a trainer that failed."),
            Fix("To shard a large model, use DeepSpeed ZeRO-3 or FSDP instead of device_map."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TRL,),
        said_by="TRL 0.14-1.10, vLLM 0.7-0.10, ms-swift 3, OpenRLHF 0.11",
    ),
    KnownError(
        id="rl-reward",
        section=SECTION,
        title="Rewards do not fit the data",
        summary="There is no reward function for the data, or the functions return another number of values.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Reward function is not implemented for",
                r"Reward function is not implemented for (?:data_source=)?(?P<source>[^\n]{1,100})",
            ),
            Pattern(
                ", len(sample_scores)=",
                r"(?P<name>\w{1,40}): len\(lst\)=(?P<count>\d{1,9}), len\(sample_scores\)=(?P<samples>\d{1,9})",
            ),
            Pattern("Unknown reward manager", r"Unknown reward manager(?: source)?: (?P<name>[^\n]{1,60})"),
            Pattern(
                "must match number of reward",
                r"Number of reward weights \((?P<count>\d{1,5})\) must match number of reward functions",
            ),
            Pattern(
                "The number of reward processing classes",
                r"The number of reward processing classes \((?P<count>\d{1,5})\) must match the number of reward",
            ),
            literal("No reward source provided. Pass `reward_funcs`"),
        ),
        causes=(
            "The data_source column of the data names a source that the program has no function for.",
            "A function returns additional values only for some samples.",
        ),
        fixes=(
            Fix(
                "In verl, give your own function; it returns a number, or the same keys for every sample.",
                "python -m verl.trainer.main_ppo custom_reward_function.path=reward.py"
                " custom_reward_function.name=compute_score",
            ),
            Fix(
                "Look at the columns of the data.",
                "python -c 'import pandas; print(pandas.read_parquet(\"train.parquet\").iloc[0])'",
            ),
            Fix("In TRL, give one weight per function.", "GRPOConfig(reward_weights=[1.0, 0.5])"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://verl.readthedocs.io/en/latest/preparation/reward_function.html",),
        said_by="verl 0.2-0.10, TRL 0.14-1.10",
    ),
)
