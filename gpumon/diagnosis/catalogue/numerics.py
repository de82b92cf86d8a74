"""Numbers gone wrong: NaN and infinity in losses, gradients and probabilities, and loss scaling."""

from collections.abc import Iterator
from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "NaN and infinity"

_ANOMALY: Final = Fix(
    "Find the operation that produces the first NaN; this is slow, so start shortly before the step.",
    """\
import torch

with torch.autograd.detect_anomaly(check_nan=True):
    loss = model(batch)
    loss.backward()""",
)
_CHECK_DATA: Final = Fix(
    "Check the batch and the labels of that step for NaN and for values out of range.",
    """\
import torch

assert torch.isfinite(batch).all(), batch""",
)
_BFLOAT16: Final = Fix(
    "On Ampere and newer, use bfloat16 instead of float16: it has the range of float32 and needs no loss scaling.",
    """\
import torch

with torch.autocast("cuda", dtype=torch.bfloat16):
    loss = model(batch)""",
)
_CLIP: Final = Fix(
    "Clip the gradients, after `scaler.unscale_(optimizer)` if there is a scaler.",
    """\
import torch

torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=1.0)""",
)
_LEARNING_RATE: Final = Fix(
    "Lower the learning rate by a factor of 10, or lengthen the warmup, to test whether it diverges."
)
_FLOAT32: Final = Fix("Run some steps in float32: if the loss stays finite, the range of float16 is the cause.")
_EARLIER: Final = Fix("Go back to the last checkpoint with a finite loss: weights that contain NaN do not recover.")

_SEPARATORS: Final = (": ", "=", " = ", "': ", "': '", '": ', " ", ":", ": tensor(", "=tensor(")
_VALUES: Final = ("nan", "NaN", "inf")


