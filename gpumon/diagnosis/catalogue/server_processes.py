"""Errors of the processes of inference servers."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.serving import SECTION, SEPARATE_PROCESS
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="vllm-extension",
        section=SECTION,
        title="vLLM: compiled kernels are missing",
        summary="The compiled extension of vLLM was not loaded, so its GPU kernels do not exist in this process.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("No module named 'vllm._C'"),
            Pattern(
                "'_OpNamespace' '_C' object has no attribute",
                r"'_OpNamespace' '_C' object has no attribute '(?P<kernel>\w{1,60})'",
            ),
        ),
        causes=(
            "Python runs inside vLLM's source folder, and imports that folder instead of the installed package.",
            "PyTorch was up- or downgraded after vLLM was installed, so the extension cannot be loaded.",
            "The extension was built for another device or is older than the Python code.",
        ),
        fixes=(
            Fix(
                "Install vLLM in a new environment, which brings the PyTorch that it was built for.",
                "python3 -m venv fresh && fresh/bin/pip install vllm",
            ),
            Fix("Show why the extension is not loaded.", "python -c 'import torch, vllm._C'"),
            Fix("Start Python outside vLLM's source folder."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/getting_started/installation/gpu/",),
    ),
    KnownError(
        id="vllm-worker-hangs",
        section=SECTION,
        title="vLLM: a worker does not answer",
        summary="A worker has not read its work for a minute: it compiles or loads, or it hangs in a collective.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "No available shared memory broadcast block found",
                r"No available shared memory broadcast block found in (?P<seconds>\d{1,6}) ?s",
            ),
        ),
        causes=(
            "During the start, a worker compiles kernels or quantizes weights: then the message is harmless.",
            "GPUs at 100 % without progress: a collective hangs because direct transfers between the GPUs do not work.",
            "A worker died; its log has the reason.",
        ),
        fixes=(
            Fix(
                "Wait some minutes during the start; if the message repeats, look at each worker.",
                "py-spy dump --pid PID",
            ),
            Fix(
                "If all GPUs show 100 %, test without direct transfers.",
                "NCCL_P2P_DISABLE=1 vllm serve MODEL --tensor-parallel-size 2 --disable-custom-all-reduce",
            ),
            Fix(
                "As a root user, disable the IOMMU or PCIe ACS, which break direct transfers.",
                "sudo dmesg | grep -i -E 'iommu|acs'",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Let NCCL report what it does.", "NCCL_DEBUG=INFO VLLM_LOGGING_LEVEL=DEBUG vllm serve MODEL"),),
        sources=("https://docs.vllm.ai/en/latest/usage/troubleshooting/",),
        said_by="vLLM 0.10-0.19",
        is_echo=True,
    ),
    KnownError(
        id="vllm-engine-dead",
        section=SECTION,
        title="vLLM: the engine died",
        summary="The process that owns the GPU ended with an error, which stands earlier in the log.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "please check the stack trace above",
                r"Worker failed with error '(?P<reason>[^\n]{0,160}?)', please check the stack trace above",
            ),
            Pattern("ngine core initialization failed", r"[Ee]ngine core initialization failed\. See root cause above"),
            literal("EngineCore encountered an issue"),
            literal("EngineCore failed to start"),
            literal("EngineCore encountered a fatal error"),
            literal("EngineCore hit an exception"),
            Pattern("Invocation of ", r"\[core\.py:\d{1,5}\] Invocation of (?P<method>\w{1,60}) method failed"),
            literal("WorkerProc initialization failed due to"),
            literal("WorkerProc failed to start"),
            literal("Got fatal signal from worker processes, shutting down"),
            literal("Background loop has errored already"),
            Pattern("Engine process failed to start", r"Engine process failed to start\. See stack trace"),
            Pattern("Engine core proc ", r"Engine core proc \S{1,60} died unexpectedly"),
            Pattern("died unexpectedly, shutting down executor", r"died unexpectedly, shutting down executor"),
            Pattern("Engine process (pid ", r"Engine process \(pid (?P<pid>\d{1,10})\) died"),
            literal("MQLLMEngine is already dead"),
            Pattern("MQEngineDeadError", r"\bMQEngineDeadError: Engine loop is not running"),
            Pattern("AsyncEngineDeadError", r"\bAsyncEngineDeadError\b"),
            Pattern(
                "Worker VllmWorkerProcess pid",
                r"Worker VllmWorkerProcess pid (?P<pid>\d{1,10}) died, exit code: (?P<exit_code>-?\d{1,3})",
            ),
            Pattern("EngineDeadError", r"(?<!Async)EngineDeadError: (?P<reason>EngineCore)"),
            Pattern(
                "for ChatCompletionStreamResponse",
                r"validation errors? for (?P<reason>ChatCompletionStreamResponse)",
            ),
            Pattern("died unexpectedly (exit code: ", r"Worker proc [\w-]{1,40} died unexpectedly \(exit code: "),
        ),
        causes=(
            "The engine raised an exception: out of memory, an unsupported model, a CUDA error.",
            "Its process was killed: host memory or the container's limit.",
        ),
        fixes=(
            Fix(
                "Find the first error of the engine or of a worker in the log.",
                "grep -n -m 5 -E '(EngineCore|Worker).*(Error|Exception):' vllm.log",
            ),
            Fix(
                "Run the engine in the same process, so that its exception is the last one.",
                "VLLM_ENABLE_V1_MULTIPROCESSING=0 python serve.py",
            ),
            Fix("Check whether the kernel killed a process.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
        ),
        empty_cache=SEPARATE_PROCESS,
        sources=("https://docs.vllm.ai/en/latest/usage/troubleshooting/",),
        said_by="vLLM 0.4-0.19",
        is_echo=True,
    ),
    KnownError(
        id="sglang-memory",
        section=SECTION,
        title="SGLang: no memory for the key-value cache",
        summary="The part of the GPU's memory that SGLang may use does not hold the weights and a key-value cache.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "ut of memory. Try to lower your batch size",
                r"(?P<phase>Prefill|Decode) out of memory\. Try to lower your batch size",
            ),
            literal("Not enough memory. Please try to increase --mem-fraction-static"),
            Pattern("_slots runs out of memory", r"alloc_(?:req|token)_slots runs out of memory"),
            literal("The memory capacity is unbalanced. Some GPUs may be occupied by other processes"),
        ),
        causes=(
            "The weights fill the permitted part of the GPU.",
            "Other processes use one of the GPUs.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            Fix(
                "Give the weights and the cache a larger part of the memory, and the rest of the program less: smaller"
                " parts of prompts and fewer CUDA graphs.",
                "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.9"
                " --chunked-prefill-size 2048 --cuda-graph-max-bs 8",
                first_for=("mem-fraction-static",),
            ),
            Fix(
                "Or split the model over several GPUs.",
                "python -m sglang.launch_server --model-path MODEL --tp 2",
            ),
            Fix(
                "Accept fewer requests at a time; if it still fails, upgrade SGLang, which lost places in this table.",
                "pip install --upgrade sglang\n"
                "python -m sglang.launch_server --model-path MODEL --max-running-requests 16",
                first_for=("_slots runs out",),
            ),
        ),
        empty_cache=SEPARATE_PROCESS,
        sources=("https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html",),
        said_by="SGLang 0.4-0.5",
    ),
    KnownError(
        id="sglang-capture",
        section=SECTION,
        title="SGLang: CUDA graph capture failed",
        summary="SGLang records its decoding as CUDA graphs, and that failed; the text after the colon is the reason.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "apture cuda graph failed",
                r"Capture cuda graph failed:(?! ?\[[^\n]{0,40}gloo/) ?(?P<reason>[^\n]{0,200})",
            ),
            Pattern(
                "apture CUDA graph failed",
                r"Capture CUDA graph failed:(?! ?\[[^\n]{0,40}gloo/) ?(?P<reason>[^\n]{0,200})",
            ),
            literal("set --mem-fraction-static to a smaller value"),
        ),
        causes=(
            "The GPU has no memory left for the graphs; the reason then names memory.",
            "A kernel failed, was not compiled, or does not support the model or the GPU, as the reason says.",
        ),
        fixes=(
            Fix(
                "FlashInfer has no kernel for this size of the attention heads: choose another attention backend, or"
                " another model.",
                "python -m sglang.launch_server --model-path MODEL --attention-backend triton",
                first_for=("Unsupported head_dim",),
                hidden_otherwise=True,
            ),
            Fix(
                "If the reason names memory, leave more of it for the graphs, and record fewer batch sizes.",
                "python -m sglang.launch_server --model-path MODEL --mem-fraction-static 0.8 --cuda-graph-max-bs 16",
                first_for=("out of memory", "mem-fraction-static"),
            ),
            Fix(
                "If the reason names a kernel, upgrade SGLang together with its kernels, or choose another attention"
                " backend.",
                "python -m sglang.launch_server --model-path MODEL --attention-backend triton",
                first_for=("Triton compilation", "ninja exited"),
            ),
            Fix(
                "Or disable the graphs, which is slower.",
                "python -m sglang.launch_server --model-path MODEL --disable-cuda-graph",
            ),
        ),
        empty_cache=SEPARATE_PROCESS,
        sources=("https://docs.sglang.ai/advanced_features/hyperparameter_tuning.html",),
        said_by="SGLang 0.4-0.5",
        is_echo=True,
    ),
    KnownError(
        id="tensorrt-engine",
        section=SECTION,
        title="TensorRT engine built for another GPU or version",
        summary="A TensorRT engine runs only on the GPU type and with the TensorRT version for which it was built.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "engine plan file is generated on an incompatible device",
                r"engine plan file is generated on an incompatible device, expecting compute (?P<expected>[\d.]{1,6})"
                r" got compute (?P<got>[\d.]{1,6})",
            ),
            Pattern(
                "engine plan file is not compatible with this version of TensorRT",
                r"engine plan file is not compatible with this version of TensorRT"
                r"(?:, expecting library version (?P<expected>[\d.]{1,16}) got (?P<got>[\d.]{1,16}))?",
            ),
            Pattern(
                "Serialization assertion stdVersionRead",
                r"Serialization assertion stdVersionRead == (?:serializationVersion|kSERIALIZATION_VERSION) failed",
            ),
            literal("Failed to deserialize cuda engine"),
        ),
        causes=("The engine was copied from another host, or TensorRT was upgraded after it was built.",),
        fixes=(
            Fix(
                "Delete the cached engine, and build it again on this GPU.",
                "trtexec --onnx=model.onnx --saveEngine=model.plan",
            ),
            Fix("Check the installed version.", "python -c 'import tensorrt; print(tensorrt.__version__)'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.nvidia.com/deeplearning/tensorrt/latest/reference/troubleshooting.html",),
    ),
    KnownError(
        id="xinference-launch",
        section=SECTION,
        title="Xinference: the model did not start",
        summary="The worker could not start the engine of the model; the text behind the address is the reason, and the"
        " log of the worker has its traceback.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "Failed to launch model, detail: ",
                r"Failed to launch model, detail: \[address=[\d.:]{3,30},"
                r" pid=(?P<pid>\d{1,9})\] (?P<reason>[^\n]{1,160})",
            ),
            Pattern(
                "bytes read on a total of",
                r"Remote server (?P<address>[\w:/.-]{1,80}) closed: \d{1,9} bytes read on a total of",
            ),
        ),
        causes=("The engine, such as vLLM, is older than the model, or GPU memory is not enough.",),
        fixes=(
            Fix(
                "Read the log of the worker.",
                "grep -n -m 5 -E '(Error|Exception):' ~/.xinference/logs/*/xinference.log",
            ),
            Fix("Upgrade both.", "pip install --upgrade xinference vllm"),
            Fix("Try another engine.", "uv run xinference launch --model-name NAME --model-engine transformers"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/xorbitsai/inference/issues/3135",),
        said_by="Xinference 1.0-2.8",
        is_echo=True,
    ),
    KnownError(
        id="sglang-warmup",
        section=SECTION,
        title="SGLang: the server did not answer its own first request",
        summary="After its start, the server sends itself a request; the answer was an error, and the server ended.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("AssertionError: res=<Response [", r"AssertionError: res=<Response \[(?P<status>\d{3})\]>"),
            Pattern("Initialization failed. warmup error", r"Initialization failed\. warmup error: "),
            Pattern(
                "Server warmup failed; aborting", r"Server warmup failed; aborting startup: (?P<reason>[^\n]{1,160})"
            ),
            Pattern(
                "/get_model_info HTTP/1.1",
                r"http://[\w.-]{1,60}:\d{1,5} \"GET http://0\.0\.0\.0:\d{1,5}/get_model_info HTTP/1\.1\" [345]\d\d",
            ),
        ),
        causes=(
            "A proxy is set, and gets the request to the host itself: status 403, 502 or 503.",
            "The engine failed during the first request; its error is above in the log.",
        ),
        fixes=(
            Fix("Exclude the own addresses from the proxy.", "export no_proxy=localhost,127.0.0.1,0.0.0.0"),
            Fix(
                "Or start the server without a proxy.", "unset http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY"
            ),
            Fix("Look for the first error of the engine.", "grep -n -m 5 -E '(Error|Exception):' server.log"),
        ),
        empty_cache=SEPARATE_PROCESS,
        sources=(
            "https://github.com/sgl-project/sglang/issues/9814",
            "https://github.com/sgl-project/sglang/issues/16855",
        ),
        said_by="SGLang 0.2-0.5",
        is_echo=True,
    ),
    KnownError(
        id="vllm-worker-timeout",
        section=SECTION,
        title="vLLM: a worker did not finish a step in time",
        summary="The engine waited for a worker until the time limit of a step, 300 s by default, and ended.",
        context=ContextState.DEAD,
        patterns=(literal("RPC call to execute_model timed out"),),
        causes=(
            "A worker failed or was killed; its error stands above.",
            "The GPUs wait for each other in a collective or in a kernel that does not end.",
            "A step compiles a kernel, or has a very long prompt.",
        ),
        fixes=(
            Fix(
                "Look for the first error above; without one, start again and print the stacks of the workers"
                " while they"
                " hang.",
                "py-spy dump --native --pid PID",
            ),
            Fix(
                "Test without CUDA graphs and vLLM's own all-reduce.",
                "vllm serve MODEL --enforce-eager --disable-custom-all-reduce",
            ),
            Fix(
                "If the step is only slow, allow more time.", "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS=1200 vllm serve MODEL"
            ),
            Fix("Upgrade vLLM.", "pip install --upgrade vllm"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/envs.py",),
        said_by="vLLM 0.9-0.33",
    ),
    KnownError(
        id="vllm-device-uuid",
        section=SECTION,
        title="vLLM: a GPU is named by its UUID",
        summary="CUDA_VISIBLE_DEVICES contains the UUID of a GPU or of a MIG instance, where this program"
        " expects an index.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "invalid literal for int() with base 10: '",
                r"invalid literal for int\(\) with base 10:"
                r" '(?P<uuid>(?:MIG|GPU)-[\da-f]{8}-[\da-f-]{4,40}(?:/\d{1,2}/\d{1,2})?)'",
            ),
        ),
        causes=("Kubernetes, Slurm or a shell sets the variable to a UUID, as MIG requires.",),
        fixes=(
            Fix(
                "Upgrade vLLM: releases after June 2026 accept the UUID of an instance.",
                "pip install --upgrade vllm",
            ),
            Fix(
                "Until then, name the GPU by its index; of a GPU with MIG, that is the first instance.",
                "CUDA_VISIBLE_DEVICES=0 vllm serve MODEL",
            ),
            Fix(
                "Or give another instance to a container, in which it has the index 0.",
                "docker run --gpus '\"device=MIG-UUID\"' -e CUDA_VISIBLE_DEVICES=0 vllm/vllm-openai --model MODEL",
                first_for=("in a container",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/vllm-project/vllm/issues/41848",
            "https://github.com/vllm-project/vllm/pull/45026",
        ),
        said_by="vLLM 0.6-0.20",
    ),
    KnownError(
        id="mooncake-transfer",
        section=SECTION,
        title="Mooncake: a transfer between hosts failed",
        summary="The key-value cache, or another block, could not be sent over RDMA, also after several attempts.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Failed to register memory 0x", r"Failed to register memory 0x[\da-f]{4,16}: Invalid argument"),
            Pattern("Process failed for slice", r"Worker: Process failed for slice \(opcode: \d"),
            Pattern("KVTransferError(bootstrap_room=", r"with exception KVTransferError\(bootstrap_room="),
            Pattern("error: TRANSFER_FAIL", r"(?:Put|Get) operation failed with error: TRANSFER_FAIL"),
        ),
        causes=(
            "The two network cards cannot reach each other: the wrong card, GID or address, such as 127.0.0.1.",
            "The peer has ended, or the memory that it registered is gone.",
        ),
        fixes=(
            Fix(
                "The card cannot register memory of the GPU: load nvidia-peermem, lift the limit on locked"
                " memory, and choose a"
                " card on the side of the GPU.",
                "sudo modprobe nvidia-peermem; ulimit -l; nvidia-smi topo -m",
                first_for=("register memory",),
                hidden_otherwise=True,
            ),
            Fix(
                "Check that the cards reach each other, each on its host.",
                "ib_write_bw -d mlx5_0 -x 3 HOST",
            ),
            Fix("Choose the GID of RoCE v2, which `show_gids` lists.", "export MC_GID_INDEX=3"),
            Fix("Give the address under which other hosts reach this one, not 127.0.0.1.", "hostname -I"),
            Fix("Or use TCP, to find out whether RDMA is the cause.", "export MOONCAKE_PROTOCOL=tcp"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://kvcache-ai.github.io/Mooncake/troubleshooting/troubleshooting.html",),
        said_by="Mooncake 0.3",
    ),
    KnownError(
        id="vllm-port",
        section=SECTION,
        title="vLLM: VLLM_PORT is set by Kubernetes",
        summary="Kubernetes sets NAME_PORT for each service, and a service called vllm sets VLLM_PORT, which"
        " vLLM reads.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "with base 10: 'tcp://", r"invalid literal for int\(\) with base 10: 'tcp://(?P<address>[\w.:-]{1,80})'"
            ),
            Pattern("appears to be a URI", r"VLLM_PORT '(?P<address>[^'\n]{1,80})' appears to be a URI"),
        ),
        causes=("The service of the server has the name vllm.",),
        fixes=(
            Fix("Give the service another name.", "kubectl get services"),
            Fix(
                "Or set enableServiceLinks: false in the pod's specification.",
                "kubectl explain pod.spec.enableServiceLinks",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/vllm/blob/main/vllm/envs.py",),
        said_by="vLLM 0.6-0.19",
    ),
)
