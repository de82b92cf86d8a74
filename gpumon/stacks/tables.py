"""What files, functions and source lines of a stack mean: whose code it is, the class of a sample, and waits."""

import re
from typing import Final, NamedTuple

from gpumon.core.step_classes import (
    ANOMALY,
    CHECKPOINT,
    COLLECTION,
    COMMUNICATION,
    COMPILATION,
    COPIES,
    DATA,
    EMPTY_CACHE,
    EVALUATION,
    LOCKS,
    LOGGING,
    PREPARATION,
    PROFILER,
    PROGRAMS,
    SLEEP,
    STATE_COPIES,
    SYNC,
)

PROBE_MODULES: Final = "gpumon/probe/"
PLACES: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("generated", r"/torchinductor_[^/]*/|^<eval_with_key>|^<torch_package"),
        ("program", r"^<(?:stdin|ipython-input)"),
        ("standard", r"^<"),
        ("native", r"\.(?:c|cc|cpp|cu|cuh|h|hpp)$|^\?\?$"),
        ("torch", r"(?:^|.*/(?:site|dist)-packages/)(torch/.*)"),
        ("library", r".*/(?:site|dist)-packages/(.*)"),
        ("standard", r"(?:/lib(?:64)?/(?:python|pypy)3(?:\.\d+)?t?/|/lib-dynload/)(.*)"),
        ("standard", r"^(?:threading|contextlib|functools|runpy)\.py$"),  # Kineto leaves out the folder
        ("torch", r"/(torch/(?:nn|optim|autograd|utils/data|distributed)/[\w./-]*\.py)$"),  # a source checkout
        ("library", f"({PROBE_MODULES})"),
    )
)
"""Where a file belongs: the kind and the pattern of the path, whose group is the module; otherwise, to the program."""


class StackRule(NamedTuple):
    """A class that a frame anywhere in a stack decides.

    Attributes:
        name: The class.
        kind: The finer name.
        module: Pattern of the module, see `Place.module`.
        function: Pattern of the function.
    """

    name: str
    kind: str
    module: re.Pattern[str]
    function: re.Pattern[str]


class SourceRule(NamedTuple):
    """A class that the source line of the innermost frame decides.

    Attributes:
        name: The class.
        kind: The finer name.
        source: Pattern of the source line.
        needs_gpu: Whether it only costs time where tensors are on a GPU.
    """

    name: str
    kind: str
    source: re.Pattern[str]
    needs_gpu: bool = False


def _anywhere(name: str, kind: str, module: str, function: str = "") -> StackRule:
    return StackRule(name, kind, re.compile(module), re.compile(function))


