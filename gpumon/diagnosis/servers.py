"""What to do in a server of models, or in a library that generates, if an error occurs: it runs no code of the user."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpumon.diagnosis.programs import LMDEPLOY, TGI, WEB_UI
from gpumon.errors.entry import Fix


class Server(NamedTuple):
    """What to do in a server of models.

    Attributes:
        memory: If GPU memory ran out.
        kernel: If a kernel failed; None if the user's own code may have called it.
        code: If an operation of the server's own code failed; None if it may be that of the user.
        command: What starts it, in place of a training script.
        fork: If CUDA was used in a forked process.
        arch: If it has no kernel for the GPU.
        compiled: If code that it compiles while it runs failed.
        ends_itself: Whether an error of CUDA ends its process.
    """

    memory: tuple[Fix, ...]
    kernel: Fix | None = None
    code: Fix | None = None
    command: str = ""
    fork: tuple[Fix, ...] = ()
    arch: tuple[Fix, ...] = ()
    compiled: tuple[Fix, ...] = ()
    ends_itself: bool = False


CAUSES_OF_FULL_MEMORY: Final = (
    "The weights of the model do not fit, or leave too little for the cache, activations and graphs.",
    "The server processes too many or too long requests at a time.",
    "Other processes hold part of the GPU.",
)
"""Why GPU memory runs out in a server that runs no code of the user."""
SERVERS: Final[Mapping[str, Server]] = {
    "vLLM": Server(
        (
            Fix(
                "Process fewer requests at a time, with a shorter context.",
                "vllm serve MODEL --max-num-seqs 64 --max-model-len 8192",
            ),
            Fix(
                "If the server reserves nearly the whole GPU for its cache, leave more memory outside the cache.",
                "vllm serve MODEL --gpu-memory-utilization 0.85",
            ),
            Fix(
                "If the weights themselves do not fit, divide them over several GPUs, or use a quantized model.",
                "vllm serve MODEL --tensor-parallel-size 2",
            ),
        ),
        Fix(
            "Find the kernel: run with synchronous launches and without CUDA graphs.",
            "CUDA_LAUNCH_BLOCKING=1 vllm serve MODEL --enforce-eager",
        ),
        Fix(
            "The operation is in the server's own code: upgrade the server, or use the model in another format.",
            "pip install --upgrade vllm",
        ),
        "vllm serve MODEL",
        fork=(Fix("Let vLLM spawn its workers.", "VLLM_WORKER_MULTIPROC_METHOD=spawn vllm serve MODEL"),),
        arch=(
            Fix(
                "Upgrade vLLM together with the PyTorch for which it is built; its wheels need compute"
                " capability 7.0 or"
                " newer, and for Blackwell CUDA 12.8 or newer.",
                "pip install --upgrade vllm",
            ),
        ),
        compiled=(Fix("Run without compilation and CUDA graphs.", "vllm serve MODEL --enforce-eager"),),
        ends_itself=True,
    ),
    "SGLang": Server(
        (
            Fix(
                "Leave more memory for the graphs and activations, and record fewer batch sizes.",
                "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.8 --cuda-graph-max-bs 16",
            ),
            Fix(
                "If the weights themselves do not fit, divide them over several GPUs, or use a quantized model.",
                "python -m sglang.launch_server --model-path MODEL --tp 2",
            ),
        ),
        Fix(
            "Find the kernel: run with synchronous launches and without CUDA graphs.",
            "CUDA_LAUNCH_BLOCKING=1 python -m sglang.launch_server --model-path MODEL --disable-cuda-graph",
        ),
        Fix(
            "The operation is in the server's own code: upgrade the server, or use the model in another format.",
            "pip install --upgrade sglang",
        ),
        "python -m sglang.launch_server --model-path MODEL",
        arch=(
            Fix(
                "Upgrade SGLang together with its kernels.",
                "pip install --upgrade sglang",
            ),
        ),
        compiled=(
            Fix(
                "Run without CUDA graphs, and without --enable-torch-compile.",
                "python -m sglang.launch_server --model-path MODEL --disable-cuda-graph",
            ),
        ),
        ends_itself=True,
    ),
    "ComfyUI": Server(
        (
            Fix("Use a smaller image, fewer frames, or a model that is quantized to FP8 or GGUF."),
            Fix("Keep less of the models on the GPU.", "python main.py --lowvram"),
        ),
        Fix("Find the kernel: run with synchronous launches.", "CUDA_LAUNCH_BLOCKING=1 python main.py"),
        Fix(
            "The operation is in a node: check that the models of the workflow belong together, and update ComfyUI.",
            "git -C ComfyUI pull",
        ),
        "python main.py",
        compiled=(Fix("Remove the node that compiles the model from the workflow, such as TorchCompileModel."),),
    ),
    WEB_UI: Server(
        (
            Fix(
                "Use a smaller image, a smaller batch, or a smaller factor of Hires. fix; in Forge, lower the slider"
                " `GPU Weights`."
            ),
            Fix("Without Forge, keep less of the model on the GPU.", "python launch.py --medvram"),
        ),
        Fix("Find the kernel: run with synchronous launches.", "CUDA_LAUNCH_BLOCKING=1 python launch.py"),
        Fix(
            "The operation is in the web UI or in an extension: update both, switch off the extensions, and check that"
            " the models belong together. If types differ, start Forge with --all-in-fp16, and the web UI of"
            " AUTOMATIC1111 with --no-half.",
            "git pull",
        ),
        "python launch.py",
    ),
    "llama.cpp": Server(
        (
            Fix(
                "Put fewer layers on the GPU, and use a shorter context.",
                "llama-server -m MODEL.gguf -ngl 20 -c 8192",
            ),
        ),
        Fix(
            "Update llama.cpp or ik_llama.cpp, or the program that contains it; until then, try without CUDA graphs,"
            " with the other setting of flash attention (-fa), and with several GPUs without tensor overrides (-ot) or"
            " with another main GPU (-mg).",
            "GGML_CUDA_DISABLE_GRAPHS=1 llama-server -m MODEL.gguf",
        ),
        Fix("Update llama.cpp, or the program that contains it.", "pip install --upgrade llama-cpp-python"),
        "llama-server -m MODEL.gguf",
        ends_itself=True,
    ),
    TGI: Server(
        (
            Fix(
                "If the weights do not fit, load them quantized, divide them over several GPUs, or use a larger GPU.",
                "text-generation-launcher --model-id MODEL --quantize bitsandbytes-nf4 --num-shard 2",
            ),
            Fix(
                "If the weights fit, process fewer tokens at a time.",
                "text-generation-launcher --model-id MODEL --max-batch-prefill-tokens 2048",
            ),
        ),
        command="text-generation-launcher --model-id MODEL",
        ends_itself=True,
    ),
    LMDEPLOY: Server(
        (
            Fix(
                "Give less of the free memory to the cache.",
                "lmdeploy serve api_server MODEL --cache-max-entry-count 0.4",
            ),
            Fix(
                "If the weights themselves do not fit, divide them over several GPUs, or use a quantized model.",
                "lmdeploy serve api_server MODEL --tp 2",
            ),
        ),
        Fix(
            "Upgrade LMDeploy, or use its engine that is written in PyTorch; TurboMind may have no working kernel for"
            " this quantization on this GPU.",
            "lmdeploy serve api_server MODEL --backend pytorch",
        ),
        command="lmdeploy serve api_server MODEL",
        ends_itself=True,
    ),
    "transformers": Server(
        (
            Fix(
                "Generate for fewer inputs at a time, from shorter ones, and without gradients.",
                "with torch.inference_mode():\n    output = model.generate(**inputs, max_new_tokens=256)",
            ),
            Fix(
                "If the weights fill the GPU, load them in 4 bits.",
                "config = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_compute_dtype=torch.bfloat16)\n"
                'model = AutoModelForCausalLM.from_pretrained(name, device_map="auto", quantization_config=config)',
            ),
        ),
    ),
    "diffusers": Server(
        (
            Fix(
                "Keep on the GPU only the part of the pipeline that computes; do not move the pipeline there yourself.",
                "pipeline.enable_model_cpu_offload()\npipeline.vae.enable_tiling()",
            ),
            Fix("Use a smaller image, fewer frames, or a model that is quantized to 8 or 4 bits."),
        ),
    ),
}
"""Servers, and libraries that generate, by their names."""
