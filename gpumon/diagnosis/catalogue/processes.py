"""Errors of starting processes and of loading data: spawn, DataLoader, Windows."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Processes and data loading"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="main-guard",
        section=SECTION,
        title="Program starts processes while it is imported",
        summary="A spawned process imports the program again, and the program then starts processes itself.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("An attempt has been made to start a new process before the"),
            Pattern(
                "ForkingPickler(file, protocol)",
                r"ForkingPickler\(file, protocol\)\.dump\(obj\)\s{0,8}BrokenPipeError: \[Errno 32\]",
            ),
        ),
        causes=("The program has no `if __name__` guard; with spawn, as on Windows and with vLLM, it needs one.",),
        fixes=(
            Fix("Put everything that runs below the guard.", 'if __name__ == "__main__":\n    main()'),
            Fix("Or load data in the main process.", "loader = DataLoader(dataset, num_workers=0)"),
            Fix(
                "If Lightning spawns the processes (ddp_spawn), let it start the script once for each GPU instead.",
                'trainer = Trainer(strategy="ddp", devices=2)',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.MULTIPROCESSING_NOTES, "https://docs.python.org/3/library/multiprocessing.html"),
        said_by="Python 3.4-3.14",
    ),
    KnownError(
        id="spawn-pickle",
        section=SECTION,
        title="Object cannot be sent to a process",
        summary="A process is started with an object that cannot be pickled, such as a lambda or an open file.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "pickle local object '", r"(?:Can't|[Cc]annot) pickle local object '(?P<object>[^'\n]{1,120})(?:'|$)"
            ),
            Pattern("Can't get local object '", r"AttributeError: Can't get local object '(?P<object>[^'\n]{1,120})'"),
            Pattern("annot pickle '", r"TypeError: cannot pickle '(?P<object>[\w.]{1,60})' object"),
            Pattern("cannot pickle 'weakref", r"cannot pickle '(?P<object>weakref[\w.]{0,40})' object"),
            Pattern(
                "Can't pickle <function ",
                r"(?:PicklingError: |^)Can't pickle <function (?P<object>[^\n]{1,100}?) at 0x",
            ),
            Pattern(
                ">: it's not the same object as ",
                r"Can't pickle <class '(?P<object>[\w.]{1,100})'>: it's not the same object as ",
            ),
            Pattern("cannot pickle '_thread.", r"cannot pickle '(?P<object>_thread\.\w{1,20})' object"),
            Pattern("' (built-in)>", r"Can't get attribute '(?P<object>\w{1,80})' on <module '__main__' \(built-in\)>"),
        ),
        causes=(
            (
                "The dataset, the collate function or the transform contains a lambda, a local function, a lock or a"
                " handle."
            ),
            "Processes are spawned, as on Windows, on macOS and with CUDA in workers; a fork would not pickle.",
            "Not the same object: the module was loaded again, as by autoreload, or a decorator replaced the name.",
        ),
        fixes=(
            Fix("Define the function at the top level of a module, and open files in the worker."),
            Fix(
                "Or load data in the main process.",
                "loader = DataLoader(dataset, num_workers=0)",
                first_for=("pickle 'weakref",),
            ),
            Fix(
                "In a notebook, put the class or function into a file, and import it: a new process cannot see cells.",
                "from my_data import MyDataset",
                first_for=("(built-in)",),
            ),
            Fix("In a notebook, restart the kernel.", first_for=("not the same object",)),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/data.html#platform-specific-behaviors",),
        said_by="Python 3.4-3.14",
    ),
    KnownError(
        id="dataloader-worker",
        section=SECTION,
        title="Error in a DataLoader's worker",
        summary="The dataset raised an exception in a worker process; it is repeated below this line.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "in DataLoader worker process",
                r"Caught (?P<exception>\w{1,60}) in DataLoader worker process (?P<worker>\d{1,5})",
            ),
        ),
        causes=("The dataset or the collate function fails for one sample.",),
        fixes=(
            Fix("Read the `Original Traceback` below this line."),
            Fix(
                "Run without workers, so that a debugger stops at the sample.",
                "loader = DataLoader(dataset, num_workers=0)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.DATA_LOADING,),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
    KnownError(
        id="windows-crash",
        section=SECTION,
        title="Windows ended the process after a crash",
        summary="The code is the reason: 3221225477 is an invalid memory access, 3221226505 an abort, 3221225781 a"
        " missing DLL, 3221225620 a division by zero.",
        context=ContextState.DEAD,
        patterns=(
            Pattern(
                "exit code ",
                r"exit code \(?(?P<exit_code>322122[56]\d{3}"
                r"|-1073741819|-1073740791|-1073741515|-1073741571|0xC0000005|0xC0000409|0xC0000135)",
            ),
            Pattern(
                "Exit code: ", r"Exit code: -?\d{4,12} \((?P<exit_code>0xC0000005|0xC0000409|0xC0000135|0xC00000FD)\)"
            ),
            Pattern(
                "exception: access violation",
                r"OSError: exception: (?P<reason>access violation (?:reading|writing) 0x[\dA-Fa-f]{1,16})",
            ),
            Pattern(
                "returned non-zero exit status ",
                r"returned non-zero exit status (?P<exit_code>3221225\d{3}|3221226\d{3})",
            ),
            Pattern(
                " failed with ",
                r"(?:training|subprocess) failed with (?:return |exit )?code (?P<exit_code>3221225\d{3}|3221226\d{3})",
            ),
            Pattern(
                "Windows fatal exception: ",
                r"Windows fatal exception: (?P<reason>access violation|code 0x[\da-f]{8}|stack overflow)",
            ),
            literal("Unhandled exception caught in c10/util/AbortHandler.h"),
        ),
        causes=(
            "Packages with CUDA code were built for another PyTorch, CUDA or GPU.",
            "The memory of the computer and its paging file ran out.",
            "The display driver was reset, or is faulty.",
        ),
        fixes=(
            Fix("Print the Python stack of the crash.", "python -X faulthandler train.py"),
            Fix(
                "Install PyTorch and the packages with CUDA code again, in versions that belong together.",
                "pip install --force-reinstall torch torchvision torchaudio"
                " --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "For a division by zero (3221225620), check that PyTorch is built for the GPU: for an RTX 50, with CUDA"
                " 12.8 or later.",
                "pip install --upgrade torch torchvision torchaudio --index-url https://download.pytorch.org/whl/cu130",
                first_for=("3221225620",),
            ),
            Fix("Let Windows manage the size of the paging file, or set it to at least the size of the GPU's memory."),
            Fix("Install the current driver with the option of a clean installation."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            (
                "https://learn.microsoft.com/en-us/openspecs/windows_protocols/ms-erref/596a1078-e883-4972-9bbc-49e60"
                "bebc"
                "a55"
            ),
        ),
        said_by="Windows 10-11",
    ),
    KnownError(
        id="windows-paging",
        section=SECTION,
        title="Windows has no memory left for the process",
        summary="Memory and paging file together are too small; each process that imports PyTorch commits several GiB.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("The paging file is too small for this operation to complete"),
            literal("[WinError 1455]"),
            Pattern("os error 1455", r"\(os error 1455\)"),
        ),
        causes=(
            "Each worker of a DataLoader loads the CUDA libraries, which Windows counts in full.",
            "A model is loaded into memory before it goes to the GPU, and the paging file is small or off.",
        ),
        fixes=(
            Fix("Let Windows manage the size of the paging file, or set it to twice the size of the model at least."),
            Fix("Use fewer workers.", "loader = DataLoader(dataset, num_workers=0)"),
            Fix("Close other programs, or restart Windows."),
        ),
        empty_cache="No effect: the memory that is missing is the host's.",
        sources=("https://github.com/ultralytics/yolov3/issues/1643",),
        said_by="Windows 10-11",
    ),
    KnownError(
        id="barrier-device",
        section=SECTION,
        title="Process group does not know the GPU of this rank",
        summary="A barrier chose a GPU by itself; if another rank uses that GPU, the program hangs.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "devices used by this process are currently unknown",
                r"sing GPU (?P<gpu>\d{1,4}) (?:to perform barrier )?as devices used by this process are currently unk"
                r"nown",
            ),
            literal("No device id is provided via `init_process_group` or `barrier"),
            literal("Guessing device ID based on global rank"),
        ),
        causes=("The process group was created before the process chose its GPU, and without naming it.",),
        fixes=(
            Fix(
                "Choose the GPU first, and name it.",
                """\
