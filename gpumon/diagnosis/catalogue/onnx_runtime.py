"""Errors of ONNX Runtime with a model or its inputs, and of programs for an older TensorRT."""

from typing import Final

from gpumon.diagnosis.catalogue.export import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_ONNX_RUNTIME: Final = "https://onnxruntime.ai/docs/reference/compatibility.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="onnxruntime-model",
        section=SECTION,
        title="ONNX Runtime cannot load the model",
        summary="The file is newer than this ONNX Runtime, damaged, or uses an operation without implementation.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unsupported model IR version",
                r"Unsupported model IR version: (?P<version>\d{1,3}), max supported IR version: (?P<supported>\d{1,3})",
            ),
            Pattern("*guarantees* support for models stamped", r"only \*guarantees\* support for models stamped with"),
            Pattern(
                "Could not find an implementation for",
                r"NOT_IMPLEMENTED : Could not find an implementation for (?P<operator>[^\n]{1,80})",
            ),
            Pattern("INVALID_PROTOBUF", r": INVALID_PROTOBUF : Load model from (?P<file>[^\n]{1,200}?) failed"),
            Pattern(
                "ONNXRuntimeError",
                r"\[ONNXRuntimeError\] : 10 : INVALID_GRAPH : (?P<reason>[^\n]{1,200})",
            ),
            Pattern(
                "is not a registered function/op",
                r"Fatal error: (?P<operator>[\w.:()-]{1,80}) is not a registered function/op",
            ),
        ),
        causes=(
            "The model was exported with a newer opset than this version of ONNX Runtime knows.",
            "The download is not complete, is a pointer of Git LFS, or the file with the weights (.data) is missing.",
            "The operation comes from another domain, or has no kernel for this type: quantized, float16, double.",
        ),
        fixes=(
            Fix("Upgrade ONNX Runtime.", "pip install --upgrade onnxruntime-gpu"),
            Fix(
                "Or export with an older opset.",
                'torch.onnx.export(model, inputs, "model.onnx", opset_version=17)',
            ),
            Fix(
                "Check the file itself.",
                "import onnx\n\nonnx.checker.check_model('model.onnx')",
            ),
            Fix(
                "Check the size and the start; a pointer of Git LFS is text.",
                "ls -l model.onnx*; head -c 64 model.onnx",
                first_for=("INVALID_PROTOBUF",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_ONNX_RUNTIME,),
        said_by="ONNX Runtime 1.8-1.23",
    ),
    KnownError(
        id="onnxruntime-input",
        section=SECTION,
        title="Input does not fit the ONNX model",
        summary="The name, the type or the shape of an input differs from what the model declares.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Unexpected input data type",
                r"Unexpected input data type\. Actual: \(?(?P<got>\w{1,20}\(\w{1,30}\))\)? {0,2}, expected:"
                r" \(?(?P<expected>\w{1,20}\(\w{1,30}\))",
            ),
            Pattern(
                "Got invalid dimensions for input",
                r"Got invalid dimensions for input: (?P<input>[^\n]{1,80}?) for the following indices",
            ),
            Pattern(
                "Invalid rank for input",
                r"Invalid rank for input: (?P<input>[^\n]{1,80}?) Got: (?P<got>\d{1,3}) Expected:"
                r" (?P<expected>\d{1,3})",
            ),
            Pattern(
                "INVALID_ARGUMENT : Invalid ",
                r"INVALID_ARGUMENT : Invalid (?:Feed )?Input Name:"
                r" ?(?P<input>\S{1,80})",
            ),
            Pattern(
                "are missing from input feed",
                r"Required inputs \((?P<input>[^)\n]{1,160})\) are missing from input"
                r" feed",
            ),
        ),
        causes=(
            "NumPy makes double and int64 of Python numbers; models mostly need float32.",
            "The model was exported with a fixed batch or size, and the input has another one.",
        ),
        fixes=(
            Fix(
                "Show what the model declares.",
                "for item in session.get_inputs():\n    print(item.name, item.type, item.shape)",
            ),
            Fix("Convert the input.", "image = image.astype(np.float32)"),
            Fix(
                "Export with dimensions that may vary.",
                'torch.onnx.export(model, inputs, "model.onnx", input_names=["input"],'
                ' dynamic_axes={"input": {0: "batch"}})',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://onnxruntime.ai/docs/api/python/api_summary.html",),
        said_by="ONNX Runtime 1.8-1.23",
    ),
    KnownError(
        id="tensorrt-api",
        section=SECTION,
        title="Program was written for another TensorRT",
        summary="TensorRT 10 removed functions of TensorRT 8: bindings, the workspace size, implicit batches.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "' object has no attribute '",
                r"'tensorrt(?:_\w{1,20})?(?:\.\w{1,20}){0,2}\.(?P<object>I\w{3,40}|Builder|Logger|Runtime)' object has"
                r" no attribute '(?P<name>\w{1,60})'",
            ),
        ),
        causes=(
            "The program calls num_bindings, get_binding_shape(), max_workspace_size or build_cuda_engine().",
            "The package tensorrt is installed without its libraries, or a folder named tensorrt hides it.",
        ),
        fixes=(
            Fix(
                "Use the calls of TensorRT 10.",
                "names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]\n"
                "config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, 4 << 30)\n"
                "engine = builder.build_serialized_network(network, config)",
            ),
            Fix("Or install the version for which it was written.", "pip install 'tensorrt<10'"),
            Fix(
                "Show which one is imported.",
                "python -c 'import tensorrt; print(tensorrt.__version__, tensorrt.__file__)'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.nvidia.com/deeplearning/tensorrt/latest/api/migration-guide.html",),
        said_by="TensorRT 8.6-10.13",
    ),
    KnownError(
        id="tensorrt-no-engine",
        section=SECTION,
        title="TensorRT made no engine",
        summary="The engine was not built or not read, so that the program goes on with None; the reason is above.",
        context=ContextState.ALIVE,
        patterns=(
            literal("'NoneType' object has no attribute 'create_execution_context'"),
            literal("'NoneType' object has no attribute 'serialize'"),
            literal("'NoneType' object has no attribute 'num_bindings'"),
            literal("'NoneType' object has no attribute 'num_io_tensors'"),
        ),
        causes=(
            "The engine was built by another version of TensorRT, or on another GPU.",
            "The model could not be converted, or GPU memory was not enough while building.",
        ),
        fixes=(
            Fix("Read the lines of TensorRT above this error; [E] marks them.", "grep -n -F '[E]' build.log"),
            Fix("Build the engine again on this GPU.", "trtexec --onnx=model.onnx --saveEngine=model.plan"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/troubleshooting.html",),
        said_by="TensorRT 7-10",
        is_echo=True,
    ),
    KnownError(
        id="onnxruntime-file",
        section=SECTION,
        title="ONNX Runtime does not find a file of the model",
        summary="The file of the model, or the file next to it that contains the weights, is not at this path.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ONNXRuntimeError",
                r"\[ONNXRuntimeError\] : 3 : NO_?SUCHFILE : (?P<reason>[^\n]{1,200})",
            ),
            Pattern(
                "Deserialize tensor ", r"Deserialize tensor (?P<tensor>[^\n]{1,120}?) failed\.(?P<reason>[^\n]{1,120})"
            ),
            Pattern(
                "External data path does not exist", r"External data path does not exist: ?(?P<reason>[^\n]{1,200})"
            ),
            Pattern(
                "External data path validation failed",
                r"External data path validation failed for initializer:? (?P<reason>[^\n]{1,200})",
            ),
        ),
        causes=(
            "The path is relative, and the program was started from another folder.",
            "The download failed or was moved; an export of more than 2 GB has its weights in a second file (.data).",
        ),
        fixes=(
            Fix(
                "Check the path, from the folder in which the program runs; .data files must be next to the model.",
                "ls -l model.onnx*",
            ),
            Fix(
                "Name the model by its full path.",
                "session = onnxruntime.InferenceSession(str(pathlib.Path(__file__).parent / 'model.onnx'))",
            ),
            Fix("Download or export the model again, with all of its files."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://onnxruntime.ai/docs/tutorials/web/large-models.html",),
        said_by="ONNX Runtime 1.8-1.23",
    ),
)
