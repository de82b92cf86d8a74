"""Errors of reading a checkpoint's objects: classes that do not exist here, pickles that are cut, storages."""

from typing import Final

from gpumon.diagnosis.catalogue.checkpoints import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_SERIALIZATION: Final = "https://docs.pytorch.org/docs/stable/notes/serialization.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="checkpoint-pickle",
        section=SECTION,
        title="File is not a complete checkpoint of torch.save",
        summary="The file was read as a pickle, and is cut, of another form, or needs torch.load.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("pickle data was truncated"),
            Pattern(
                "A load persistent id instruction was encountered", r"A load persistent id instruction was encountered"
            ),
            Pattern("Invalid magic number; corrupt file?", r"Invalid magic number; corrupt file\?"),
            Pattern(
                "storage has wrong ",
                r"storage has wrong (?:byte )?size: expected (?P<expected>-?\d{1,20}|%ld) got (?P<got>-?\d{1,20}|%ld)",
            ),
        ),
        causes=(
            "The copy or the download is not complete, or the disk was full while saving.",
            "The file was read with pickle.load instead of torch.load.",
            "The file is of another form: safetensors, a zip that was unpacked, a text file of Git LFS.",
        ),
        fixes=(
            Fix(
                "Compare the size with the original, and look at the first bytes.",
                "ls -l model.pt; head -c 64 model.pt",
            ),
            Fix(
                "Read it with torch.load.",
                'state = torch.load("model.pt", map_location="cpu", weights_only=True)',
                first_for=("persistent",),
            ),
            Fix("Copy or download it again, or use the checkpoint before it."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_SERIALIZATION,),
        said_by="torch 1.13-2.13, Python 3.8-3.14",
    ),
    KnownError(
        id="pickle-empty",
        section=SECTION,
        title="Nothing to unpickle: an empty file, or a process that could not be started",
        summary="A pickle ended before its first object. In a traceback with spawn.py, the process that starts the"
        " workers"
        " failed, and its own error stands above.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("EOFError: Ran out of input"),),
        causes=(
            "The file is empty: the job was killed, or the disk was full, while it was written.",
            "On Windows and macOS: an object of the dataset cannot be sent to a worker; the first traceback names it.",
        ),
        fixes=(
            Fix(
                "The process that started this one failed to send the data set, for the reason in the other"
                " traceback: load"
                " data in the main process.",
                "loader = DataLoader(dataset, num_workers=0)",
                first_for=("started process",),
                hidden_otherwise=True,
            ),
            Fix("Check the size of the file.", "ls -l model.pt"),
            Fix("In a DataLoader, load data in the main process.", "loader = DataLoader(dataset, num_workers=0)"),
            Fix("Download the file again, or use the checkpoint before it."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.python.org/3/library/pickle.html",),
        said_by="Python 3.6-3.14",
        is_echo=True,
    ),
    KnownError(
        id="checkpoint-class",
        section=SECTION,
        title="Checkpoint needs a class that this program does not have",
        summary="The whole model was saved as an object, and its class is not found under the same name.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Can't get attribute '",
                r"Can't get attribute '(?P<class>\w{1,80})' on <module"
                r" '(?P<module>__main__(?!' \(built-in)|torch[\w.]{0,60}|models?[\w.]{0,60}|ultralytics[\w.]{0,80})'",
            ),
        ),
        causes=(
            "The model was saved with torch.save(model): the class must exist in a module of the same name.",
            "With spawn, the class is defined below the main guard.",
            "The checkpoint is of another version of the package.",
        ),
        fixes=(
            Fix("Import the class under the old name before loading.", "from model import Model  # noqa: F401"),
            Fix(
                "Upgrade PyTorch: the checkpoint was saved by a newer version.",
                "pip install --upgrade torch",
                first_for=("<module 'torch",),
            ),
            Fix(
                "If the class belongs to a package, upgrade the package.",
                "pip install --upgrade ultralytics",
                first_for=("ultralytics",),
            ),
            Fix("Save the state instead of the object.", 'torch.save(model.state_dict(), "model.pt")'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_SERIALIZATION,),
        said_by="torch 1.13-2.13, Python 3.8-3.14",
    ),
    KnownError(
        id="checkpoint-write",
        section=SECTION,
        title="Checkpoint cannot be written or read",
        summary="The folder does not exist, or the file system failed.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Parent directory ", r"Error: Parent directory (?P<folder>[^\n]{1,160}?) does not exist"),
            Pattern(
                "Error while serializing: ",
                r"SafetensorError: Error while serializing: (?P<reason>(?:I/O error: (?!No space)[\w ]{8}"
                r"|IoError\(Os \{ code: (?!28,)\d{1,5},)[^\n]{0,120})",
            ),
            Pattern(
                "Stale file handle",
                r"Errno 116\] Stale file handle(?!: [^\n]{0,160}?(?:triton|torchinductor|torch_ext))",
            ),
            Pattern("cannot be opened", r"Error: File (?P<folder>[^\n]{1,160}?) cannot be opened"),
        ),
        causes=(
            "The folder of the checkpoint was not created on this node.",
            "A network file system (NFS, Lustre) lost the file or the connection, or a disk fails.",
            "Two jobs write or delete the same files.",
            "The file that is to be replaced is still open, as that of the loaded model is on Windows.",
        ),
        fixes=(
            Fix("Write to another folder on a local disk, and copy it afterwards."),
            Fix(
                "Create the folder before saving.",
                'import os\n\nos.makedirs("checkpoints", exist_ok=True)',
                first_for=("Parent directory", "cannot be opened"),
            ),
            Fix(
                "On Windows, end what has the old file open, such as a program that loaded it, or save under"
                " another name.",
                first_for=("code: 1224", "os error 1224"),
            ),
            Fix(
                "Look for errors of the file system on this host.",
                "sudo dmesg -T | grep -i -E 'i/o error|nfs|lustre|nvme' | tail",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_SERIALIZATION,),
        said_by="torch 1.13-2.13, Python 3.8-3.14",
    ),
)
