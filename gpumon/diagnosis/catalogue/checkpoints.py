"""Errors of checkpoints: files that cannot be read or written, and contents that do not fit the model.

The wordings are reproduced with PyTorch 2.13 and safetensors; older ones, such as HeaderTooLarge, are from reports.
"""

from dataclasses import replace
from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Checkpoints"

_LOAD: Final = "https://docs.pytorch.org/docs/stable/generated/torch.load.html"
_SERIALIZATION: Final = "https://docs.pytorch.org/docs/stable/notes/serialization.html"
_LOAD_STATE_DICT: Final = (
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html#torch.nn.Module.load_state_dict"
)

_DOWNLOAD_AGAIN: Final = Fix(
    "Download the file again, into an empty place.", "hf download OWNER/MODEL --force-download"
)
_SIZE: Final = Fix(
    "Check the size and the first bytes: a text that starts with `version https://git-lfs` is only a pointer.",
    "ls -lh model.safetensors; head -c 100 model.safetensors",
)
_GIT_LFS: Final = Fix("For a pointer of Git LFS, fetch the file itself.", "git lfs install && git lfs pull")
WRITE_ATOMICALLY: Final = Fix(
    "Write checkpoints to a temporary name and rename them, so that an interrupted job leaves none half-written.",
    'import os\n\ntorch.save(state, "last.pt.tmp")\nos.replace("last.pt.tmp", "last.pt")',
)
_PREVIOUS: Final = Fix("Load the previous checkpoint; a truncated one cannot be repaired.")

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="weights-only",
        section=SECTION,
        title="Checkpoint contains more than weights",
        summary="Since PyTorch 2.6, torch.load reads only tensors and known types; this file contains another type.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Weights only load failed. This file can still be loaded",
                r"Weights only load failed\. This file can still be loaded",
            ),
            Pattern(
                "UnpicklingError: Weights only load failed",
                r"UnpicklingError: Weights only load failed\b(?!\.?\s{0,4}(?:Re|In\b))",
            ),
            Pattern(
                "WeightsUnpickler error: Unsupported ",
                r"WeightsUnpickler error: Unsupported"
                r" (?:global: GLOBAL (?P<type>[\w.]{1,120})|class (?P<class>[\w.]{1,120}))",
            ),
            Pattern(
                "was not an allowed global by default",
                r"GLOBAL (?P<type>[\w.]{1,120}) was not an allowed global by default",
            ),
            Pattern(
                "with `weights_only` set to `False` will likely succeed",
                r"Re-running `torch\.load` with `weights_only` set to `False` will likely succeed",
            ),
        ),
        causes=(
            "The checkpoint was saved with an optimizer, arguments, NumPy values or a whole model in it.",
            "A library that calls torch.load is older than PyTorch 2.6.",
        ),
        fixes=(
            Fix(
                "If you trust the file's source, load everything.",
                'state = torch.load(path, map_location="cpu", weights_only=False)',
            ),
            Fix(
                "Or permit only the type that the message names, such as this one; never a function such as os.system.",
                "import argparse\n\ntorch.serialization.add_safe_globals([argparse.Namespace])",
            ),
            Fix(
                "If a library calls torch.load and the file is trusted, upgrade the library, or change the default.",
                "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1 python train.py",
            ),
            Fix("Save only state_dict() in new checkpoints.", "torch.save(model.state_dict(), path)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LOAD, _SERIALIZATION),
        said_by="torch 2.6-2.13",
    ),
    KnownError(
        id="checkpoint-not-torch",
        section=SECTION,
        title="File is not a checkpoint",
        summary="The file does not begin like a PyTorch file: it is a pointer, a web page, another format, or damaged.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("UnpicklingError: invalid load key", r"UnpicklingError: invalid load key, '(?P<key>[^'\n]{1,8})'"),
            Pattern(
                "Weights only load failed. In PyTorch 2.6",
                r"Weights only load failed\. In PyTorch 2\.6, we changed the default value of the `weights_only`",
            ),
            Pattern(
                "Unsupported operand ",
                r"(?:WeightsUnpickler error: {0,2}|^)Unsupported operand (?P<byte>\d{1,3})\b",
            ),
        ),
        causes=(
            "Key 'v': the file is a Git LFS pointer; '<': it is a web page, such as an error or a login page.",
            "It is a safetensors or GGUF file with another ending.",
            "The file is damaged, or only part of it was copied.",
        ),
        fixes=(
            Fix("Look at the file.", "ls -lh model.pt; head -c 100 model.pt"),
            replace(_GIT_LFS, first_for=("operand 118", "load key, 'v'")),
            _DOWNLOAD_AGAIN,
            Fix(
                "Load safetensors files with their own function.",
                "from safetensors.torch import load_file\n\nstate = load_file(path)",
            ),
            Fix(
                "If it is a web page, delete the file and download it again: the address of a file on a hub"
                " contains `resolve`, not `blob`; a gated file needs a login.",
                "hf download OWNER/MODEL --force-download",
                first_for=("load key, '<'",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LOAD, _SERIALIZATION),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="checkpoint-truncated",
        section=SECTION,
        title="Checkpoint is damaged or incomplete",
        summary="The file ends too early or its directory is missing: it was not written or not copied completely.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "PytorchStreamReader failed",
                r"PytorchStreamReader failed (?P<operation>[^\n:]{1,80}): (?P<reason>failed finding central directory"
                r"|invalid header or archive is corrupted|file read failed|not a ZIP archive|file not found|"
                r"[a-z][^\n]{1,60})",
            ),
            Pattern(
                "more bytes. The file might be corrupted",
                r"unexpected EOF, expected (?P<missing>\d{1,16}) more bytes\. The file might be corrupted",
            ),
            Pattern(
                "Unable to load weights from pytorch checkpoint file",
                r"Unable to load weights from pytorch checkpoint file for '(?P<file>[^'\n]{1,200})'",
            ),
        ),
        causes=(
            "The job was killed, or the disk was full, while the checkpoint was written.",
            "A download or copy was interrupted.",
            "Another process is still writing it, as when every rank writes to the same file.",
        ),
        fixes=(
            _DOWNLOAD_AGAIN,
            _PREVIOUS,
            Fix(
                "Check the file; a complete checkpoint is a valid ZIP archive.",
                "ls -l checkpoint.pt; python -m zipfile -t checkpoint.pt",
                first_for=("failed locating file",),
            ),
            WRITE_ATOMICALLY,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_SERIALIZATION,),
        said_by="torch 1.13-2.13, transformers 4.36-4.57",
    ),
    KnownError(
        id="safetensors-header",
        section=SECTION,
        title="safetensors file is damaged or incomplete",
        summary="The header of the file cannot be read, or the file is shorter than its header says.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Error while deserializing header",
                r"Error while deserializing header: (?P<reason>[^\n]{1,160})",
            ),
            Pattern(
                "Error while deserializing: ", r"SafetensorError: Error while deserializing: (?P<reason>[^\n]{1,160})"
            ),
        ),
        causes=(
            "HeaderTooLarge, header too large: the file is a Git LFS pointer, a web page or another format.",
            "MetadataIncompleteBuffer, file not fully covered: the download or the copy was interrupted.",
            "HeaderTooSmall: the file is empty. Invalid JSON: it was not written completely.",
        ),
        fixes=(
            _SIZE,
            replace(_DOWNLOAD_AGAIN, first_for=("IncompleteBuffer",)),
            replace(_GIT_LFS, first_for=("HeaderToo",)),
            Fix("If a job of yours wrote the file, load the previous checkpoint; this one was not written completely."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/safetensors/blob/main/safetensors/src/tensor.rs",),
        said_by="safetensors 0.4-0.7",
    ),
    KnownError(
        id="state-dict-mismatch",
        section=SECTION,
        title="Checkpoint does not fit the model",
        summary="The names or shapes of the weights in the checkpoint differ from those of the model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Error(s) in loading state_dict for",
                r"Error\(s\) in loading state_dict for (?P<model>[\w.]{1,80})"
                r"(?!\w|[.:]?\s{1,4}While copying [^\n]{1,300}?Cannot copy out of meta"
                r"|[.:]?\s{1,20}size mismatch for [^\n]{1,300}?Size\(\[0\]\))",
            ),
            Pattern(
                "size mismatch for ",
                r"size mismatch for (?P<name>[\w.]{1,200}): copying a param with shape (?:torch\.Size\()?"
                r"(?P<shape>(?!\[0\])\[[\d, ]{0,60}\])\)? from checkpoint, the shape in current model is"
                r" (?:torch\.Size\()?"
                r"(?P<model_shape>(?!\[0\])\[[\d, ]{0,60}\])",
            ),
            Pattern("Missing key(s) in state_dict", r"Missing key\(s\) in state_dict: \"(?P<name>[\w.]{1,200})\""),
            Pattern(
                "Unexpected key(s) in state_dict",
                r"Unexpected key\(s\) in state_dict: \"(?P<unexpected>[\w.]{1,200})\"",
            ),
            literal("You set `ignore_mismatched_sizes` to `False`, thus raising an error"),
            Pattern(
                "KeyError: '",
                r"KeyError: '(?P<name>(?:model_|optimizer_|scheduler_)?state_dict|param_groups|optimizer_states?"
                r"|pytorch-lightning_version|model_state|optim(?:izer)?|"
                r"(?![\w.]{0,160}lora_|time_embed\.0|conv_in\.weight|(?:model\.diffusion|"
                r"cond_stage|"
                r"first_stage)_model\.|"
                r"(?:double|single)_blocks\.|conditioner\.)\w[\w.]{1,160}\.(?:weight|bias|running_mean|"
                r"lora_[AB]|qweight|scales))'",
            ),
            Pattern('KeyError: "', r"KeyError: \"(?P<name>\w[\w.]{1,160}\.(?:weight|bias))\""),
            Pattern(
                "does not have a parameter or a buffer named",
                r"(?P<model>\w{1,80}) does not have a parameter or a buffer named (?P<unexpected>[\w.]{1,200})",
            ),
            Pattern(
                "Trying to set a tensor of shape ",
                r"Trying to set a tensor of shape (?P<checkpoint>torch\.Size\([^)\n]{1,60}\)) in"
                r" \"(?P<name>[\w.]{1,120})\""
                r" \(which has shape (?P<shape>torch\.Size\([^)\n]{1,60}\))",
            ),
            Pattern(
                " expected shape ",
                r"\b(?P<name>\w[\w.]{1,120}) expected shape (?:tensor\(|torch\.Size\()[^\n]{1,80}?, but got"
                r" (?P<shape>torch\.Size\([^)\n]{1,60}\))",
            ),
        ),
        causes=(
            "The model was built with another configuration: number of classes, vocabulary, hidden size.",
            "Names start with module.: saved from DataParallel or DDP; with _orig_mod.: saved from a compiled model.",
            "The checkpoint belongs to another version of the code, or contains an adapter only.",
        ),
        fixes=(
            Fix(
                "Compare the names.",
                "own = set(model.state_dict())\nprint(sorted(own - set(state))[:10], sorted(set(state) - own)[:10])",
            ),
            Fix(
                "Remove the prefix of DDP or torch.compile.",
                """\
prefixes = ("module.", "_orig_mod.")
for prefix in prefixes:
    state = {name.removeprefix(prefix): value for name, value in state.items()}
model.load_state_dict(state)""",
            ),
            Fix("Build the model with the configuration with which it was saved."),
            Fix(
                "Leave out what has another shape, such as a head for other classes.",
                """\
own = model.state_dict()
state = {name: value for name, value in state.items() if name in own and value.shape == own[name].shape}
model.load_state_dict(state, strict=False)""",
            ),
            Fix(
                "These are buffers, not weights, which newer transformers no longer saves: load without them, or"
                " install the release of transformers with which the checkpoint was saved.",
                "model.load_state_dict(state, strict=False)",
                first_for=(".attn.bias", ".masked_bias", "position_ids"),
                hidden_otherwise=True,
            ),
            Fix(
                "For Swin of timm, whose layers changed in timm 0.9, install the version of the checkpoint.",
                'pip install "timm<0.9"',
                first_for=(".downsample.norm.", ".downsample.reduction."),
            ),
            Fix(
                "With transformers, replace a head of another size.",
                "model = AutoModel.from_pretrained(name, num_labels=3, ignore_mismatched_sizes=True)",
            ),
            Fix("Load what fits, and check what is missing.", "print(model.load_state_dict(state, strict=False))"),
            Fix(
                "If tokens were added, resize the embeddings before the checkpoint or the adapter is loaded.",
                "model.resize_token_embeddings(len(tokenizer))",
            ),
            Fix(
                "With ZeRO-3, the parameters are empty until they are gathered: load through from_pretrained, or"
                " gather them.",
                "with deepspeed.zero.GatheredParameters(list(model.parameters()), modifier_rank=0):\n   "
                " model.load_state_dict(state)",
            ),
            Fix(
                "This is not the state of an optimizer: load what optimizer.state_dict() returned, or start with"
                " a new optimizer.",
                "print(checkpoint.keys())",
                first_for=("param_groups",),
                hidden_otherwise=True,
            ),
            Fix(
                "The file holds the empty tensors of ZeRO-3: convert the checkpoint, or let DeepSpeed gather the"
                " weights when it saves.",
                "python zero_to_fp32.py . consolidated",
                first_for=("shape torch.Size([0]) in",),
                hidden_otherwise=True,
            ),
            Fix(
                "Update ComfyUI and the node that loads: the file is of a newer version of the model, or of another.",
                "git -C ComfyUI pull; git -C ComfyUI/custom_nodes/ComfyUI-GGUF pull",
                first_for=("ComfyUI",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_LOAD_STATE_DICT,),
        said_by="torch 1.13-2.13, transformers 4.36-5.0, safetensors 0.4-0.7",
    ),
    KnownError(
        id="optimizer-state-mismatch",
        section=SECTION,
        title="Optimizer state does not fit the optimizer",
        summary="The checkpoint's optimizer has other parameter groups than the optimizer that loads it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("loaded state dict contains a parameter group that doesn't match the size of optimizer's group"),
            literal("loaded state dict has a different number of parameter groups"),
        ),
        causes=(
            "Layers were added, removed, frozen or unfrozen since the checkpoint.",
            "Another library version or setting groups the parameters in another way, such as without weight decay.",
        ),
        fixes=(
            Fix("Create the optimizer from the same parameters, in the same groups, as when it was saved."),
            Fix(
                "Or load only the weights, and start with a new optimizer.",
                'model.load_state_dict(checkpoint["model"])\noptimizer = torch.optim.AdamW(model.parameters())',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html",),
        said_by="torch 1.13-2.13, bitsandbytes 0.44-0.50",
    ),
    KnownError(
        id="torch-load-blocked",
        section=SECTION,
        title="transformers requires PyTorch 2.6 to load .bin files",
        summary="Loading .bin files is unsafe before PyTorch 2.6, so transformers refuses to do it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(literal("Due to a serious vulnerability issue in `torch.load`"),),
        causes=("The model is stored as .bin files, and the installed PyTorch is older than 2.6.",),
        fixes=(
            Fix("Upgrade PyTorch.", "pip install --upgrade torch"),
            Fix(
                "Or load the model's safetensors files, if it has them.",
                "model = AutoModel.from_pretrained(name, use_safetensors=True)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://nvd.nist.gov/vuln/detail/CVE-2025-32434",
            "https://github.com/huggingface/transformers/blob/main/src/transformers/utils/import_utils.py",
        ),
        said_by="transformers 4.57-5.0",
    ),
    KnownError(
        id="shared-tensors",
        section=SECTION,
        title="safetensors cannot save shared tensors",
        summary="Two names of the state share one tensor, such as tied embeddings, which safetensors does not store.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Some tensors share memory, this will lead to",
                r"Some tensors share memory, this will lead to duplicate memory on disk",
            ),
            Pattern(
                "trying to be saved contained shared tensors",
                r"The weights trying to be saved contained shared tensors(?: \[?(?P<names>[^\n]{1,120}))?",
            ),
            literal("You are trying to save a non contiguous tensor"),
        ),
        causes=("Weights are tied, or a tensor is a view of another one.",),
        fixes=(
            Fix(
                "Save the model instead of its state, which handles tied weights.",
                'from safetensors.torch import save_model\n\nsave_model(model, "model.safetensors")',
            ),
            Fix(
                "Or, with a trainer of transformers before 5, let it use torch.save.",
                "arguments = TrainingArguments(save_safetensors=False)",
            ),
            Fix(
                "Copy views before saving.",
                "state = {name: value.contiguous().clone() for name, value in state.items()}",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/safetensors/torch_shared_tensors",),
        said_by="transformers 4.57-5.0, safetensors 0.4-0.7",
    ),
    KnownError(
        id="meta-tensor",
        section=SECTION,
        title="Weights were not loaded",
        summary="A parameter is on the meta device: it has a shape and no values, because nothing was loaded into it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("Cannot copy out of meta tensor; no data!"),
            Pattern(
                "cannot be called on meta tensors",
                r"Tensor\.item\(\) cannot be called on meta tensors",
            ),
            Pattern(
                "Tensor on device meta is not on the expected device",
                r"Tensor on device meta is not on the expected device",
            ),
            Pattern(
                "is on the meta device, we need a `value`",
                r"(?P<name>[\w.]{1,200}) is on the meta device, we need a `value` to put in on",
            ),
            Pattern(
                "is a no-op. (Did you mean to pass `assign=True`",
                r"which is a no-op\. \(Did you mean to pass `assign=True`",
            ),
        ),
        causes=(
            "The model was loaded with device_map or offloaded to the CPU or the disk, and is then moved with .to().",
            "The model was created on the meta device, and load_state_dict was called without assign=True.",
            "The checkpoint lacks this parameter.",
        ),
        fixes=(
            Fix(
                "With transformers or diffusers, load onto one GPU, and do not call .to() afterwards.",
                'model = AutoModelForCausalLM.from_pretrained(name, device_map={"": 0})',
            ),
            Fix(
                "Put the checkpoint's tensors into the model.",
                "model.load_state_dict(state, strict=True, assign=True)",
                first_for=("assign=True",),
            ),
            Fix(
                "Or allocate memory, then initialize every layer.",
                "model = model.to_empty(device=device)",
            ),
            Fix(
                "Install a version before transformers 5, which creates each model without memory first, as the code of"
                " this model does not allow; or newer code of the model.",
                'pip install "transformers<5"',
                first_for=("cannot be called on meta",),
            ),
            Fix(
                "Find the parameters without values.",
                "print([name for name, value in model.named_parameters() if value.is_meta])",
            ),
            Fix(
                "In a program for images, start without the option that loads without memory, and with a fresh model.",
                "python launch.py --disable-model-loading-ram-optimization",
                first_for=("While copying the parameter",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/meta.html",),
        said_by="torch 1.13-2.13, transformers 4.36-4.57, accelerate 0.25-1.12",
    ),
    KnownError(
        id="dcp-failed",
        section=SECTION,
        title="Distributed checkpoint failed",
        summary="Saving or loading a distributed checkpoint failed on some ranks; the lines after this one show why.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "CheckpointException ranks:",
                r"CheckpointException ranks: ?(?:dict_keys\()?\[(?P<ranks>[\d, ]{0,200})\]",
            ),
        ),
        causes=(
            "Names or shapes of the model or the optimizer differ from those in the checkpoint.",
            "A file is missing, or the disk is full.",
        ),
        fixes=(
            Fix("Read the exception of the first rank below this message."),
            Fix(
                "Get and set the state with the functions for it, which know the names that FSDP uses.",
                """\
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

model_state, optimizer_state = get_state_dict(model, optimizer)""",
            ),
            Fix(
                "Convert a distributed checkpoint to a single file.",
                "python -m torch.distributed.checkpoint.format_utils dcp_to_torch checkpoint checkpoint.pt",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/distributed.checkpoint.html",),
        said_by="torch 1.13-2.13",
        is_echo=True,
    ),
)
