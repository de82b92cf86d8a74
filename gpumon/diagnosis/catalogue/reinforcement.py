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
            Pattern(
                "ppo_mini_batch_size 0 should be larger than 0",
                r"ppo_mini_batch_size (?P<batch>0) should be larger than 0 after normalization",
            ),
            Pattern(
                "is not divisible by infer_",
                r"rollout world_size: (?P<batch>\d{1,6}) is not divisible by"
                r" infer_(?:tp|world_size): (?P<micro>\d{1,6})",
            ),
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
                first_for=("num_generations", "generation_batch_size", "GRPO requires"),
            ),
            Fix(
                "If the loader is empty, check the length of the data and the limit on prompts.",
                first_for=("dataloader",),
            ),
            Fix(
                "Divide the model for generation over no more GPUs than there are.",
                "python -m verl.trainer.main_ppo actor_rollout_ref.rollout.tensor_model_parallel_size=1",
                first_for=("divisible by infer_",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_VERL, "https://huggingface.co/docs/trl/main/en/grpo_trainer"),
        said_by="verl 0.2-0.10, TRL 0.14-1.10, OpenRLHF 0.8-0.11",
    ),
    KnownError(
        id="rl-data",
        section=SECTION,
        title="verl: parts of a batch have different lengths",
        summary="A batch of verl joins tensors and other values of each sample, and some have another length.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "must have identical batch size. Got",
                r"tensor dict must have identical batch size\. Got (?P<size>[^\n]{1,60})",
            ),
            Pattern(
                "is not equal to batch size",
                r"key (?P<name>\w{1,40}) length (?P<length>\d{1,9}) is not equal to batch size (?P<batch>\d{1,9})",
            ),
            Pattern(
                "have the same batch size with batch_dims",
                r"Not all the tensor in tensors have the same batch size with batch_dims",
            ),
            Pattern(
                "are not the same object",
                r"(?P<name>\S{1,60}) in tensor_dict1 and tensor_dict2 are not the same object",
            ),
            literal("data in the non_tensor_batch must be a numpy.array with dtype=object"),
            Pattern(
                "expecting all arg share same length of", r"expecting all arg share same length of (?P<length>\d{1,9})"
            ),
        ),
        causes=(
            "An added step, such as filtering or a tool call, returned fewer or more samples than it got.",
            "A list was added for the prompts, and the batch has n answers for each of them.",
        ),
        fixes=(
            Fix(
                "Print the lengths before the union.",
                "print({k: len(v) for k, v in batch.non_tensor_batch.items()}, batch.batch.batch_size)",
            ),
            Fix(
                "Repeat what belongs to the prompt for each of its answers.",
                "batch = batch.repeat(repeat_times=config.actor_rollout_ref.rollout.n, interleave=True)",
            ),
            Fix(
                "Make other values an array of objects.",
                "values = np.array(values, dtype=object)",
                first_for=("dtype=object",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_VERL,),
        said_by="verl 0.2-0.10",
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
            Pattern(
                "Exception: Request failed: ",
                r"Exception: Request failed: (?P<status>\d{3}), (?P<reason>[^\n]{1,100})",
            ),
            Pattern(
                " waiting for vLLM server at ",
                r"Timed out after (?P<waited>[\d.]{1,10})s waiting for vLLM server at (?P<address>\S{1,160})",
            ),
            Pattern(
                "Failed to update parameter online", r"Failed to update parameter online: (?P<reason>[^\n]{1,100})"
            ),
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
            "Status 404: the server was started with vllm serve, which does not have TRL's addresses.",
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
            Fix("Start the server again after a trainer that failed.", first_for=("already initialized",)),
            Fix(
                "Give both the same model and versions: the server could not use the weights that the trainer sent.",
                "pip list | grep -i -E 'verl|slime|sglang|vllm|transformers|megatron'",
                first_for=("update parameter online",),
            ),
            Fix(
                "To shard a large model, use DeepSpeed ZeRO-3 or FSDP instead of device_map.", first_for=("device_map",)
            ),
            Fix(
                "Give the engine a seed, the same on all ranks.",
                'llm = LLM(model=name, distributed_executor_backend="external_launcher", seed=0)',
                first_for=("Seed must be set",),
            ),
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
            Fix(
                "In TRL, give one weight per function.",
                "GRPOConfig(reward_weights=[1.0, 0.5])",
                first_for=("reward weights",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://verl.readthedocs.io/en/latest/preparation/reward_function.html",),
        said_by="verl 0.2-0.10, TRL 0.14-1.10",
    ),
)