def _losses() -> Iterator[Pattern]:
    """A loss, or the norm of gradients, whose value is NaN or infinite."""
    for name in ("oss", "grad_norm"):
        for separator in _SEPARATORS if name == "oss" else ("': ", ": ", "=", "': '"):
            for value in _VALUES:
                text = f"{name}{separator}{value}"
                escaped = text.translate({ord(letter): f"\\{letter}" for letter in "()'"}).replace("\\'", "'")
                start = r"(?:(?<![A-Za-z])l|L)" if name == "oss" else r"\b"
                yield Pattern(text, start + escaped + r"(?![\w.-])")


ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="nan-loss",
        section=SECTION,
        title="Loss is NaN or infinite",
        summary="The loss or the gradients are no longer finite: training has diverged, or a value overflowed.",
        context=ContextState.ALIVE,
        patterns=(
            *_losses(),
            Pattern('grad_norm": NaN', r"\bgrad_norm\": NaN(?![\w.-])"),
            literal("NaN or Inf found in input tensor"),
            Pattern("topping training", r"[Ll]oss is (?:nan|NaN|inf|-inf), stopping training"),
            Pattern("found NaN in local", r"found NaN in local (?:forward loss calculation|grad norm)"),
            Pattern("is not finite", r"Monitored metric (?P<metric>[\w./-]{1,60}) = (?:nan|inf|-inf) is not finite"),
            Pattern("produced non-finite loss", r"Training produced non-finite loss at step (?P<step>\d{1,12})"),
        ),
        causes=(
            "The learning rate is too high, the warmup too short, or the gradients are not clipped.",
            "A value above 65504 overflowed in float16; bfloat16 has the range of float32.",
            "The data contains NaN, or a division by zero, log(0) or sqrt(0) occurs in the loss.",
            "A sample whose labels are all ignored makes the mean of nothing.",
            "Rarely the GPU: then the same step is finite on another GPU.",
        ),
        fixes=(
            Fix("Find the first step whose loss is not finite; what follows is a consequence."),
            _CHECK_DATA,
            _BFLOAT16,
            _CLIP,
            _LEARNING_RATE,
            _ANOMALY,
            _EARLIER,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(
            Fix("Check the GPU's memory errors, in the rare case that only one GPU does it.", "nvidia-smi -q -d ECC"),
        ),
        sources=(sources.AMP, "https://docs.pytorch.org/docs/stable/autograd.html"),
        is_warning=True,
    ),
    KnownError(
        id="nan-backward",
        section=SECTION,
        title="Backward pass produced NaN",
        summary="Anomaly detection found the function whose gradient is NaN; the first traceback is its forward call.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "returned nan values in its",
                r"Function '(?P<function>\w{1,60})' returned nan values in its (?P<output>\d{1,3})th output",
            ),
            Pattern(
                "encountered in",
                r"FloatingPointError: invalid value \((?P<value>nan|inf)\) encountered in (?P<function>\S{1,60})",
            ),
        ),
        causes=(
            "The derivative is infinite or not defined: sqrt, norm or pow at 0, log at 0, a division by 0.",
            "The branch that `torch.where` does not take also has a gradient, which can be NaN.",
            "The gradient that came in was already infinite: an overflow in float16.",
        ),
        fixes=(
            Fix("Open the line of the forward call, which is printed above the error."),
            Fix(
                "Keep the argument away from 0.",
                """\
norm = (x.square().sum(-1) + 1e-12).sqrt()
safe = torch.where(mask, x, torch.ones_like(x)).log()""",
            ),
            _BFLOAT16,
            _CHECK_DATA,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/docs/stable/autograd.html",
            "https://docs.pytorch.org/docs/stable/notes/autograd.html",
        ),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="nan-probabilities",
        section=SECTION,
        title="Probabilities, or parameters of a distribution, contain NaN",
        summary="A sample is drawn from values that are NaN, infinite or negative: the model's output is not finite.",
        context=ContextState.UNKNOWN,
        patterns=(
            literal("probability tensor contains either `inf`, `nan` or element < 0"),
            literal("probability tensor contains either inf, nan or element < 0"),
            literal("normal expects all elements of std >= 0.0"),
            literal("invalid multinomial distribution (sum of probabilities <= 0)"),
            Pattern(
                "to satisfy the constraint",
                r"Expected parameter (?P<parameter>\w{1,20}) \(Tensor of shape (?P<shape>\([\d, ]{0,40}\))\)"
                r" of distribution [^\n]{1,200}? to satisfy the constraint",
            ),
            Pattern(
                "has invalid values",
                r"The parameter (?P<parameter>loc|scale|logits|probs|covariance_matrix|scale_tril) has invalid values",
            ),
        ),
        causes=(
            "In a language model, the logits overflow in float16; many were trained in bfloat16.",
            "The weights contain NaN after a diverged training, or a quantized or broken checkpoint was loaded.",
            "A row of the attention mask hides every token, for example padding on the wrong side.",
            (
                "In reinforcement learning, a reward or an observation was not finite, or the learning rate is too"
                " high, and the policy diverged."
            ),
            "Only on several GPUs: copies between them arrive damaged, as with IOMMU or ACS of some hosts.",
        ),
        fixes=(
            Fix(
                "Load the model in the type in which it was trained.",
                'model = AutoModelForCausalLM.from_pretrained(name, dtype="auto")',
            ),
            Fix(
                "Check whether the weights or only the logits are not finite.",
                "print([name for name, p in model.named_parameters() if not p.isfinite().all()])",
            ),
            Fix(
                "If one GPU works and several fail, check whether a copy between them arrives.",
                'x = torch.rand(1000, device="cuda:0")\nprint((x.to("cuda:1").cpu() == x.cpu()).all())',
            ),
            Fix(
                "For generation with a batch, pad on the left, and pass the attention mask.",
                'tokenizer.padding_side = "left"',
            ),
            Fix(
                "In reinforcement learning, find the first step with NaN: an observation or a reward that is not finite"
                " (VecCheckNan in Stable-Baselines3); then lower the learning rate, normalize or bound them, and clip"
                " gradients.",
                "assert observation.isfinite().all() and reward.isfinite().all()\n"
                "torch.nn.utils.clip_grad_norm_(policy.parameters(), 0.5)",
                first_for=(" of distribution ", "has invalid values"),
            ),
            Fix(
                "If a policy learns the standard deviation, learn its logarithm and bound it; lower the learning rate.",
                "std = log_std.clamp(-5, 2).exp()",
                first_for=("elements of std",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html",),
        said_by="torch 1.13-2.13, Ray 2.52",
    ),
    KnownError(
        id="nan-gradients",
        section=SECTION,
        title="Norm of the gradients is not finite",
        summary="The gradients contain NaN or infinity, so they cannot be clipped.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "is non-finite, so it cannot be clipped",
                r"total norm (?:of order (?P<order>[\w.]{1,12}) )?for gradients from `?parameters`? is non-finite,"
                r" so it cannot be clipped",
            ),
        ),
        causes=(
            "The loss is NaN or infinite.",
            "A single step overflowed in float16; a GradScaler skips such steps.",
            "An operation in the backward pass divides by zero.",
        ),
        fixes=(_CHECK_DATA, _ANOMALY, _BFLOAT16, _LEARNING_RATE),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.utils.clip_grad_norm_.html",),
        said_by="torch 1.13-2.13, Ray 2.9",
    ),
    KnownError(
        id="nan-input",
        section=SECTION,
        title="Input contains NaN",
        summary="A function that rejects NaN or infinity got values that contain them; they arose earlier.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("contains NaN", r"ValueError: (?:[Ii]nput|Array)(?: \w{1,20}){0,2} contains NaN"),
            Pattern("input value contains NaN", r"\binput value contains NaN\b"),
            Pattern("Reward should be finite scalar", r"Reward should be finite scalar, got (?P<value>-?nan|-?inf)"),
            Pattern(
                "input matrix contained non-finite values",
                r"(?P<function>linalg\.\w{1,24}): [^\n]{0,80}?input matrix contained non-finite values",
            ),
            Pattern("contains infinity or a value too large", r"contains infinity or a value too large for dtype"),
        ),
        causes=("The data contains missing values.", "The model's output is NaN: see its loss.", "A division by zero."),
        fixes=(
            _CHECK_DATA,
            Fix("Show where the values are.", "print((~torch.isfinite(x)).nonzero())"),
            Fix("If the loss is NaN as well, training has diverged; begin there."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.isfinite.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="linalg-failed",
        section=SECTION,
        title="Factorization failed",
        summary="A matrix is not positive-definite, singular or ill-conditioned, or it contains NaN or Inf.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "is not positive-definite",
                r"(?P<function>linalg\.\w{1,24}): [^\n]{0,80}?input is not positive-definite",
            ),
            Pattern(
                "input matrix is ill-conditioned",
                r"(?P<function>linalg\.\w{1,24}): [^\n]{0,60}?the input matrix is ill-conditioned",
            ),
            Pattern(
                " has illegal value. Most certainly there is a bug",
                r"(?P<function>linalg\.\w{1,24}): [^\n]{0,60}?Argument \d{1,2} has illegal value\. Most certainly there"
                r" is a bug",
            ),
            Pattern(
                "input matrix is singular",
                r"(?P<function>linalg\.\w{1,24}): [^\n]{0,160}?the input matrix is singular",
            ),
        ),
        causes=(
            "Rounding made a covariance matrix not positive-definite.",
            "The matrix contains NaN.",
            "The precision of float16 or TF32 is too low for it.",
        ),
        fixes=(
            Fix("Check the matrix for NaN and Inf.", "print(torch.isfinite(matrix).all())"),
            Fix(
                "Add a little to the diagonal.",
                "matrix = matrix + 1e-6 * torch.eye(matrix.shape[-1], device=matrix.device)",
            ),
            Fix("Compute it in float64.", "factor = torch.linalg.cholesky(matrix.double())"),
            Fix(
                "GPTQ needs more and longer texts to calibrate, of the kind that the model was trained on; then raise"
                " the damping.",
                "config = QuantizeConfig(bits=4, group_size=128, damp_percent=0.1)",
                first_for=("GPTQ",),
                hidden_otherwise=True,
            ),
            Fix(
                "The inputs of the layer have NaN or too large values: compute with the model before it is quantized,"
                " and download or merge it again if its outputs are wrong too; otherwise upgrade ExLlama.",
                "pip install --upgrade exllamav3",
                first_for=("ExLlama",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/linalg.html",),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="nan-image",
        section=SECTION,
        title="Image contains NaN",
        summary="The diffusion model or its VAE produced NaN, which becomes a black image.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "A tensor with all NaNs was produced in", r"A tensor with all NaNs was produced in (?P<part>\w{1,12})"
            ),
            Pattern("invalid value encountered in cast", r"RuntimeWarning: invalid value encountered in cast"),
        ),
        causes=(
            "The VAE of SDXL and of others overflows in float16.",
            "The GPU is slow or wrong in float16 (GTX 16xx).",
        ),
        fixes=(
            Fix("Decode in float32 or bfloat16: start ComfyUI with this option.", "python main.py --fp32-vae"),
            Fix("Or start the web UI with this option.", "python launch.py --no-half-vae"),
            Fix(
                "With diffusers, use a VAE that was made for float16.",
                'vae = AutoencoderKL.from_pretrained("madebyollin/sdxl-vae-fp16-fix", torch_dtype=torch.float16)',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/madebyollin/sdxl-vae-fp16-fix",),
    ),
    KnownError(
        id="loss-scale-minimum",
        section=SECTION,
        title="Loss scale is at its minimum",
        summary="Every step overflowed until the loss scale could not be lowered further.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Current loss scale already at minimum"),
            Pattern("inimum loss scale reached", r"[Mm]inimum loss scale reached(?: \((?P<scale>[\w.+-]{1,16})\))?"),
        ),
        causes=(
            "The loss or the weights contain NaN: no loss scale helps.",
            "A model that was trained in bfloat16 is trained in float16.",
            "The learning rate is too high.",
        ),
        fixes=(
            _BFLOAT16,
            Fix('With DeepSpeed, set `"bf16": {"enabled": true}` instead of `fp16` in the configuration.'),
            _CHECK_DATA,
            _LEARNING_RATE,
            _EARLIER,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP, "https://www.deepspeed.ai/docs/config-json/"),
    ),
    KnownError(
        id="loss-scale-skip",
        section=SECTION,
        title="Steps skipped after an overflow",
        summary="A step overflowed in float16 and was skipped; some at the start are ordinary, many in a row are not.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("radient overflow.", r"Gradient overflow\. {1,2}Skipping step, loss scaler"),
            Pattern(
                "Skipping step.",
                r"OVERFLOW! Rank (?P<skipping_rank>\d{1,6}) Skipping step\."
                r"(?: Attempted loss scale: (?P<scale>[\d.]{1,20}))?",
            ),
            Pattern("overflow detected, ignoring gradient", r"gradient overflow detected, ignoring gradient"),
        ),
        causes=(
            "The loss scaler searches for the largest scale that works: a few skipped steps are part of that.",
            "Many in a row: the gradients are NaN or infinite, and no scale helps.",
        ),
        fixes=(
            Fix("Take no action if the steps after it are not skipped, and the loss falls."),
            Fix("If the scale keeps falling, check the loss for NaN."),
            _BFLOAT16,
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.AMP, "https://www.deepspeed.ai/docs/config-json/"),
        is_warning=True,
    ),
)