LOCK_MODULES: Final = re.compile(
    r"^(?:threading|queue|selectors|_pyio)\.py|^(?:concurrent/futures|multiprocessing|asyncio)/"
)
"""Modules whose functions wait for a lock, a queue or another thread."""
POLLING_MODULES: Final = re.compile(r"^(?:socket|ssl|selectors|subprocess)\.py|^multiprocessing/connection\.py")
"""Modules whose functions wait for a file descriptor with poll or select."""
WAITING_FUNCTIONS: Final = frozenset(
    {"wait", "acquire", "select", "poll", "accept", "sleep", "get", "recv", "read", "join"}
)
"""Functions of the standard library in which a thread waits and does not need the GIL."""
COLLECTIVES_MODULE: Final = "torch/distributed/distributed_c10d.py"
POINT_TO_POINT_FUNCTIONS: Final = frozenset({"send", "recv", "isend", "irecv", "batch_isend_irecv"})
WRAPPER_MODULES: Final = ("torch/utils/_contextlib.py", "torch/distributed/c10d_logger.py", "contextlib.py", "<")
"""Modules of decorators, whose frames lie between a function and its caller."""
WRAPPER_FUNCTIONS: Final = frozenset({"wrapper", "decorate_context", "_fn", "inner"})
_COMPILERS: Final = (
    r"torch/_dynamo/(?:convert_frame|symbolic_convert|output_graph|guards|bytecode_transformation)\.py|triton/compiler/"
)
_TRACERS: Final = (
    r"torch/(?:_subclasses|_prims|_prims_common|_refs|_decomp|_higher_order_ops|utils/_sympy|fx/(?!graph_module|traceback)\w+)"
    r"[/\w]*\.py|torch/_meta_registrations\.py|^sympy/"
)
"""What the compiler runs deep in its stacks, whose outer frames a sample may lack."""
_PICTURES: Final = (
    r"(?:PIL|cv2|imageio|skimage|torchvision/(?:io|transforms|datasets)|albumentations|kornia/augmentation|torchaudio"
    r"|librosa|soundfile|scipy/io|decord|av|h5py|zarr|pandas|pyarrow|polars|webdataset|datasets|litdata|streaming"
    r"|tokenizers|sentencepiece|tiktoken|numpy/lib/(?:_?npyio|format)|transformers/(?:tokenization|image_processing"
    r"|data/))[\w/]*"
)
ANYWHERE: Final = (
    _anywhere(COMPILATION, "recompiles", _COMPILERS),
    _anywhere(COMPILATION, "recompiles", r"torch/_(?:inductor|functorch)/", r"compile|codegen|lowering"),
    _anywhere(COMPILATION, "recompiles", _TRACERS),
    _anywhere(ANOMALY, "anomaly_mode", r"traceback\.py|torch/autograd/anomaly_mode\.py", r"format_|extract|walk_"),
    _anywhere(DATA, "worker_start", r"torch/utils/data/dataloader\.py", r"__iter__|_get_iterator|__init__|_shutdown"),
    _anywhere(DATA, "main_process", r"torch/utils/data/_utils/fetch\.py|torch/utils/data/_utils/collate\.py"),
    _anywhere(DATA, "few_workers", r"torch/utils/data/dataloader\.py", r"_try_get_data|_get_data"),
    _anywhere(DATA, "loader", r"torch/utils/data/dataloader\.py", r"__next__|_next_data"),
    _anywhere(EMPTY_CACHE, "empty_cache", r"torch/(?:cuda|accelerator)/memory\.py", r"empty_cache"),
    _anywhere(CHECKPOINT, "checkpoint", r"torch/(?:serialization|distributed/checkpoint/)|safetensors/", r"save|writ"),
    _anywhere(
        CHECKPOINT,
        "checkpoint",
        r"",
        r"^_?save_(?:pretrained|checkpoint|model|state|ckpt)|^_?(?:dump|write)_(?:checkpoint|ckpt)",
    ),
    _anywhere(STATE_COPIES, "copies", r"^copy\.py$", r"deepcopy|_reconstruct"),
    _anywhere(PROGRAMS, "subprocess", r"^subprocess\.py$"),
    _anywhere(
        LOGGING,
        "network",
        r"^(?:urllib|http|ssl\.py|socket\.py|ftplib\.py)|^(?:requests|urllib3|httpx|httpcore|boto3|botocore|aiohttp)/",
    ),
    _anywhere(
        LOGGING,
        "disk",
        r"^logging/|^(?:tensorboard|tensorboardX|wandb|mlflow|neptune|comet_ml|clearml|swanlab|tqdm"
        r"|rich|loguru|matplotlib|plotly)/|torch/utils/tensorboard/|^(?:csv|gzip|lzma|bz2|shutil|zipfile|tarfile|sqlite3)",
    ),
    _anywhere(LOGGING, "disk", r"^json/__init__\.py", r"dump"),
    _anywhere(
        EVALUATION,
        "evaluation",
        r"",
        r"^_?(?:run_|do_)?(?:eval|evaluate|evaluation|validate|validation)(?:_|$)|^validation_step",
    ),
    _anywhere(PROFILER, "profiler", r"torch/profiler/|^(?:cProfile|profile|trace|bdb|pdb)\.py"),
    _anywhere(
        COMMUNICATION,
        "data_parallel",
        r"torch/nn/parallel/(?:data_parallel|replicate|scatter_gather|parallel_apply|comm|_functions)\.py",
    ),
    _anywhere(PREPARATION, "main_process", rf"^{_PICTURES}"),
)
"""Tried for all frames, the first rule first."""
INNERMOST: Final = (
    _anywhere(
        COMMUNICATION, "communication", r"torch/distributed/(?!elastic|run|launch|optim/|checkpoint)|deepspeed/comm"
    ),
    _anywhere(
        COMMUNICATION, "communication", r"torch/nn/parallel/distributed\.py", r"_sync|_find|_pre_forward|_post|reduce"
    ),
    _anywhere(DATA, "queue", r"^(?:queue|multiprocessing/queues)\.py", r"^get"),
    StackRule(LOCKS, "lock", LOCK_MODULES, re.compile("")),
    _anywhere(
        SYNC, "synchronize", r"torch/(?:cuda|accelerator)/(?:__init__|streams|_utils)\.py", r"synchronize|^wait$"
    ),
    _anywhere(SYNC, "print", r"torch/_tensor_str\.py"),
    _anywhere(SYNC, "item_per_step", r"torch/_tensor\.py", r"__format__|__repr__|__iter__|__contains__|__array__"),
)
"""Tried for the innermost frame that is not one of Python's wrappers."""


