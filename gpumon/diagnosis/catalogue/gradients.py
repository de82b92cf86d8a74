"""Errors of gradients: tensors outside of the graph, inference mode, and operations without a derivative."""

from typing import Final

from gpumon.diagnosis.catalogue.training import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_AUTOGRAD: Final = "https://docs.pytorch.org/docs/stable/notes/autograd.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="gradient-unused",
        section=SECTION,
        title="Tensor is not part of the graph",
        summary="A gradient was requested for a tensor that did not take part in computing the result.",
        context=ContextState.ALIVE,
        patterns=(
            literal("appears to not have been used in the graph"),
            literal("One of the differentiated Tensors does not require grad"),
            Pattern("can't optimize a non-leaf Tensor", r"can't optimize a non-leaf Tensor"),
            literal("you can only change requires_grad flags of leaf variables"),
            literal("cannot register a hook on a tensor that doesn't require gradient"),
        ),
        causes=(
            "A copy was used in forward: .to(), .cuda(), .detach() or clone() create another tensor.",
            "The parameter belongs to a branch that this step did not use.",
        ),
        fixes=(
            Fix(
                "Allow tensors without a gradient.", "gradients = torch.autograd.grad(loss, inputs, allow_unused=True)"
            ),
            Fix(
                "Create a parameter on its device from the start.",
                "weight = torch.nn.Parameter(torch.zeros(8, device=device))",
                first_for=("non-leaf",),
            ),
            Fix(
                "Request the gradient of the input before it is used.",
                "inputs = inputs.detach().requires_grad_(True)",
                first_for=("leaf variables", "does not require grad", "doesn't require gradient"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AUTOGRAD,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="requires-grad",
        section=SECTION,
        title="Tensor with a gradient was copied or converted",
        summary="A tensor that belongs to a graph can be converted or copied only after detach().",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "that requires grad. Use",
                r"Can't call (?P<function>\w{1,12})\(\) on (?:Tensor|Variable) that requires grad\. Use",
            ),
            literal("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol"),
            literal("Can't export tensors that require gradient, use tensor.detach()"),
            literal("Cowardly refusing to serialize non-leaf tensor which requires_grad"),
            literal("Can't get __cuda_array_interface__ on Variable that requires grad"),
        ),
        causes=(
            "The value is read for a log, a metric or a plot.",
            "A model that keeps an output of forward as an attribute is copied with deepcopy.",
        ),
        fixes=(
            Fix("Detach it first.", "values = tensor.detach().cpu().numpy()"),
            Fix("Compute metrics without a graph.", "with torch.no_grad():\n    metrics = evaluate(model)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AUTOGRAD,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="inference-tensor",
        section=SECTION,
        title="Tensor of inference mode is used in training",
        summary="A tensor that was created in torch.inference_mode() can never take part in a backward pass.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Inference tensors cannot be saved for backward"),
            literal("Inplace update to inference tensor outside InferenceMode is not allowed"),
            literal("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed"),
            literal("Inference tensors do not track version counter"),
            literal("Cannot set version_counter for inference tensor"),
        ),
        causes=(
            "A buffer, a cache or a teacher's output was computed in inference mode, and training uses it later.",
            "A trainer validates in inference mode, and a metric or a rotary cache keeps the tensor.",
        ),
        fixes=(
            Fix("Use no_grad instead.", "with torch.no_grad():\n    features = teacher(batch)"),
            Fix("With Lightning, switch it off.", "trainer = Trainer(inference_mode=False)"),
            Fix("Or copy the tensor outside.", "features = features.clone()"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.autograd.grad_mode.inference_mode.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="derivative-missing",
        section=SECTION,
        title="Operation has no derivative",
        summary="The backward pass or the second derivative of this operation does not exist on this backend.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("derivative for aten::", r"derivative for aten::(?P<operator>\w{1,80}) is not implemented"),
            Pattern(
                "not implemented the Function for ",
                r"You are trying to (?:backward|jvp)[^\n]{0,60}not implemented the Function for ",
            ),
            Pattern(
                "RNN backward can only be called in training mode",
                r"(?:cudnn|cuDNN|miopen) RNN backward can only be called in training mode",
            ),
            Pattern(
                "Legacy autograd function", r"Legacy autograd function with non-static forward method is deprecated"
            ),
        ),
        causes=(
            "A penalty on gradients needs a second derivative, which the fused attention or RNN kernel does not have.",
            "The model is in eval mode: the RNN of cuDNN has a backward pass only in training mode.",
            "An old extension defines its autograd function in a form that PyTorch no longer supports.",
        ),
        fixes=(
            Fix(
                "Use plain attention where a second derivative is needed.",
                "from torch.nn.attention import SDPBackend, sdpa_kernel\n\nwith sdpa_kernel(SDPBackend.MATH):\n "
                "   output = model(batch)",
            ),
            Fix(
                "Train the RNN in training mode, or without cuDNN.",
                "with torch.backends.cudnn.flags(enabled=False):\n    loss = model(batch)",
                first_for=("cudnn RNN",),
            ),
            Fix(
                "Upgrade the extension; its function needs forward and backward as static methods.",
                first_for=("Legacy autograd",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_AUTOGRAD,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="autocast-unsafe",
        section=SECTION,
        title="Loss is not safe with mixed precision",
        summary="BCELoss takes probabilities, which half precision cannot represent near 0 and 1.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("unsafe to autocast", r"binary_cross_entropy and torch\.nn\.BCELoss are unsafe to autocast"),
            literal("all elements of input should be between 0 and 1"),
            literal("all elements of target should be between 0 and 1"),
        ),
        causes=("The model ends with a sigmoid and BCELoss.", "NaN: the probabilities are no longer numbers."),
        fixes=(
            Fix(
                "Remove the sigmoid and use the loss for logits.",
                "loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, targets)",
            ),
            Fix("Check the values.", "print(torch.isfinite(outputs).all(), outputs.min(), outputs.max())"),
            Fix(
                "Give labels of 0 and 1: print their range first.",
                "print(targets.min(), targets.max())",
                first_for=("elements of target",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/amp.html",),
        said_by="torch 1.13-2.13",
    ),
)
