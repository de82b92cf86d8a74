"""Errors of programs that quantize a model: AutoAWQ, GPTQModel, LMDeploy and ExLlamaV2."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="quantizer-model",
        section=SECTION,
        title="Program that quantizes does not know this kind of model",
        summary="It needs to know the layers of a model, and has no description of this model's layers.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("isn't supported yet.", r"^TypeError: (?P<model>\w{2,40}) isn't supported yet\."),
            Pattern(
                "quantification and calibration of ",
                r"Currently, quantification and calibration of (?P<model>\w{2,80}) are not supported",
            ),
            Pattern(
                "Processor.preprocess() got an unexpected",
                r"(?P<model>\w{2,40})Processor\.preprocess\(\) got an unexpected keyword argument 'fail_safe'",
            ),
        ),
        causes=(
            "The model is newer than the program; AutoAWQ is no longer developed and stays without new models.",
            "The model has parts for images, of which the program knows only the language model.",
        ),
        fixes=(
            Fix(
                "Quantize by LLM Compressor, which follows the layers of any model.",
                "pip install llmcompressor",
            ),
            Fix("Or upgrade the program.", "pip install --upgrade gptqmodel", first_for=("fail_safe",)),
            Fix("Or load a checkpoint that is quantized already.", "hf download OWNER/MODEL-AWQ --local-dir MODEL-AWQ"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/casper-hansen/AutoAWQ/issues/753",
            "https://github.com/ModelCloud/GPTQModel/issues/1490",
        ),
        said_by="AutoAWQ 0.1-0.2, GPTQModel 1.0-4.2, LMDeploy 0.8",
    ),
    KnownError(
        id="quantizer-nan",
        section=SECTION,
        title="Quantization produced values that are no numbers",
        summary="The loss of a layer became NaN, or its outputs did, while the model was quantized.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("Quantization: Failed due to ", r"Quantization: Failed due to `?NaN`? loss"),
            Pattern(
                "Measurement/inference error (",
                r"Measurement/inference error \(\d{1,3}\): (?P<name>\w{1,40})",
            ),
            Pattern(
                " inf values and ",
                r"state has (?:0 inf values and [1-9]|[1-9][\d,]{0,19} inf values and \d)[\d,]{0,19} NaN values",
            ),
        ),
        causes=(
            "The model was trained in bfloat16, and its values do not fit in float16.",
            "An expert of the model saw too few samples of the calibration.",
            "The weights are damaged, or were merged wrongly.",
        ),
        fixes=(
            Fix(
                "Give more and longer samples of text, so that each expert sees enough.",
                "dataset = dataset.select(range(1024))",
            ),
            Fix(
                "Load the model in the type in which it was trained.",
                'model = AutoModelForCausalLM.from_pretrained(name, dtype="auto")',
            ),
            Fix(
                "Compute with the model before it is quantized: if its outputs are NaN too, download or merge it again;"
                " otherwise upgrade ExLlamaV3.",
                "pip install --upgrade exllamav3",
                first_for=("state has ",),
            ),
            Fix("Raise the damping.", "quantize_config = QuantizeConfig(bits=4, group_size=128, damp_percent=0.05)"),
            Fix("Leave the layer that the message names in 16 bits."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/ModelCloud/GPTQModel/issues/1469",
            "https://github.com/turboderp-org/exllamav2/issues/627",
        ),
        said_by="GPTQModel 1.0-4.2, ExLlamaV2 0.1-0.2",
    ),
    KnownError(
        id="quantizer-mappings",
        section=SECTION,
        title="LLM Compressor: layers that AWQ smooths were not found as expected",
        summary="AWQ pairs each norm with the layers behind it, by patterns of names; these do not fit this model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "needs to match a single smooth",
                r"AWQ needs to match a single smooth ?layer for each mapping but got \['(?P<name>[\w.]{1,160})'",
            ),
        ),
        causes=(
            "LLM Compressor has no mappings for this architecture, and used those of Llama.",
            "Some layers have other parts than the rest: linear attention, experts, or an image encoder.",
        ),
        fixes=(
            Fix(
                "Upgrade LLM Compressor, whose newer versions know more models.", "pip install --upgrade llmcompressor"
            ),
            Fix(
                "Give the mappings of this model, with the names of its layers.",
                """\
AWQModifier(
    mappings=[AWQMapping("re:.*post_attention_layernorm$", ["re:.*mlp.experts.*.gate_proj$", "re:.*up_proj$"])],
    ignore=["lm_head", "re:.*mlp.gate$"], scheme="W4A16", targets=["Linear"],
)""",
            ),
            Fix("Or quantize by GPTQ, which needs no mappings.", 'GPTQModifier(scheme="W4A16", ignore=["lm_head"])'),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/vllm-project/llm-compressor/issues/2514",),
        said_by="LLM Compressor 0.8-0.10",
    ),
)