import os

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.distributed.init_process_group("nccl", device_id=device)""",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.TORCH_DISTRIBUTED,),
        said_by="torch 1.13-2.13",
        is_warning=True,
    ),
    KnownError(
        id="internal-assert",
        section=SECTION,
        title="Check inside PyTorch failed",
        summary="A condition that PyTorch expects to hold did not; this is an error of PyTorch or of an extension.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern(
                "Could this error message be improved?",
                r"Expected (?P<check>(?!\W{0,4}(?:is_sm|curr_block->next)|[^\n,]{0,60}is_cuda)[^\n]{1,160}?)"
                r" to be true,"
                r" but got false\. {1,2}\("
                r"Could this error message be improved\?",
            ),
            Pattern(
                "INTERNAL ASSERT FAILED at ",
                r"Error: (?P<check>(?!NVML_SUCCESS|iter\.device\(arg\)\.is_cuda|!?in_bad_fork|expect_autograd_hooks_"
                r"|[^\n]{0,80}device >= 0 &&)[^\n]{1,160}?) ?INTERNAL ASSERT FAILED at"
                r" \"?(?P<file>(?![^\"\n]{0,200}(?:AllocatorConfig|CUDACachingAllocator|LinearAlgebra|jit/codegen|"
                r"/mps/))[^\"\n]{1,200}?)\"?"
                r":(?P<line>\d{1,6})",
            ),
        ),
        causes=(
            "The operator does not support these arguments or this GPU, and its check has no text for that.",
            "An extension or a package was built for another version of PyTorch.",
            "PyTorch has an error that a later version may not have.",
        ),
        fixes=(
            Fix(
                "Upgrade PyTorch and the packages that are built for it, together.",
                "pip install --upgrade torch torchvision",
            ),
            Fix("Search PyTorch's issues for the file and the condition in the message; report it if none has it."),
            Fix(
                "The driver's libraries were not loaded: give the container the capabilities compute and"
                " utility, and do without expandable segments.",
                "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility IMAGE",
                first_for=("driver_api.cpp",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.CPP_STACKTRACES, fixes.SHOW_VERSIONS),
        sources=("https://github.com/pytorch/pytorch/blob/main/c10/util/Exception.h",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="needs-cuda-tensor",
        section=SECTION,
        title="Function needs a tensor on the GPU",
        summary="A function with code for the GPU only got a tensor on the CPU.",
        context=ContextState.ALIVE,
        patterns=(
            literal("RuntimeError: expected input to be on cuda"),
            Pattern("must be a CUDA tensor", r"(?P<argument>\w{1,60}) must be a CUDA tensor"),
            Pattern("must be a CUDA variable", r"(?P<argument>\w{1,60}) must be a CUDA variable"),
            Pattern("must be on CUDA", r"(?P<argument>\w{1,60}) (?:tensor |tensors )?must be on CUDA\b"),
            Pattern(
                "must be on a CUDA device", r"(?P<argument>\w{1,60}) (?:tensor |tensors )?must be on a CUDA device"
            ),
            Pattern("must be CUDA tensors", r"(?P<argument>\w{1,60})(?<!state_steps) must be CUDA tensors"),
            Pattern(
                ".is_cuda() to be true, but got false",
                r"Expected (?P<argument>[\w.]{1,60})\.is_cuda\(\) to be true, but got false",
            ),
            Pattern(".is_cuda", r"^ {0,40}assert (?P<argument>\w{1,40})\.is_cuda\b"),
            Pattern("Assertion failed: ", r"Assertion failed: [^\n]{0,80}?(?P<argument>\w{1,60})(?:\.|->)is_cuda\(\)"),
            literal("CUDAGuardImpl initialized with non-CUDA DeviceType"),
        ),
        causes=(
            "The model or the batch was not moved to the GPU, or the program chose the CPU.",
            "A layer was offloaded to the CPU by device_map or by an option for little memory.",
        ),
        fixes=(
            Fix(
                "Move the model and the batch.",
                "model.to('cuda')\nbatch = {name: value.to('cuda') for name, value in batch.items()}",
            ),
            Fix("Check that PyTorch finds the GPU.", "python -c 'import torch; print(torch.cuda.is_available())'"),
            Fix(
                "Or use the code for the CPU, if the package has some, such as eager attention.",
                "model = Model.from_pretrained(NAME, attn_implementation='eager')",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.CPP_EXTENSIONS,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="background-workers",
        section=SECTION,
        title="Background process of nnU-Net ended",
        summary=(
            "A process that prepares batches or writes segmentations ended; its own error stands above, or the kernel"
            " ended it for lack of memory."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("background workers are no longer alive", r"background workers are no longer alive"),
            Pattern("Exception in background worker", r"Exception in background worker (?P<worker>\d{1,5})"),
        ),
        causes=(
            "Host memory ran out: each worker holds volumes; there is then no error above.",
            "An exception in the worker, printed above: a damaged file, a label that is not expected.",
            "A failure of the GPU process, such as out of memory, ended the workers: the first error counts.",
        ),
        fixes=(
            Fix(
                "Read the exception of the worker, which stands in the lines before or after this one, and fix its"
                " reason: a damaged file, or a version of batchgenerators that does not fit.",
                first_for=("Exception in background worker",),
            ),
            Fix("Start fewer workers.", "export nnUNet_n_proc_DA=4"),
            Fix(
                "These processes write the predicted segmentations, each of which needs memory of the host for all"
                " classes: use fewer.",
                "export nnUNet_def_n_proc=2",
                first_for=("nnU-Net export",),
                hidden_otherwise=True,
            ),
            Fix("Check whether the kernel ended one.", "sudo dmesg -T | grep -i -E 'out of memory|oom-kill'"),
            Fix("Run without compilation, to exclude its processes.", "export nnUNet_compile=f"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/MIC-DKFZ/nnUNet/issues/1898",),
        said_by="nnU-Net 2.1-2.6, batchgenerators 0.25",
        is_echo=True,
    ),
)
