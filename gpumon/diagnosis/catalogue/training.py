"""Errors of the training step: autograd, gradient scaling, types, and indices.

Most wordings are reproduced with PyTorch 2.13; they have hardly changed since 1.13.
"""

from typing import Final

from gpumon.diagnosis.catalogue import fixes, sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Training step"

_AUTOGRAD: Final = "https://docs.pytorch.org/docs/stable/notes/autograd.html"
_AMP_EXAMPLES: Final = "https://docs.pytorch.org/docs/stable/notes/amp_examples.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="graph-freed",
        section=SECTION,
        title="Backward through the same graph twice",
        summary="The graph is freed by backward, and a second backward pass reached a part of it again.",
        context=ContextState.ALIVE,
        patterns=(literal("Trying to backward through the graph a second time"),),
        causes=(
            "A tensor of the previous step is still part of the graph: a hidden state, a running sum of losses.",
            "Two losses share a part of the graph, and backward is called for each.",
        ),
        fixes=(
            Fix("Detach what is kept from step to step.", "hidden = hidden.detach()"),
            Fix("Add the losses, and call backward once.", "(first_loss + second_loss).backward()"),
            Fix("Add up the value of a loss, not its graph.", "total += loss.item()"),
            Fix("Only if both passes are intended, keep the graph.", "loss.backward(retain_graph=True)"),
            Fix(
                "Under torch.compile with activation checkpointing, run without compilation: if it works then, upgrade"
                " PyTorch and the library that compiles the model.",
                "TORCH_COMPILE_DISABLE=1 UNSLOTH_COMPILE_DISABLE=1 python train.py",
                first_for=("torch.compile",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AUTOGRAD,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="inplace-modified",
        section=SECTION,
        title="Tensor was changed before its gradient was computed",
        summary="An operation in place changed a value that backward needs.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                " modified inplace",
                r"Output \d{1,3} of (?P<operation>\w{1,60}) is a view and (?:its base or another view of its base has"
                r" been|is being)"
                r" modified inplace",
            ),
            Pattern(
                "has been modified by an inplace operation",
                r"one of the variables needed for gradient computation has been modified by an inplace operation"
                r"(?:: \[torch\.(?P<type>[\w.]{1,40}) \[(?P<shape>[\d, ]{0,60})\]\])?",
            ),
            literal("a leaf Variable that requires grad is being used in an in-place operation"),
            literal("a view of a leaf Variable that requires grad is being used in an in-place operation"),
        ),
        causes=(
            "An operator such as +=, relu_ or an assignment to a slice changed the tensor.",
            "An optimizer step between two backward passes changed the weights.",
            "With DDP, buffers are broadcast before each forward, and forward was called twice before backward.",
        ),
        fixes=(
            Fix(
                "Find the operation; its stack is printed before the error.", "torch.autograd.set_detect_anomaly(True)"
            ),
            Fix("Write the result to a new tensor.", "hidden = hidden + residual"),
            Fix(
                "To change a parameter itself, do it without a graph.",
                "with torch.no_grad():\n    weight.mul_(0.5)",
                first_for=("leaf Variable",),
            ),
            Fix("With several optimizers, compute all gradients before the first step."),
            Fix(
                "With DDP, do not broadcast buffers.", "model = DistributedDataParallel(model, broadcast_buffers=False)"
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AUTOGRAD,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="no-gradient",
        section=SECTION,
        title="Loss has no gradient",
        summary="No parameter that is trained took part in computing the loss.",
        context=ContextState.ALIVE,
        patterns=(
            literal("none of output has requires_grad=True, this checkpoint() is not necessary"),
            Pattern(
                "does not require grad and does not have a",
                r"element (?P<element>\d{1,6}) of (?:tensors|variables) does not require grad and does not have a",
            ),
            literal("None of the inputs have requires_grad=True. Gradients will be None"),
            literal("optimizer got an empty parameter list"),
            Pattern("for psg in self.fp", r"ds_numel for p in psg\]\) for psg in self\.fp16_partitioned_groups"),
            literal("optimizing a parameter that doesn't require gradients"),
        ),
        causes=(
            "All parameters are frozen; with LoRA and gradient checkpointing, the inputs do not require gradients.",
            "The loss was computed under no_grad, with detach(), .item() or NumPy.",
        ),
        fixes=(
            Fix(
                "Check what is trained.", "print([name for name, p in model.named_parameters() if p.requires_grad][:5])"
            ),
            Fix(
                "With LoRA and gradient checkpointing, let the inputs require gradients.",
                "model.enable_input_require_grads()",
                first_for=("LoRA",),
            ),
            Fix(
                "Use checkpointing without reentrance.",
                'model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AUTOGRAD, "https://huggingface.co/docs/peft/developer_guides/troubleshooting"),
        said_by="torch 1.13-2.13, Lightning 2.1-2.6",
    ),
    KnownError(
        id="scaler-fp16",
        section=SECTION,
        title="Gradient scaling with float16 weights",
        summary="The trained weights are float16; gradient scaling needs float32 weights, which autocast converts.",
        context=ContextState.ALIVE,
        patterns=(literal("Attempting to unscale FP16 gradients"),),
        causes=("The model was loaded in half precision, and the trainer uses fp16 as well.",),
        fixes=(
            Fix(
                "Load the model in float32, and keep fp16 of the trainer.",
                "model = AutoModelForCausalLM.from_pretrained(name, dtype=torch.float32)",
            ),
            Fix(
                "Or train in bfloat16, which needs no scaling.", "arguments = TrainingArguments(bf16=True, fp16=False)"
            ),
            Fix(
                "With adapters, only the adapter must be float32.",
                "for parameter in model.parameters():\n    if parameter.requires_grad:\n        parameter.data ="
                " parameter.data.float()",
                first_for=("LoRA",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP, "https://huggingface.co/docs/peft/developer_guides/troubleshooting"),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="scaler-order",
        section=SECTION,
        title="Gradient scaler used in the wrong order",
        summary="The scaler's step found no scaled gradients, or unscaled them twice.",
        context=ContextState.ALIVE,
        patterns=(
            literal("No inf checks were recorded for this optimizer"),
            literal("unscale_() has already been called on this optimizer since the last update()"),
            literal("unscale_() is being called after step()"),
            literal("step() has already been called since the last update()"),
            literal("No inf checks were recorded prior to update"),
            literal("The source state dict is empty, possibly because it was saved from a disabled instance"),
            literal("Closure use is not currently supported if GradScaler is enabled"),
            Pattern("_scale is None.", r"Attempted (?:unscale_|step|update|scale) but _scale is None\."),
        ),
        causes=(
            "The loss was not scaled, or no parameter of the optimizer got a gradient.",
            "Gradients are clipped or accumulated in more than one place.",
            "An iteration did not call scaler.update(), for example because it skipped the step.",
        ),
        fixes=(
            Fix(
                "Call unscale_() once in each iteration and update() at its end, also where the step is skipped; step()"
                " itself skips gradients that are not finite.",
                "scaler.unscale_(optimizer)\nscaler.step(optimizer)\nscaler.update()",
                first_for=("unscale_() has already been called", "unscale_() is being called after step()"),
            ),
            Fix(
                "Keep to this order.",
                """\
scaler.scale(loss).backward()
scaler.unscale_(optimizer)
torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
scaler.step(optimizer)
scaler.update()
optimizer.zero_grad()""",
            ),
            Fix(
                "Check that the parameters get gradients.", "print(sum(p.grad is not None for p in model.parameters()))"
            ),
            Fix(
                "Or train in bfloat16, without a scaler.",
                'with torch.autocast("cuda", dtype=torch.bfloat16):\n    loss = model(batch)',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AMP_EXAMPLES,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="mixed-precision-cpu",
        section=SECTION,
        title="Mixed precision without a GPU",
        summary="Training in float16 needs a GPU, and the process uses the CPU.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("CUDA is not available or torch_xla is imported. Disabling autocast"),
            Pattern("fp16 mixed precision requires a ", r"fp16 mixed precision requires a (?:GPU|device in)"),
            Pattern(
                "can only be used on CUDA devices",
                r"FP16 [Mm]ixed precision training [^\n]{0,160}?can only be used on CUDA devices",
            ),
            literal("User provided device_type of 'cuda', but CUDA is not available. Disabling"),
            Pattern(
                "can only be used on CUDA devices",
                r"Mixed precision training with AMP [^\n]{0,120}?can only be used on CUDA devices",
            ),
        ),
        causes=("PyTorch is a CPU-only build, the process sees no GPU, or the device was set to the CPU.",),
        fixes=(
            Fix(
                "Check what PyTorch sees.",
                "python -c 'import torch; print(torch.version.cuda, torch.cuda.device_count())'",
            ),
            Fix(
                "Install a build with CUDA.",
                "pip install --force-reinstall torch --index-url https://download.pytorch.org/whl/cu130",
            ),
            Fix(
                "Or train on the CPU in float32 or bfloat16.", "arguments = TrainingArguments(fp16=False, use_cpu=True)"
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP, "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py"),
        said_by="torch 1.13-2.13, accelerate 0.28-1.14",
    ),
    KnownError(
        id="type-unsupported",
        section=SECTION,
        title="Operator does not support this type",
        summary="PyTorch has no kernel of this operator for this type on this device.",
        context=ContextState.ALIVE,
        patterns=(
            literal("AutocastCPU only support Bfloat16 as the autocast_cpu_dtype"),
            Pattern(
                '" not implemented for ',
                r"\"(?P<operator>[\w: ]{1,80})\" not implemented for '(?P<type>\w{1,30})'",
            ),
            Pattern(
                "Pipelines loaded with `",
                r"Pipelines loaded with `(?:torch_)?dtype=torch\.(?P<type>\w{4,10})` cannot run with `cpu` device",
            ),
            Pattern(
                "could not infer output dtype",
                r"(?P<operator>\w{1,20})\(\): could not infer output dtype\. Input dtype must be either a"
                r" floating point or"
                r" complex dtype\. Got: (?P<type>\w{1,20})",
            ),
            Pattern(
                "not supported on C", r"(?P<operator>\w{1,60}) not supported on (?:CPU|CUDA)Type for (?P<type>\w{1,20})"
            ),
        ),
        causes=(
            (
                "A name with cpu, or addmm_impl_cpu_: the model runs on the CPU in half precision, which it does not"
                " support."
            ),
            "The type is Float8: it is only for storage and matrix products.",
            "The type is Long, Int or Bool: an index or a label was used as a value.",
        ),
        fixes=(
            Fix("If a GPU is there, move the model and the inputs to it.", 'model = model.to("cuda")'),
            Fix("On the CPU, use float32 or bfloat16.", "model = model.float()"),
            Fix(
                "On AMD, do without TunableOp, which has no float8.",
                "PYTORCH_TUNABLEOP_ENABLED=0 python train.py",
                first_for=("_tunable_",),
            ),
            Fix(
                "Use no gradient scaler with bfloat16, which needs none; or load the trained weights in float32.",
                "arguments = TrainingArguments(bf16=True, fp16=False)",
                first_for=("_amp_foreach_non_finite_check_and_unscale",),
            ),
            Fix("Labels of classes must be of type long.", "labels = labels.long()", first_for=('_index"',)),
            Fix(
                "The weights are quantized to whole numbers, which cannot be initialized: initialize only the others,"
                " or load the model without quantization.",
                "if parameter.is_floating_point():\n    torch.nn.init.kaiming_uniform_(parameter)",
                first_for=("check_uniform_bounds",),
                hidden_otherwise=True,
            ),
            Fix(
                "Convert this tensor for this operation.",
                "output = operation(value.float())",
                first_for=("'Long'", "'Int'", "'Bool'", "Float8", "_cuda"),
            ),
            Fix("Upgrade PyTorch, which supports more types.", "pip install --upgrade torch"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP,),
        said_by="torch 1.13-2.13, vLLM 0.4-0.19, transformers 4.57-5.0, SGLang 0.4-0.5",
    ),
    KnownError(
        id="operator-device",
        section=SECTION,
        title="Operator not available on this device",
        summary="This operator has no kernel for this device or layout in the installed packages.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "with arguments from the '",
                r"Could not run '(?P<operator>(?!torchvision::|torchcodec_ns::)[\w:.]{1,80})' with arguments from the"
                r" '(?P<backend>\w{1,40})'"
                r" backend",
            ),
            Pattern(
                "Didn't find engine for operation",
                r"Didn't find engine for operation (?P<operator>quantized::\w{1,60}) (?P<backend>NoQEngine)",
            ),
        ),
        causes=(
            "CUDA: the package with the operator was built without CUDA, or the model is quantized for the CPU.",
            "CUDA: PyTorch is a CPU-only build, and a TorchScript file contains the device.",
            "SparseCUDA: the operator does not support sparse tensors.",
        ),
        fixes=(
            Fix("Read in the message for which backends the operator is available."),
            Fix(
                "Install the package's build with CUDA, which must match PyTorch.", "pip list | grep -i -E 'torch|cuda'"
            ),
            Fix(
                "Run this part on the CPU.",
                "output = layer.cpu()(value.cpu()).to(device)",
                first_for=("from the 'Sparse",),
            ),
            Fix(
                "On an Apple GPU, let PyTorch run missing operators on the CPU.",
                "PYTORCH_ENABLE_MPS_FALLBACK=1 python train.py",
                first_for=("from the 'MPS'",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(Fix("Show versions and build.", "python -m torch.utils.collect_env"),),
        sources=(sources.PYTORCH_INSTALL,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="index-range",
        section=SECTION,
        title="Index or label out of range",
        summary="An index is not less than the size of the table: on a GPU, the same error is a device-side assert.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("index out of range in self", r"IndexError: index out of range in self"),
            literal("selected index k out of range"),
            Pattern(
                "element is out of DATA bounds",
                r"INDICES element is out of DATA bounds, id=(?P<index>-?\d{1,19}) axis_dim=(?P<size>\d{1,19})",
            ),
            Pattern(
                "Detected more unique values in `target`",
                r"Detected more unique values in `target` than expected\. Expected only (?P<size>\d{1,9}) but found"
                r" (?P<target>\d{1,9})",
            ),
            Pattern(
                "Detected the following values in `",
                r"Detected the following values in `(?:target|preds)`: [^\n]{1,200} but expected only the following",
            ),
            Pattern("Label values must be <= vocab_size", r"Label values must be <= vocab_size: (?P<size>\d{1,9})"),
            literal("cannot sample n_sample > prob_dist.size(-1) samples without replacement"),
            Pattern(
                "Please ensure that all indices in 'edge_index'",
                r"Please ensure that all indices in 'edge_index' point to valid indices in the interval"
                r" (?P<range>\[[\w, -]{1,40}\])",
            ),
            Pattern("cur_target < n_classes' failed", r"Assertion `cur_target >= 0 && cur_target < n_classes' failed"),
            Pattern(" is out of bounds.", r"IndexError: Target (?P<target>-?\d{1,19}) is out of bounds\."),
            Pattern("Label values must be ", r"Label values must be <= vocab_size: (?P<size>\d{1,9})"),
        ),
        causes=(
            (
                "Embedding: a token or position is not less than num_embeddings; the tokenizer has more tokens than"
                " the model."
            ),
            "Loss: labels start at 1, or there are more classes than outputs; padding is not ignore_index.",
        ),
        fixes=(
            Fix(
                "Compare the values with the sizes.",
                "print(tokens.min(), tokens.max(), model.get_input_embeddings().num_embeddings)",
            ),
            Fix("Extend the model for new tokens.", "model.resize_token_embeddings(len(tokenizer))"),
            Fix(
                "Check the labels before the loss.",
                "assert 0 <= labels.min() and labels.max() < logits.shape[-1]",
                first_for=("Target", "cur_target"),
            ),
            Fix(
                "Speech to text with CTC: build the model with the size of your vocabulary, and its head new.",
                "model = AutoModelForCTC.from_pretrained(name, vocab_size=len(processor.tokenizer),"
                " pad_token_id=processor.tokenizer.pad_token_id, ignore_mismatched_sizes=True)",
                first_for=("Label values",),
            ),
            Fix(
                "Number the nodes of each graph from 0 without gaps, and give every node its row in x.",
                "assert data.edge_index.max() < data.x.size(0), (data.edge_index.max(), data.x.shape)",
                first_for=("edge_index", "PyG"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.Embedding.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="ctc-lengths",
        section=SECTION,
        title="Lengths do not fit the CTC loss",
        summary="The lengths of the inputs and targets that the CTC loss gets are not those of its tensors.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "_lengths must be of size batch_size",
                r"(?P<argument>(?:input|target)_lengths) must be of size batch_size",
            ),
            Pattern(
                "Expected input_lengths to have value at most",
                r"Expected input_lengths to have value at most (?P<limit>\d{1,9}), but got value (?P<length>\d{1,9})",
            ),
            Pattern(
                "for argument #2 'targets' (while",
                r"Expected tensor to have size at least (?P<length>\d{1,9}) at dimension 1, but got size"
                r" (?P<limit>\d{1,9}) ?for argument #2 'targets' \(while checking arguments for ctc_loss",
            ),
        ),
        causes=(
            "The lengths are those before the network made the sound shorter, or before the text was cut.",
            "The output has the batch first; the loss expects time, batch, classes.",
            "With torch.nn.DataParallel, each GPU gets a part of the batch, and the lengths of all.",
        ),
        fixes=(
            Fix(
                "Take the lengths from the tensors that the loss gets.",
                """\
log_probs = logits.log_softmax(-1).transpose(0, 1)
input_lengths = torch.full((log_probs.size(1),), log_probs.size(0))
assert target_lengths.max() <= targets.size(1), (target_lengths, targets.shape)""",
            ),
            Fix(
                "If the loss becomes infinite, leave out texts that are longer than their sound.",
                "zero_infinity = True",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.CTCLoss.html",),
        said_by="torch 1.5-2.13",
    ),
    KnownError(
        id="cusolver",
        section=SECTION,
        title="cuSOLVER, cuSPARSE or cuRAND failed",
        summary="The library for linear algebra could not create its handle or run its kernel.",
        context=ContextState.UNKNOWN,
        patterns=(
            Pattern("CUSOLVER_STATUS_", r"\bCUSOLVER_STATUS_(?P<status>[A-Z_]{1,40})"),
            Pattern("CUSPARSE_STATUS_", r"\bCUSPARSE_STATUS_(?P<status>[A-Z_]{1,40})"),
            Pattern("CURAND_STATUS_", r"\b(?P<status>CURAND_STATUS_(?!SUCCESS)\w{1,40})"),
        ),
        causes=(
            "The GPU has no memory left for the library's handle and workspace.",
            "INVALID_VALUE: the matrix is too large, or empty, for this algorithm.",
            "Another version of the library was loaded, from LD_LIBRARY_PATH or another package.",
            "An earlier error killed the CUDA context; this call is only the first that reports it.",
        ),
        fixes=(
            fixes.LIST_PROCESSES,
            Fix(
                "If the GPU is newer than this PyTorch, install a build for it.",
                "pip install --upgrade torch torchvision --index-url https://download.pytorch.org/whl/cu130",
            ),
            fixes.BUNDLED_LIBRARIES,
            Fix("Use MAGMA or another algorithm instead.", 'torch.backends.cuda.preferred_linalg_library("magma")'),
            Fix(
                "Install the DGL that was built for the CUDA version of PyTorch.",
                "pip install dgl -f https://data.dgl.ai/wheels/torch-2.4/cu124/repo.html",
                first_for=("CUSPARSE ERROR: ",),
            ),
            fixes.LAUNCH_BLOCKING,
            Fix(
                "Choose another algorithm for the singular values.",
                'torch.linalg.svd(matrix, full_matrices=False, driver="gesvd")',
                first_for=("gesvdj",),
            ),
        ),
        empty_cache="Helps if PyTorch's unused cache fills the GPU: the workspace is allocated outside that cache.",
        sources=("https://docs.pytorch.org/docs/stable/backends.html",),
        said_by="torch 1.13-2.13",
    ),
)
