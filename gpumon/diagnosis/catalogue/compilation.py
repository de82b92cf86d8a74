"""Errors of torch.compile and of CUDA graphs that it records.

The wordings are from the sources of PyTorch 2.13, and from reports of 2.0 and later.
"""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "torch.compile"

_GRAPH_TREES: Final = "https://docs.pytorch.org/docs/stable/torch.compiler_cudagraph_trees.html"

_WITHOUT: Final = Fix("Check that the program runs without compilation.", "TORCHDYNAMO_DISABLE=1 python train.py")
_LOGS: Final = Fix(
    "Show where the compiler fails.", "TORCHDYNAMO_VERBOSE=1 TORCH_LOGS=+dynamo,+inductor python train.py"
)
_EXCLUDE: Final = Fix(
    "Exclude the function that cannot be compiled.",
    "@torch.compiler.disable\ndef prepare(batch):\n    return tokenize(batch)",
)

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="compile-backend",
        section=SECTION,
        title="torch.compile: the compiler failed",
        summary="The model was traced, and the backend could not compile it; the line after this one is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "Tried to erase Node ",
                r"Tried to erase Node (?P<node>\w{1,60}) but it still had (?P<users>\d{1,6}) users in the graph",
            ),
            Pattern(
                "BackendCompilerFailed: backend=", r"BackendCompilerFailed: backend='(?P<backend>\w{1,40})' raised"
            ),
            Pattern(
                "_inductor.exc.InductorError:",
                r"_inductor\.exc\.InductorError: (?!InvalidCxxCompiler|CalledProcessError: Command|RuntimeError:"
                r" Compiler|GPUTooOldForTriton|TritonMissing|[^\n]{0,40}NoValidChoices)(?P<reason>[^\n]{1,160})",
            ),
            Pattern(
                "LoweringException:",
                r"(?:exc\.|raised:|^ {0,12})LoweringException: (?!NoValidChoices)(?P<reason>[^\n]{1,160})",
            ),
            Pattern("CppCompileError:", r"CppCompileError: C\+\+ compile error"),
            Pattern("InternalTorchDynamoError:", r"InternalTorchDynamoError: (?P<reason>[^\n]{1,160})"),
        ),
        causes=(
            "Triton, a C++ compiler or the Python headers are missing.",
            "PyTorch's compiler has a bug with this operator, type or shape.",
            "The cache contains files of another version.",
        ),
        fixes=(
            Fix(
                "The compiler lost a symbol of a size that changes: upgrade PyTorch, or compile for fixed sizes.",
                "model = torch.compile(model, dynamic=False)",
                first_for=("shape symbols",),
                hidden_otherwise=True,
            ),
            _WITHOUT,
            Fix("Delete the compiler's cache, and try again.", 'rm -rf "/tmp/torchinductor_$USER" ~/.triton/cache'),
            Fix(
                "Find out which stage fails: with eager only tracing, with aot_eager also the backward pass.",
                'model = torch.compile(model, backend="aot_eager")',
            ),
            Fix("Upgrade PyTorch; many such errors are fixed.", "pip install --upgrade torch"),
            _LOGS,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_COMPILE,),
        is_echo=True,
    ),
    KnownError(
        id="compile-unsupported",
        section=SECTION,
        title="torch.compile: code that cannot be traced",
        summary="The program demands one graph, and this Python code cannot become part of a graph.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("_dynamo.exc.Unsupported:", r"_dynamo\.exc\.Unsupported: (?P<reason>[^\n]{1,160})"),
            literal("Detected that you are using FX to symbolically trace a dynamo-optimized function"),
            Pattern("_dynamo.exc.UserError:", r"_dynamo\.exc\.UserError: (?P<reason>[^\n]{1,160})"),
        ),
        causes=(
            "A branch depends on a tensor's value, or the code prints, reads files or calls a C extension.",
            "The argument fullgraph=True, torch.export or a CUDA graph permits no break of the graph.",
        ),
        fixes=(
            Fix("Allow breaks of the graph.", "model = torch.compile(model, fullgraph=False)"),
            Fix("Replace a branch on a tensor's value.", "output = torch.where(mask, first, second)"),
            _EXCLUDE,
            Fix("List every break and its reason.", "TORCH_LOGS=graph_breaks python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_COMPILE,),
        said_by="torch 2.6-2.13, vLLM 0.19, transformers 4.57-5.0",
    ),
    KnownError(
        id="compile-tracing",
        section=SECTION,
        title="torch.compile: an operation failed while tracing",
        summary="An operation failed with the shapes and types of its inputs; it often fails without compilation too.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "_dynamo.exc.TorchRuntimeError:",
                r"_dynamo\.exc\.TorchRuntimeError: (?P<reason>(?!Failed running call)[^\n]{1,160})",
            ),
            Pattern(
                "Failed running call_",
                r"TorchRuntimeError: (?P<reason>Failed running call_(?:function|method|module) [^\n]{1,120})",
            ),
            Pattern(
                "Dynamo failed to run FX node with fake tensors", r"Dynamo failed to run FX node with fake tensors"
            ),
        ),
        causes=("Shapes, types or devices do not fit together.", "A custom operator has no fake implementation."),
        fixes=(
            Fix("Run without compilation, and fix the error that appears.", "TORCHDYNAMO_DISABLE=1 python train.py"),
            Fix("If it runs without compilation, exclude the function.", "prepare = torch.compiler.disable(prepare)"),
            _LOGS,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_COMPILE,),
        said_by="torch 2.0-2.13",
        is_echo=True,
    ),
    KnownError(
        id="recompile-limit",
        section=SECTION,
        title="torch.compile: too many recompilations",
        summary="A function was compiled again for new shapes or values until the limit was reached.",
        context=ContextState.ALIVE,
        patterns=(Pattern("FailOnRecompileLimitHit", r"\bFailOnRecompileLimitHit\b"),),
        causes=(
            "Each batch has another length.",
            "An argument is a Python number that changes, or a module is one of many of the same class.",
        ),
        fixes=(
            Fix("Show what changes.", "TORCH_LOGS=recompiles python train.py"),
            Fix("Compile once for all sizes.", "model = torch.compile(model, dynamic=True)"),
            Fix("Pad batches to few different lengths."),
            Fix("Or raise the limit.", "torch._dynamo.config.recompile_limit = 64"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_COMPILE,),
        said_by="torch 2.6-2.13, SGLang 0.5",
    ),
    KnownError(
        id="graph-overwritten",
        section=SECTION,
        title="Output of a CUDA graph was overwritten",
        summary="A compiled model with CUDA graphs writes every result to the same memory; an older one was used.",
        context=ContextState.ALIVE,
        patterns=(
            literal("accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"),
            literal("Offset increment outside graph capture encountered unexpectedly"),
        ),
        causes=(
            'The mode "reduce-overhead" or "max-autotune" uses CUDA graphs, and a result is kept over the next call.',
            "Offset increment: a random generator that a graph uses is also used outside of it.",
        ),
        fixes=(
            Fix("Announce each step before the model is called.", "torch.compiler.cudagraph_mark_step_begin()"),
            Fix("Copy results that are kept.", "output = model(batch).clone()"),
            Fix("Or compile without CUDA graphs.", 'model = torch.compile(model, mode="max-autotune-no-cudagraphs")'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_GRAPH_TREES,),
        said_by="torch 2.6-2.13",
    ),
    KnownError(
        id="compile-python",
        section=SECTION,
        title="torch.compile does not support this Python or system",
        summary="This version of PyTorch cannot compile under this Python version or operating system.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "not supported on Python 3.",
                r"(?:Dynamo is|torch\.compile is) not supported on Python 3\.(?P<minor>\d{1,2})\+",
            ),
            Pattern(
                "not yet supported for torch.compile",
                r"(?:Windows|Python 3\.\d{1,2}\+) not yet supported for torch\.compile",
            ),
            literal("torch.compile is not supported on Python < 3.13.3 built with GIL disabled"),
        ),
        causes=("PyTorch is older than this Python: Python 3.12 needs PyTorch 2.4, 3.13 needs 2.6, 3.14 needs 2.10.",),
        fixes=(
            Fix("Upgrade PyTorch.", "pip install --upgrade torch"),
            Fix("Or disable compilation.", "TORCHDYNAMO_DISABLE=1 python train.py"),
            Fix("Or use an older Python.", "conda create -n fresh python=3.12 && conda activate fresh"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_COMPILE,),
        said_by="torch 2.0-2.13",
    ),
    KnownError(
        id="graph-pool",
        section=SECTION,
        title="Memory of a CUDA graph is in an unexpected state",
        summary="The memory of a CUDA graph is not in the state that PyTorch expects: an error of PyTorch.",
        context=ContextState.UNKNOWN,
        patterns=(
            literal("curr_block->next == nullptr"),
            literal("in the cudagraph pool not tracked as outputs"),
            literal("These storage data ptrs are not allocated in pool"),
            Pattern(
                "->use_count > 0", r"->use_count > 0 ?INTERNAL ASSERT FAILED at \"?[^\"\n]{0,200}CUDACachingAllocator"
            ),
            Pattern(
                "inserted INTERNAL ASSERT FAILED",
                r"\binserted INTERNAL ASSERT FAILED at \"?[^\"\n]{0,200}CUDACachingAllocator",
            ),
            literal("head->prev == nullptr && head->pool != nullptr"),
        ),
        causes=(
            "An operator of an extension, or expandable_segments, does not work with recorded CUDA graphs.",
            "Many input sizes: each records a separate graph in the same memory.",
        ),
        fixes=(
            Fix("Compile without CUDA graphs.", 'model = torch.compile(model, mode="max-autotune-no-cudagraphs")'),
            Fix(
                "For vLLM, run without CUDA graphs.",
                "vllm serve MODEL --enforce-eager",
                first_for=("use_count",),
            ),
            Fix(
                "Do not record graphs for inputs of changing size.",
                "import torch._inductor.config\n\ntorch._inductor.config.triton.cudagraph_skip_dynamic_graphs = True",
            ),
            Fix("Run without expandable_segments.", "PYTORCH_ALLOC_CONF=expandable_segments:False python train.py"),
            Fix("Upgrade PyTorch; several such errors are fixed.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_GRAPH_TREES, "https://github.com/pytorch/pytorch/issues/140419"),
        said_by="torch 2.2-2.13",
    ),
    KnownError(
        id="no-kernel-choice",
        section=SECTION,
        title="torch.compile: no kernel remains to choose from",
        summary="The compiler tries several kernels for a product or for attention, and none of them works here.",
        context=ContextState.ALIVE,
        patterns=(Pattern("NoValidChoicesError", r"NoValidChoicesError: (?P<reason>[^\n]{1,160})"),),
        causes=(
            "Each kernel of flex_attention needs more shared memory than the GPU has, as on GeForce cards or T4.",
            "The backends in max_autotune_gemm_backends exclude the kernel that would work.",
            "Changing sizes, or a version of PyTorch that does not know them in flex_attention.",
        ),
        fixes=(
            Fix(
                "Let flex_attention use smaller blocks and fewer stages.",
                'output = flex_attention(q, k, v, kernel_options={"BLOCK_M": 32, "BLOCK_N": 32, "num_stages": 1})',
            ),
            Fix(
                "For matrix products, permit PyTorch's kernels too.",
                "TORCHINDUCTOR_MAX_AUTOTUNE_GEMM_BACKENDS=ATEN,TRITON python train.py",
            ),
            Fix("Compile for fixed sizes.", "attention = torch.compile(flex_attention, dynamic=False)"),
            Fix("Upgrade PyTorch; several such errors are fixed.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Show why each kernel failed.", 'TORCH_LOGS="+inductor" python train.py'),),
        sources=(
            "https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html",
            "https://github.com/pytorch/pytorch/issues/133254",
        ),
        said_by="torch 2.5-2.13",
    ),
    KnownError(
        id="compile-strides",
        section=SECTION,
        title="torch.compile: a tensor has another layout than the compiled code expects",
        summary="Compiled code checks the sizes and strides of what it gets, and these are those of another batch or"
        " operator.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "expected size ",
                r"expected size \d{1,12}==\d{1,12}, stride \d{1,15}==\d{1,15} at dim=(?P<dimension>\d)",
            ),
        ),
        causes=(
            "The sizes differ from batch to batch, and a stride was kept from an earlier one.",
            "The fake kernel of a custom operator describes another layout than the operator returns.",
        ),
        fixes=(
            Fix("Compile for changing sizes, with a newer PyTorch.", "model = torch.compile(model, dynamic=True)"),
            Fix("Or pad all batches to one length, so that the sizes do not change."),
            _WITHOUT,
            Fix(
                "In a custom operator, return the same strides from the fake kernel.",
                "torch.library.opcheck(operator, arguments)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/unslothai/unsloth/issues/3900",),
        said_by="torch 2.13",
    ),
)
