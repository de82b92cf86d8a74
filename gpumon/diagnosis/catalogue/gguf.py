"""Errors of loading GGUF files: in llama.cpp, the programs that contain it, and the nodes of ComfyUI."""

from typing import Final

from gpumon.diagnosis.catalogue.inference import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_UPDATE_PYTHON: Final = Fix(
    "Upgrade the Python package, built with CUDA.",
    'CMAKE_ARGS="-DGGML_CUDA=on" pip install --upgrade --force-reinstall --no-cache-dir llama-cpp-python',
)
_LOADER: Final = "https://github.com/ggml-org/llama.cpp/blob/master/src/llama-model-loader.cpp"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="gguf-unsupported",
        section=SECTION,
        title="GGUF file is not supported by this version",
        summary="The program that reads the GGUF file does not know the architecture, or another part, of this model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("unknown model architecture: '", r"unknown model architecture: '(?P<model>[^'\n]{1,60})'"),
            Pattern("unknown pre-tokenizer type: '", r"unknown pre-tokenizer type: '(?P<tokenizer>[^'\n]{1,60})'"),
            Pattern(
                "architecture type in GGUF file",
                r"Unexpected (?:text model )?architecture type in GGUF file(?:, expected one of [^\n]{1,160}? but"
                r" got)?:?"
                r" ['\"](?P<model>[^'\"\n]{1,60})",
            ),
            Pattern(
                "GGUF model with architecture ",
                r"GGUF model with architecture (?P<model>[\w.-]{1,60}) is not supported",
            ),
            literal("This gguf file is incompatible with llama.cpp"),
            Pattern("hf-to-gguf:Model ", r"hf-to-gguf:Model (?P<model>\w{1,80}) is not supported"),
            Pattern("BPE pre-tokenizer was not recognized", r"BPE pre-tokenizer was not recognized"),
            Pattern(
                "wrong number of tensors; expected ",
                r"wrong number of tensors; expected (?P<expected>\d{1,6}), got (?P<got>\d{1,6})",
            ),
            Pattern(
                "error loading model: missing tensor '",
                r"error loading model: missing tensor '(?P<tensor>[\w.-]{1,120})'",
            ),
            Pattern("check_tensor_dims: tensor '", r"check_tensor_dims: tensor '(?P<tensor>[\w.-]{1,120})' not found"),
            Pattern("key not found in model: ", r"key not found in model: (?P<key>[\w.-]{1,120})"),
            Pattern(
                "has wrong shape; expected",
                r"tensor '(?P<tensor>[\w.-]{1,120})' has wrong shape; expected (?P<expected>[\d, ]{1,60})",
            ),
            Pattern("has invalid ggml type ", r"tensor '[^'\n]{1,120}' has invalid ggml type (?P<type>\d{1,9})"),
            Pattern(
                "requires both PyTorch and GGUF",
                r"Loading a GGUF checkpoint in PyTorch, requires both PyTorch and GGUF",
            ),
            Pattern("Unknown model architecture!", r"(?:Message:\*{0,2}|Error:) Unknown model architecture!"),
        ),
        causes=(
            (
                "The model is newer than the llama.cpp in this program; Ollama, LM Studio and llama-cpp-python contain"
                " one."
            ),
            "The file is of another kind than its loader: a text encoder, a vision part (mmproj) or a diffusion model.",
            "The file was made by a changed converter, whose architecture only its own program knows.",
        ),
        fixes=(
            Fix(
                "Update Ollama, LM Studio or llama.cpp itself.",
                "bash -c 'curl -fsSL https://ollama.com/install.sh | sh'",
            ),
            _UPDATE_PYTHON,
            Fix(
                "In ComfyUI, update the node, and load a text encoder with the loader for CLIP.",
                "git -C ComfyUI/custom_nodes/ComfyUI-GGUF pull",
                first_for=("Unexpected architecture type", "Unknown model architecture!"),
            ),
            Fix("Or download a GGUF file that was made for this program."),
            Fix(
                "For transformers, upgrade it, or load the model in its own format.",
                "pip install --upgrade transformers gguf",
                first_for=("GGUF model with architecture", "GGUF checkpoint"),
            ),
            Fix(
                "Update llama.cpp, whose script converts models, and its requirements.",
                "git -C llama.cpp pull && pip install -r llama.cpp/requirements.txt",
                first_for=(
                    "hf-to-gguf",
                    "get_vocab_base_pre",
                ),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LOADER, "https://github.com/city96/ComfyUI-GGUF/blob/main/loader.py"),
        said_by="llama.cpp of 2023-2026, ComfyUI-GGUF of 2024-2026, transformers 4.41-5.0",
    ),
    KnownError(
        id="ollama-client",
        section=SECTION,
        title="Ollama: the server or the model is not there",
        summary="The command reached no server, or the model could not be pulled completely.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "could not connect to ollama",
                r"could not connect to ollama (?:app|server), (?:is it running\?|run 'ollama"
                r" serve')",
            ),
            Pattern(
                "digest mismatch, file must be downloaded again",
                r"digest mismatch, file must be downloaded"
                r" again",
            ),
            Pattern("Error: pull model manifest: ", r"Error: pull model manifest: (?P<reason>[^\n]{1,120})"),
            Pattern("max retries exceeded: ", r"Error: max retries exceeded: (?P<reason>[^\n]{1,120})"),
        ),
        causes=(
            "The service does not run, or listens on another address, as in a container.",
            "The name of the model is wrong, or needs a newer Ollama.",
            "The download was cut off, or the disk is full.",
        ),
        fixes=(
            Fix("Start the server.", "ollama serve"),
            Fix("Name its address, if it runs elsewhere.", "OLLAMA_HOST=http://HOST:11434 ollama list"),
            Fix(
                "Pull again; what is there already is kept.",
                "ollama pull NAME",
                first_for=("digest mismatch", "manifest", "max retries"),
            ),
            Fix("Check the disk.", "df -h /usr/share/ollama ~/.ollama"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/ollama/ollama/blob/main/docs/troubleshooting.md",),
        said_by="Ollama 0.1-0.12",
    ),
    KnownError(
        id="gguf-damaged",
        section=SECTION,
        title="GGUF file is damaged or incomplete",
        summary="The file is no GGUF file, or its end is missing: the download was interrupted, or is a page of text.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("invalid magic characters", r"invalid magic characters:? '(?P<magic>[^\n]{0,20}?)'"),
            literal("data is not within the file bounds, model is corrupted or incomplete"),
            Pattern("GGUF magic invalid", r"GGUF magic invalid"),
            Pattern("gguf_init_from_file", r"gguf_init_from_file\w{0,6}: failed to (?P<step>read [\w -]{3,40})"),
        ),
        causes=(
            "The download was interrupted, or the disk was full.",
            "The repository was cloned without LFS, so that the file is a pointer of some lines.",
            "The link was that of a web page, or the file has another format, such as safetensors.",
        ),
        fixes=(
            Fix(
                "Compare the size with that on the page of the model, and look at the start.",
                "ls -l MODEL.gguf; head -c 100 MODEL.gguf",
            ),
            Fix("Download again.", "hf download NAME/MODEL MODEL.gguf --local-dir . --force-download"),
            Fix("In Ollama, remove the model and pull it again.", "ollama rm MODEL"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LOADER, "https://github.com/ggml-org/llama.cpp/blob/master/ggml/src/gguf.cpp"),
        said_by="llama.cpp of 2023-2026, gguf 0.6-0.17",
    ),
    KnownError(
        id="llama-load",
        section=SECTION,
        title="llama.cpp: model or context was not loaded",
        summary="The model could not be loaded; llama.cpp prints the reason above this line, if it may print.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("Failed to load model from file", r"Failed to load model from file: (?P<file>[^\n]{1,200}?\.gguf)"),
            Pattern("Failed to create llama_", r"ValueError: Failed to create (?P<part>llama_(?:context|batch))"),
            Pattern(
                "failed to create context with model", r"failed to create context with model '(?P<file>[^'\n]{1,160})'"
            ),
            Pattern(": failed to load model", r"llama_\w{4,34}: failed to load model"),
            Pattern(
                "error loading model: ",
                r"error loading model: (?P<reason>(?:read error|failed to open|invalid split|illegal split|mmap"
                r" failed)[^\n]{0,120})",
            ),
            Pattern(
                "unable to load model: ",
                r"Error: (?:500 Internal Server Error: )?unable to load model: (?P<file>\S{1,160})",
            ),
            Pattern("model failed to load, this may be due to", r"model failed to load, this may be due to resource"),
            Pattern("Could not load text model: ", r"Could not load text model: (?P<file>[^\n]{1,200}?\.gguf)"),
        ),
        causes=(
            "The version of llama.cpp is older than the model.",
            "GPU memory does not hold the layers, or the context.",
            "The file is damaged, or its path is wrong.",
        ),
        fixes=(
            Fix("Let llama-cpp-python print the reason.", 'llm = Llama(model_path="MODEL.gguf", verbose=True)'),
            _UPDATE_PYTHON,
            Fix(
                "Test with fewer layers on the GPU and a short context.",
                'llm = Llama(model_path="MODEL.gguf", n_gpu_layers=10, n_ctx=2048)',
            ),
            Fix(
                "Update Ollama, which brings its own llama.cpp; then read the log of its server.",
                "journalctl -u ollama --no-pager -n 100",
                first_for=("blobs", "due to resource"),
            ),
            Fix(
                "Start KoboldCpp from a console, read the lines above this one, and try fewer layers, a short context.",
                "python koboldcpp.py --model MODEL.gguf --gpulayers 20 --contextsize 4096",
                first_for=("Could not load text model",),
            ),
        ),
        empty_cache="No effect: the memory is not PyTorch's.",
        sources=(_LOADER, "https://github.com/abetlen/llama-cpp-python/blob/main/llama_cpp/_internals.py"),
        said_by="llama.cpp of 2023-2026, llama-cpp-python 0.2-0.3, Ollama 0.3-0.12",
        is_echo=True,
    ),
    KnownError(
        id="llama-python-library",
        section=SECTION,
        title="llama-cpp-python: its library cannot be loaded",
        summary="The Python package is there, and llama.cpp's library in it is missing, or lacks a library of CUDA.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "' (or one of its dependencies)",
                r"Could not find module '(?P<library>[^'\n]{0,200}(?:llama|ggml)\w{0,12}\.dll)' \(or one of its"
                r" dependencies\)",
            ),
            Pattern("Shared library with base name '", r"Shared library with base name '(?P<library>llama|llava)'"),
        ),
        causes=(
            "On Windows, the CUDA libraries of the version for which the wheel is built are not on the search path.",
            "The program runs in the source folder of the package, which has no compiled library.",
            "The processor lacks instructions, such as AVX2, for which the wheel is built.",
        ),
        fixes=(
            Fix(
                "Install a wheel that is built for your CUDA version, for example 12.4.",
                "pip install --force-reinstall --no-cache-dir llama-cpp-python"
                " --extra-index-url https://abetlen.github.io/llama-cpp-python/whl/cu124",
            ),
            Fix(
                "On Windows, install the CUDA toolkit of the wheel's version; CUDA_PATH must name it.",
                "winget install Nvidia.CUDA",
                first_for=(".dll'",),
            ),
            Fix("Run the program from another folder than the package's source."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/abetlen/llama-cpp-python",
            "https://github.com/abetlen/llama-cpp-python/issues/1150",
        ),
        said_by="llama-cpp-python 0.2-0.3",
    ),
    KnownError(
        id="gguf-convert",
        section=SECTION,
        title="Model cannot be converted to GGUF",
        summary="The converter needs the complete weights in 16 or 32 bits, and the folder has quantized ones, an"
        " adapter only, or not all files.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Can not map tensor '", r"Can not map tensor '(?P<tensor>[\w.-]{1,160})'"),
            Pattern(
                "Quant method is not yet supported", r"Quant method is not yet supported: '(?P<method>[\w-]{1,40})'"
            ),
            literal("Llama 3 must be converted with BpeVocab"),
            Pattern(
                "Missing or incomplete model files: ", r"Missing or incomplete model files: (?P<files>[^\n]{1,120})"
            ),
            literal("Mismatch between weight map and model parts for tensor names"),
            literal("SAFETENSORS_DATA_TYPES[info['dtype']]"),
            Pattern("Can't find model in directory", r"Can't find model in directory (?P<folder>\S{1,160})"),
        ),
        causes=(
            "The model was trained on weights that bitsandbytes had quantized, and saved with them (.SCB, .absmax).",
            "The folder contains an adapter (LoRA), or files of it are missing.",
            "The converter is older than the model, or its script is the old convert.py.",
        ),
        fixes=(
            Fix(
                "Merge the adapter into the base model in bfloat16, not in 4 or 8 bits, and convert the result.",
                """\
base = AutoModelForCausalLM.from_pretrained(base_name, dtype=torch.bfloat16, device_map="cpu")
PeftModel.from_pretrained(base, "adapter").merge_and_unload().save_pretrained("merged")
tokenizer.save_pretrained("merged")""",
            ),
            Fix(
                "Download or save the model again, so that all files of the index are there.",
                "hf download OWNER/MODEL --local-dir MODEL --force-download",
                first_for=("incomplete model files", "weight map and model parts"),
            ),
            Fix(
                "Use the script of the current llama.cpp.",
                "git -C llama.cpp pull && pip install -r llama.cpp/requirements.txt\n"
                "python llama.cpp/convert_hf_to_gguf.py MODEL --outfile MODEL.gguf",
                first_for=("BpeVocab", "Can't find model in directory"),
            ),
            Fix("Or convert the adapter by itself.", "python llama.cpp/convert_lora_to_gguf.py ADAPTER --base MODEL"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/ggml-org/llama.cpp/blob/master/convert_hf_to_gguf.py",),
        said_by="llama.cpp of 2023-2026",
    ),
)
