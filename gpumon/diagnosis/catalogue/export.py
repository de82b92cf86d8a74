"""Errors of exporting a model: ONNX, TorchScript, torch.export, and models compiled ahead of time."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, cuda_error, literal, name
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Export"

_ONNX: Final = "https://docs.pytorch.org/docs/stable/onnx.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="onnx-export",
        section=SECTION,
        title="Model cannot be exported to ONNX",
        summary="An operation of the model has no form in this version of ONNX, or could not be traced.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Exporting the operator ",
                r"Exporting the operator '?(?P<operator>[\w:.]{1,80})'? to ONNX opset version (?P<opset>\d{1,2})"
                r" is not supported",
            ),
            Pattern(
                "Unsupported: ONNX export of operator",
                r"Unsupported: ONNX export of operator (?P<operator>[^\n,]{1,60})",
            ),
            literal("Failed to export the model with torch.export"),
            literal("Failed to export the model to ONNX"),
            Pattern(
                "torch.onnx.errors.",
                r"torch\.onnx\.errors\.(?P<error>(?!UnsupportedOperatorError|SymbolicValueError)\w{4,40}Error)",
            ),
            Pattern(
                "Failed to convert the exported program to an ONNX model",
                r"Failed to convert the exported program to an ONNX model",
            ),
            Pattern("No ONNX function found for", r"No ONNX function found for (?P<operator>[^\n]{1,80})"),
        ),
        causes=(
            "The opset is too old for the operation.",
            "The model depends on values of tensors: branches, loops, sizes that are not constant.",
            "A custom kernel or a quantized layer has no form in ONNX.",
        ),
        fixes=(
            Fix(
                "Use a newer opset and the exporter that is based on torch.export.",
                'torch.onnx.export(model, inputs, "model.onnx", dynamo=True, opset_version=18)',
            ),
            Fix(
                "If the exporter that is based on torch.export fails, use the older one.",
                'torch.onnx.export(model, inputs, "model.onnx", dynamo=False)',
                first_for=("TorchExportError", "ConversionError", "DispatchError", "OnnxExporterError"),
            ),
            Fix(
                "Write a report that names the operations.",
                'torch.onnx.export(model, inputs, "model.onnx", dynamo=True, report=True)',
            ),
            Fix(
                "Export with the attention that ONNX knows.",
                'model = AutoModel.from_pretrained(name, attn_implementation="eager")',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_ONNX,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="torchscript",
        section=SECTION,
        title="TorchScript could not compile the model",
        summary="The model uses Python or operators that TorchScript does not know.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("torch.jit.frontend.", r"torch\.jit\.frontend\.(?P<error>NotSupportedError|UnsupportedNodeError)"),
            Pattern("Tracer cannot infer type of", r"Tracer cannot infer type of (?P<value>[^\n]{1,60})"),
            Pattern(
                "Tried to instantiate class '__torch__.",
                r"Tried to instantiate class '(?P<value>__torch__\.[\w.]{1,120})'",
            ),
            Pattern(
                "Could not export Python function call '",
                r"Could not export Python function call '(?P<value>\w{1,80})'",
            ),
            Pattern(
                " was annotated as having type ",
                r"(?P<value>Return value|Variable '\w{1,60}') was annotated as having type \w[^\n]{0,80} but is",
            ),
            Pattern("Unknown builtin op:", r"Unknown builtin op: (?P<operator>[\w:]{1,80})"),
        ),
        causes=(
            "The model has an argument without a type, a dynamic attribute, or another construct of Python.",
            "Unknown builtin op: the library that registers it, such as torchvision, was not imported or linked.",
            "The traced model returns a dictionary or an object.",
        ),
        fixes=(
            Fix("Run the same input without TorchScript, to read the plain error.", "PYTORCH_JIT=0 python train.py"),
            Fix(
                "Use torch.compile or torch.export: TorchScript is no longer developed.",
                "program = torch.export.export(model, (example,))",
            ),
            Fix(
                "Correct the annotation: it must be the type that is returned in every case.",
                "def forward(self, batch: torch.Tensor) -> torch.Tensor:\n    return self.output(batch)[0]",
                first_for=("was annotated as having type",),
            ),
            Fix(
                "Let the tracer accept dictionaries.",
                "traced = torch.jit.trace(model, example, strict=False)",
                first_for=("annot infer type",),
            ),
            Fix(
                "Import the library that registers the operation before the model is loaded.",
                "import torchvision",
                first_for=("Unknown builtin op", "Ensure that it is registered"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/jit.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="export-dynamic",
        section=SECTION,
        title="Shape or branch depends on data",
        summary="The compiler or exporter must decide about a size that only the values of a tensor give.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Could not guard on data-dependent expression",
                r"Could not guard on data-dependent expression (?P<expression>[^\n]{1,80})",
            ),
            Pattern(
                "Could not extract specialized integer from data-dependent",
                r"Could not extract specialized integer from data-dependent expression (?P<expression>[^\n]{1,80})",
            ),
            literal("to get a value out of symbolic int/float whose value is data-dependent"),
            Pattern("Constraints violated (", r"Constraints violated \((?P<dimensions>[^)\n]{1,120})\)"),
        ),
        causes=(
            "The code uses item(), tolist(), nonzero() or a mask as a size or in an if.",
            "A dimension that was declared dynamic is fixed by the code, or the reverse.",
        ),
        fixes=(
            Fix("State what holds for the value.", "length = lengths.item()\ntorch._check(length >= 1)"),
            Fix("Replace the if with torch.where or torch.cond.", "output = torch.where(mask, first, second)"),
            Fix(
                "Keep this function outside of the graph.",
                "@torch.compiler.disable\ndef select(values, mask):\n    return values[mask]",
            ),
            Fix(
                "Let the exporter decide which dimensions are dynamic.",
                "program = torch.export.export(model, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))",
                first_for=("Constraints violated",),
            ),
        ),
        see_more=(Fix("Log how the sizes were decided.", 'TORCH_LOGS="+dynamic" python train.py'),),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/export.html",),
        said_by="torch 2.1-2.13",
    ),
    KnownError(
        id="tensorrt-parse",
        section=SECTION,
        title="TensorRT cannot read the ONNX model",
        summary="TensorRT's parser does not know an operation of the model, or how it is used here.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "UNSUPPORTED_NODE",
                r"In node -?\d{1,6}[^\n]{0,120}?UNSUPPORTED_NODE",
            ),
            Pattern("Failed to parse the ONNX file", r"Failed to parse the ONNX file"),
            Pattern("Failed to parse onnx file", r"\[E\] Failed to parse onnx file"),
            Pattern("MODEL_DESERIALIZE_FAILED", r"MODEL_DESERIALIZE_FAILED: Assertion failed"),
            Pattern("In function importFallbackPluginImporter", r"In function importFallbackPluginImporter"),
            Pattern("ModelImporter.cpp:", r"ModelImporter\.cpp:\d{1,5}: --- Begin node ---"),
        ),
        causes=(
            (
                "The operation is newer than this TensorRT, or has no implementation: sequences, strings, NonZero,"
                " custom ones."
            ),
            "The operation needs a plugin that was not loaded.",
            (
                "The model was exported with dynamic shapes or a type (int64, double) that TensorRT does not support"
                " there."
            ),
        ),
        fixes=(
            Fix(
                "Simplify the model: constants are folded, and many shapes become fixed.",
                "python -m onnxsim model.onnx simple.onnx",
            ),
            Fix("Upgrade TensorRT.", "pip install --upgrade tensorrt"),
            Fix(
                "Let ONNX Runtime run what TensorRT does not know.",
                "session = onnxruntime.InferenceSession(path, providers=['TensorrtExecutionProvider',"
                " 'CUDAExecutionProvider'])",
            ),
            Fix(
                "If the file cannot be parsed at all, check that it is complete and no pointer of Git LFS.",
                "ls -l model.onnx; head -c 64 model.onnx",
                first_for=("MODEL_DESERIALIZE_FAILED", "ParseFromCodedStream"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/onnx/onnx-tensorrt",),
        said_by="TensorRT 7-10",
    ),
    KnownError(
        id="kernel-file-missing",
        section=SECTION,
        title="File with the code of a kernel is missing",
        summary="The program loads its kernels from files, and one of them is not where it is looked for.",
        context=ContextState.ALIVE,
        patterns=(cuda_error("file not found"), name("CUDA_ERROR_FILE_NOT_FOUND")),
        causes=(
            "A model of AOTInductor was copied without the .cubin files, whose paths are written into the library.",
            "The cache of a compiler was deleted while the program ran, or is on another host.",
        ),
        fixes=(
            Fix(
                "Compile the model into one package, which contains the files.",
                'torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")\n'
                'model = torch._inductor.aoti_load_package("model.pt2")',
            ),
            Fix("Or copy the .cubin files to the same paths, such as those below /tmp/torchinductor_USER."),
            Fix("Or compile again on this host."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/torch.compiler_aot_inductor.html",
            "https://github.com/pytorch/pytorch/issues/140055",
        ),
        said_by="torch 2.3-2.13",
    ),
    KnownError(
        id="aoti-runner",
        section=SECTION,
        title="Model that was compiled ahead of time failed",
        summary="A model of AOTInductor could not be loaded or run; a line above this one states the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "container_handle_",
                r"(?P<call>run_func_|create_func_)\( ?&?container_handle_[^\n]{0,256}?API call failed at",
            ),
            Pattern(
                "AOTInductorModelContainer",
                r"(?P<call>AOTInductorModelContainer\w{1,30})\([^\n]{0,256}?API call failed",
            ),
        ),
        causes=(
            "The model was compiled for another GPU, a newer driver, or another version of PyTorch.",
            "An input differs from those of the export: in number, type, shape or device.",
            "The files of the kernels are missing.",
        ),
        fixes=(
            Fix("Read the line with `Error:` above this message."),
            Fix(
                "Compile on a host with the same GPU and the same PyTorch, into one package.",
                'torch._inductor.aoti_compile_and_package(exported, package_path="model.pt2")',
            ),
            Fix(
                "Compile with checks of the inputs, which name the one that differs.",
                "AOTI_RUNTIME_CHECK_INPUTS=1 python export.py",
            ),
            Fix(
                "Run the exported model without compilation, to see PyTorch's message.",
                "output = exported.module()(*inputs)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/torch.compiler_aot_inductor.html",),
        said_by="torch 2.2-2.13",
        is_echo=True,
    ),
    KnownError(
        id="torchscript-run",
        section=SECTION,
        title="Model in TorchScript failed while it ran",
        summary="TorchScript shows its code first; the last `RuntimeError:` below it states what failed.",
        context=ContextState.UNKNOWN,
        patterns=(
            literal("The following operation failed in the TorchScript interpreter"),
            Pattern(
                "torch/csrc/jit/codegen/cuda/",
                r"INTERNAL ASSERT FAILED at \"?[^\"\n]{0,200}torch/csrc/jit/codegen/cuda/(?P<file>\w{1,40})",
            ),
        ),
        causes=(
            "The inputs have another type, shape or device than the saved model expects.",
            "The compiler for the GPU in TorchScript, nvFuser or NNC, failed: it knows no newer GPUs or CUDA.",
        ),
        fixes=(
            Fix("Read the last `RuntimeError:` below this message."),
            Fix(
                "Run without fusing operators on the GPU.",
                "torch._C._jit_override_can_fuse_on_gpu(False)\ntorch._C._jit_set_texpr_fuser_enabled(False)",
            ),
            Fix("In PyTorch 1.12 to 2.1, let nvFuser fall back.", "PYTORCH_NVFUSER_DISABLE=fallback python train.py"),
            Fix("Run the code without TorchScript, to read the plain error.", "PYTORCH_JIT=0 python train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/jit.html",
            "https://github.com/pytorch/pytorch/issues/80911",
        ),
        said_by="torch 1.6-2.13",
        is_echo=True,
    ),
)
