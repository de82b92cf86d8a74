"""Errors of the file system and of text files: full disks, permissions, locks, encodings."""

from typing import Final

from gpumon.diagnosis.catalogue.checkpoints import SECTION, WRITE_ATOMICALLY
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_HUB_CACHE: Final = "https://huggingface.co/docs/huggingface_hub/guides/manage-cache"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="disk-full",
        section=SECTION,
        title="Disk full, or a write failed",
        summary="The checkpoint, cache or log was not written completely, nearly always because the file system or the"
        " quota is full.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("No space left on device", r"Errno 28\] No space left on device"),
            Pattern("No space left on device", r"No space left on device \(os error 28\)"),
            Pattern("Disk quota exceeded", r"(?:Errno 122\] |: )Disk quota exceeded"),
            Pattern(
                "PytorchStreamWriter failed",
                r"PytorchStreamWriter failed writing (?P<part>[^\n:]{1,80}): file write failed",
            ),
            Pattern("unexpected pos ", r"inline_container\.cc:\d{1,5}\] {0,2}\.? ?unexpected pos \d{1,16} vs \d{1,16}"),
            Pattern("basic_ios::clear", r"basic_ios::clear: iostream error"),
            Pattern("StorageFull", r"kind: StorageFull\b"),
        ),
        causes=(
            "Old checkpoints fill the disk; with the state of Adam, one has three times the size of the weights.",
            "The cache of Hugging Face, of pip or of torch.compile is in a small home directory.",
            "The file system of /tmp or of the container is small.",
            "If nothing is full: a quota, or a failure of the disk or of the network file system.",
        ),
        fixes=(
            Fix("Show what is full; -i shows a lack of inodes.", "df -h . /tmp ~; df -i ."),
            Fix("Delete old checkpoints and caches.", "du -sh ~/.cache/* | sort -h; hf cache ls"),
            Fix("Keep fewer checkpoints.", "arguments = TrainingArguments(save_total_limit=2)"),
            Fix(
                "Move the caches to a large disk.",
                "export HF_HOME=/data/hf TMPDIR=/data/tmp TORCHINDUCTOR_CACHE_DIR=/data/inductor",
            ),
            WRITE_ATOMICALLY,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/notes/serialization.html",
            "https://docs.kernel.org/filesystems/quota.html",
        ),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="file-permission",
        section=SECTION,
        title="User has no permission for the file",
        summary="The user of the process is not permitted to read or write the file or the folder.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Error: [Errno 13] Permission denied: '",
                r"PermissionError: \[Errno 13\] Permission denied: '(?P<file>(?!/dev/|[^'\n]{0,120}(?:/\.cache"
                r"|huggingface|\.triton))[^'\n]{0,160}(?:cache|triton|vllm"
                r"|model|checkpoint|output|home)[^'\n]{0,160})'",
            ),
            Pattern(
                "trying to write in your cache folder",
                r"There was a problem when trying to write in your cache folder \((?P<file>[^)\n]{1,200})\)",
            ),
            Pattern(
                "Read-only file system",
                r"OSError: \[Errno 30\] Read-only file system(?:: '(?P<file>[^'\n]{1,200})')?",
            ),
        ),
        causes=(
            "Files of the cache belong to another user, such as the one that ran a container or sudo.",
            "The home folder or the cache is not writable in the container or on this node.",
            "On Windows, the file is open in another program, or a folder was given in place of a file.",
        ),
        fixes=(
            Fix("Show to whom the folder belongs.", "ls -ld ~/.cache/huggingface; id"),
            Fix(
                "Use folders that belong to you.",
                "export HF_HOME=/data/$USER/hf TMPDIR=/data/$USER/tmp",
                first_for=("Errno 30", "cache folder"),
            ),
            Fix(
                "Or take the folder over, if it is yours.",
                'sudo chown -R "$USER" ~/.cache/huggingface',
            ),
            Fix("In a container, run with the number of the owner.", "docker run --user $(id -u):$(id -g) IMAGE"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_HUB_CACHE,),
        said_by="Python 3.6-3.14, transformers 4.20-5.0",
    ),
    KnownError(
        id="windows-symlink",
        section=SECTION,
        title="Windows does not permit links",
        summary="The cache of the Hub uses symbolic links, which Windows permits in developer mode only.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("[WinError 1314]"),),
        causes=("Developer mode is off, and the program does not run as administrator.",),
        fixes=(
            Fix("Switch developer mode on, in the settings of Windows under System, For developers."),
            Fix("Or download into a plain folder.", "hf download OWNER/MODEL --local-dir model"),
            Fix("Or upgrade the library, which copies where links fail.", "pip install --upgrade huggingface_hub"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_HUB_CACHE,),
        said_by="huggingface_hub 0.10-1.3 on Windows",
    ),
    KnownError(
        id="file-lock",
        section=SECTION,
        title="Lock of a file is held",
        summary="Another process holds the lock, or the lock file of a process that was killed is still there.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("The file lock '", r"The file lock '(?P<file>[^'\n]{1,200})' could not be acquired"),
            Pattern(
                "used by another process",
                r"\[WinError 32\] The process cannot access the file because it is being"
                r" used by another process(?:: '(?P<file>[^'\n]{1,200})')?",
            ),
        ),
        causes=(
            "Another process downloads or builds the same file at this moment.",
            "A network file system lost the lock, or the file was deleted on another host.",
            "On Windows, a file is deleted while it is open: a virus scanner, or a data set that is mapped.",
        ),
        fixes=(
            Fix("Look for processes that use the file.", "ps aux | grep -E 'python|hf '"),
            Fix("If there is none, delete the lock files.", "rm -rf ~/.cache/huggingface/hub/.locks"),
            Fix("Put caches on a disk of the host, not on a network file system.", "export HF_HOME=/tmp/$USER/hf"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://py-filelock.readthedocs.io/",),
        said_by="filelock 3.0-3.20, Windows 10-11",
    ),
    KnownError(
        id="text-encoding",
        section=SECTION,
        title="Text is in another encoding",
        summary="A file or the terminal uses another encoding than Python assumed; on Windows that is not UTF-8.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "' codec can't ",
                r"Unicode(?P<direction>De|En)codeError:"
                r" '(?P<encoding>gbk|gb2312|charmap|cp\d{3,4}|mbcs|big5|shift_jis)' codec can't (?:de|en)code",
            ),
        ),
        causes=(
            "The file was written as UTF-8 and is read as gbk or cp1252.",
            "The file is not text: an archive, or weights.",
            "The terminal or the log cannot show the character.",
        ),
        fixes=(
            Fix("Let Python use UTF-8 everywhere.", "export PYTHONUTF8=1"),
            Fix("Name the encoding where the file is opened.", 'text = open("train.json", encoding="utf-8").read()'),
            Fix("Look at the start of the file.", "head -c 64 train.json"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.python.org/3/using/windows.html#utf-8-mode",),
        said_by="Python 3.7-3.14",
    ),
    KnownError(
        id="weights-file-missing",
        section=SECTION,
        title="File of a model is not where the program looks for it",
        summary="A checkpoint or a configuration of a model does not exist at the path that the message names.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "o such file or directory: ",
                r"FileNotFoundError: (?:\[Errno 2\] )?No such file or directory: (?:PosixPath\()?['\"]"
                r"(?P<file>(?![^'\"\n]{0,180}model_optim_rng)[^'\"\n]{0,180}(?:\.(?:pth|pt|ckpt|safetensors|gguf|engine"
                r"|pth\.tar)|model\w{0,20}\.(?:bin|onnx)|/(?:\w{0,20}config|model_index|tokenizer)\.json))['\"]",
            ),
            Pattern(
                "/logs/mute/",
                r"(?:No such file or directory|cannot find the (?:path|file) specified): '(?P<file>[^'\n]{0,160}"
                r"/logs/mute/[^'\n]{1,80})'",
            ),
        ),
        causes=(
            "The weights are not a part of the repository, and were not downloaded.",
            "The path is relative to another folder than the one in which the program was started.",
            "The run that should have written the file ended before its first checkpoint.",
        ),
        fixes=(
            Fix("Download the file to this path; the README of the repository says from where."),
            Fix(
                "If you have the file, give its absolute path, or start the program in the folder of the repository.",
                "find . ~ -name 'FILE' -not -path '*/.git/*'",
            ),
            Fix("If the repository has the file in Git LFS, fetch it.", "git lfs pull"),
            Fix(
                "The folder logs/mute is a part of the repository of RVC, and training needs it: restore it.",
                "git checkout -- logs/mute",
                first_for=("/logs/mute/",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.python.org/3/library/exceptions.html#FileNotFoundError",),
        said_by="Python 3.6-3.14, safetensors 0.3-0.6",
    ),
    KnownError(
        id="numpy-file",
        section=SECTION,
        title="NumPy file is damaged, or contains objects",
        summary="No array was found by numpy.load(): the file is not complete, is another file under this name, or"
        " contains objects that only pickle can read.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "when allow_pickle=False",
                r"(?:Cannot load file containing pickled data|Object arrays cannot be loaded) when"
                r" allow_pickle=False",
            ),
            Pattern(
                "file contains pickled (object) data", r"This file contains pickled \(object\) data\. If you trust"
            ),
            Pattern("Failed to interpret file ", r"Failed to interpret file (?P<file>[^\n]{1,160}) as a pickle"),
            Pattern(
                "EOF: reading array ", r"EOF: reading array (?:data|header), expected (?P<bytes>\d{1,19}) bytes got"
            ),
        ),
        causes=(
            "The file was not written to its end: the disk was full, or the program was stopped.",
            "The file is a page of a website, or a pointer of Git LFS, in place of the array.",
            "The array contains objects, such as lists of different lengths or dicts.",
        ),
        fixes=(
            Fix(
                "Show what the file is: an array begins with `NUMPY`. If it is another thing, download or create it"
                " again.",
                "ls -l FILE.npy; head -c 100 FILE.npy",
            ),
            Fix(
                "The array contains objects: if you trust the file, permit pickle; better, save arrays of numbers.",
                "values = numpy.load(path, allow_pickle=True)",
                first_for=("Object arrays cannot be loaded",),
                hidden_otherwise=True,
            ),
            Fix(
                "With nnU-Net, delete the files that it unpacked when training started, check the free space, and start"
                " again.",
                "df -h $nnUNet_preprocessed; find $nnUNet_preprocessed -name '*.npy' -delete",
                first_for=("nnU-Net files",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://numpy.org/doc/stable/reference/generated/numpy.load.html",
            "https://github.com/MIC-DKFZ/nnUNet/issues/2805",
        ),
        said_by="NumPy 1.16-2.3",
    ),
    KnownError(
        id="mmap-unsupported",
        section=SECTION,
        title="File system cannot map files into memory",
        summary="The weights are read by mapping the file into memory, which this file system does not support.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(Pattern("No such device (os error 19)", r"No such device \(os error 19\)"),),
        causes=(
            "The file is on a share or a mounted bucket, or in a folder that the host lends to WSL or to a container.",
        ),
        fixes=(
            Fix(
                "Copy the models to a disk of this system, such as your home folder in WSL, and load them from there.",
                "df -T MODELS; cp -r MODELS ~/models",
            ),
            Fix(
                "Keep the cache of Hugging Face on such a disk, too.",
                "export HF_HOME=$HOME/.cache/huggingface",
            ),
            Fix(
                "Or read the file without mapping it.",
                "import safetensors.torch\n\nstate = safetensors.torch.load(open(path, 'rb').read())",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://man7.org/linux/man-pages/man2/mmap.2.html",
            "https://github.com/ostris/ai-toolkit/issues/836",
        ),
        said_by="safetensors 0.4-0.6",
    ),
)