def _source(name: str, kind: str, pattern: str, *, needs_gpu: bool = False) -> SourceRule:
    return SourceRule(name, kind, re.compile(pattern), needs_gpu)


BY_SOURCE: Final = (
    _source(COLLECTION, "gc", r"\bgc\.collect\("),
    _source(SLEEP, "sleep", r"\bsleep\("),
    _source(CHECKPOINT, "checkpoint", r"\b(?:torch\.save|save_file|pickle\.dump)\("),
    _source(EMPTY_CACHE, "empty_cache", r"\bempty_cache\("),
    _source(SYNC, "synchronize", r"\bsynchronize\(", needs_gpu=True),
    _source(
        SYNC,
        "item_per_step",
        r"\.(?:item|tolist|nonzero|unique)\(|\b(?:float|int|bool)\([\w.\[\]]*(?:loss|acc|norm|grad)",
        needs_gpu=True,
    ),
    _source(
        LOGGING,
        "disk",
        r"\b(?:os\.)?(?:fsync|fdatasync|sync)\(|\bprint\(|\.(?:write|writelines|writerow|flush|write_text|write_bytes)\("
        r"|\bjson\.dump\(|\bopen\(|\b(?:np|numpy)\.savez?\(",
    ),
    _source(LOGGING, "disk", r"\b(?:log|logger|logging|writer|wandb|tb)\.\w+\("),
    _source(SYNC, "copies", r"\.(?:cpu|numpy)\(", needs_gpu=True),
    _source(COPIES, "copies", r"\.(?:to|cuda|copy_|pin_memory)\(", needs_gpu=True),
    _source(DATA, "queue", r"\b\w*q(?:ueue)?\.get(?:_nowait)?\("),
    _source(
        LOCKS, "lock", r"\.(?:acquire|result)\(|\.join\(\)|^(?:async )?with [\w.]+:|\b\w*q(?:ueue)?\.put\(|\bselect\("
    ),
    _source(
        COMMUNICATION,
        "communication",
        r"\bdist(?:ributed)?\.(?:all_|broadcast|barrier|reduce|send|recv|gather|scatter)",
    ),
    _source(PROGRAMS, "subprocess", r"\bos\.(?:system|popen|wait)"),
    _source(
        PREPARATION,
        "main_process",
        r"\b(?:np|numpy|torch)\.(?:load|memmap|loadtxt|genfromtxt|fromfile)\(|\bImage\.open\(|\bpickle\.loads?\("
        r"|\.(?:read|readline|readlines|read_bytes|read_text)\(",
    ),
)
"""Tried for the source line of the innermost frame, if that is one of the program or of a library."""
DATA_FUNCTION: Final = re.compile(
    r"^__getitems?__$|^collate|collate(?:_fn)?$|^_?(?:get|load|read|fetch|next|make|prepare|build|sample)_\w*"
    r"(?:batch|data|sample|image|example)"
    r"|^_?(?:decode|augment|tokeni[sz]e|preprocess|transform)(?:_|$)|_transform$"
)
TENSOR_HINT: Final = re.compile(
    r"@|\b(?:torch|F|nn|functional|einops)\.|\bself\.\w+\(|\bmodel\(|\bcriterion\(|\bloss_?f(?:n|unc)?\("
    r"|\.(?:matmul|mm|bmm|einsum|view|reshape|transpose|permute|mean|sum|pow|exp|log|sqrt|softmax|relu|sigmoid|tanh|masked_fill|norm|flatten|chunk|split)\("
)
ARITHMETIC: Final = re.compile(r"(?:return\b|[\w.]+\s*[-+*/@]?=)(?!.*\w\()[\w\s.+\-*/@()]+")
"""A line of operators on names and numbers only; in the forward pass of a module, these are tensors."""
AUTOGRAD: Final = ("torch/autograd/", "torch/_tensor.py")
BACKWARD_FUNCTION: Final = re.compile(r"backward|^grad$")
OPTIMIZER_MODULE: Final = re.compile(
    r"^torch/(?:optim/|amp/grad_scaler|nn/utils/clip_grad)"
    r"|^(?:apex/optimizers|bitsandbytes/optim|deepspeed/ops|timm/optim)/"
)
AROUND: Final = re.compile(
    r"^torch/(?:_compile|_jit_internal|nn/modules/(?:module|container)|autograd/(?:__init__|profiler)|utils/_contextlib"
    r"|_dynamo/\w+)\.py|^contextlib\.py"
)
"""Torch's Python code that calls operators and does no work itself: a large part means that operators are small."""
AROUND_FUNCTIONS: Final = frozenset({"_init_group", "_get_value", "_must_dispatch_in_python", "_verify_batch_size"})
"""Functions of other modules for which the same holds."""
