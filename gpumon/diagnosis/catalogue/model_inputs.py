"""Errors of what goes into a model and comes out of it: images, arguments of generate(), token numbers."""

from typing import Final

from gpumon.diagnosis.catalogue.models import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="image-input",
        section=SECTION,
        title="Image does not have the form that the processor expects",
        summary="The processor got something else than images, or an image of an unusual shape or size.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Unable to infer channel dimension format"),
            Pattern(
                "of images from ",
                r"Error: Could not make (?:a )?(?:flat|nested|batched)(?: list of)? (?:list of )?images from ",
            ),
            Pattern("Invalid image type. ", r"Invalid image type\. (?:Must be of type|Expected either) [^\n]{1,200}"),
            Pattern(
                "must be larger than factor:",
                r"height:(?P<height>\d{1,6}) (?:and|or) width:(?P<width>\d{1,6}) must be larger than"
                r" factor:(?P<factor>\d{1,4})",
            ),
            Pattern(
                "absolute aspect ratio must be smaller than",
                r"absolute aspect ratio must be smaller than (?P<limit>\d{1,4}), got (?P<ratio>[\d.]{1,12})",
            ),
            Pattern(
                "Incorrect format used for image",
                r"Incorrect format used for image\. Should be an url"
                r" linking to",
            ),
        ),
        causes=(
            "The image is None: the file was not found, or the field of the data set has another name.",
            "A grayscale image or one with an alpha channel has 1, 2 or 4 channels in place of 3.",
            "The image is only a few pixels high or wide, or very long.",
        ),
        fixes=(
            Fix("Convert every image.", 'image = Image.open(path).convert("RGB")'),
            Fix(
                "Leave out images that are too small.",
                'dataset = dataset.filter(lambda row: min(row["image"].size) >= 28)',
                first_for=("must be larger than factor", "aspect ratio"),
            ),
            Fix("Look at what the processor gets.", "print(type(images), images)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/transformers/blob/main/src/transformers/image_utils.py",),
        said_by="transformers 4.27-5.0, qwen-vl-utils 0.0.8",
    ),
    KnownError(
        id="image-file",
        section=SECTION,
        title="Image file cannot be read",
        summary="The file is damaged, empty, not an image, or of a format that this library does not know.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("cannot identify image file", r"cannot identify image file (?P<file>[^\n]{1,200})"),
            Pattern(
                "image file is truncated",
                r"image file is truncated(?: \((?P<left>\d{1,12}) bytes not"
                r" processed\))?",
            ),
            Pattern("broken data stream when reading", r"OSError: broken data stream when reading image file"),
        ),
        causes=(
            "The download was cut off, or the file is a web page with an error message.",
            "The format is HEIC, AVIF or SVG, for which Pillow needs a plugin.",
        ),
        fixes=(
            Fix("Show what the file is.", "head -c 64 IMAGE.jpg"),
            Fix(
                "Find damaged files before training.",
                """\
from pathlib import Path

from PIL import Image

for path in Path("images").iterdir():
    try:
        Image.open(path).load()
    except OSError as error:
        print(path, error)""",
            ),
            Fix(
                "Accept images that are cut off.",
                "from PIL import ImageFile\n\nImageFile.LOAD_TRUNCATED_IMAGES = True",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://pillow.readthedocs.io/en/stable/reference/ImageFile.html",),
        said_by="Pillow 8-12",
    ),
    KnownError(
        id="audio-input",
        section=SECTION,
        title="Audio does not have the length or form that Whisper expects",
        summary="Whisper takes pieces of 30 seconds with 80 bands, or 128 for large-v3 and its descendants.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "Invalid input features shape: expected",
                r"Invalid input features shape: expected an input with shape \((?P<expected>[\d, ]{1,30})\), but"
                r" got an input"
                r" with shape \((?P<got>[\d, ]{1,30})\)",
            ),
            Pattern(
                "You have passed more than 3000 mel input",
                r"You have passed more than 3000 mel input features",
            ),
            Pattern(
                "Whisper expects the mel input features",
                r"Whisper expects the mel input features to be of length (?P<expected>\d{1,6}), but found"
                r" (?P<got>\d{1,6})",
            ),
            literal("Whisper did not predict an ending timestamp"),
            Pattern(
                "was trained using a sampling rate of",
                r"was trained using a sampling rate of (?P<rate>\d{4,6})",
            ),
        ),
        causes=(
            "The feature extractor is that of another model: large-v3 has 128 bands, the others 80.",
            "The audio is longer than 30 seconds, and timestamps were not asked for.",
            "The audio has another sampling rate than 16 kHz.",
        ),
        fixes=(
            Fix(
                "Take both from the same name.", "processor = AutoProcessor.from_pretrained('openai/whisper-large-v3')"
            ),
            Fix(
                "For longer audio, cut it in the pipeline.",
                "texts = pipeline('automatic-speech-recognition', model=name, chunk_length_s=30)(path)",
                first_for=("3000 mel", "ending timestamp"),
            ),
            Fix(
                "Convert the audio.",
                "dataset = dataset.cast_column('audio', Audio(sampling_rate=16000))",
                first_for=("sampling rate",),
            ),
            Fix(
                "Let the processor fill the audio up to 30 seconds.",
                'inputs = processor(audio, sampling_rate=16000, return_tensors="pt")',
                first_for=("to be of length 3000",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/transformers/model_doc/whisper",),
        said_by="transformers 4.30-5.0, faster-whisper 0.10-1.2",
    ),
    KnownError(
        id="generate-arguments",
        section=SECTION,
        title="Argument of generate() is not valid",
        summary="The model does not use an argument of generate(), or arguments contradict each other.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "are not used by the model: ",
                r"`model_kwargs` are not used by the model: (?P<arguments>\[[^\]\n]{1,160}\])",
            ),
            Pattern(
                "has to be a strictly positive float",
                r"`temperature` \(=(?P<temperature>-?[\d.]{1,8})\) has to be a strictly positive float",
            ),
            Pattern(
                "`inputs_embeds` to `.generate()`",
                r"You passed `inputs_embeds` to `\.generate\(\)`, but the model class (?P<class>\w{1,60}) doesn't have",
            ),
            Pattern(
                "is not compatible with `.generate()`",
                r"The current model class \((?P<class>\w{1,60})\) is not compatible with `\.generate\(\)`",
            ),
            literal("only supported for models that support the `Cache` API"),
            Pattern(
                "custom_generate",
                r"does not contain a `custom_generate` subdirectory with a `generate\.py` file",
            ),
        ),
        causes=(
            "The tokenizer returns token_type_ids, which this model does not take.",
            "The program was written for another version of transformers, or for another model.",
            "The limit max_length counts the prompt too, and the prompt is longer.",
        ),
        fixes=(
            Fix(
                "Leave out what the model does not use.",
                'inputs = tokenizer(text, return_tensors="pt", return_token_type_ids=False)',
            ),
            Fix("Limit the new tokens only.", "output = model.generate(**inputs, max_new_tokens=256)"),
            Fix(
                "For the most probable tokens, switch sampling off.",
                "output = model.generate(**inputs, do_sample=False)",
                first_for=("temperature",),
            ),
            Fix(
                "Load the model with its head.",
                "model = AutoModelForCausalLM.from_pretrained(name)",
                first_for=("language model head",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/transformers/main_classes/text_generation",),
        said_by="transformers 4.25-5.0",
    ),
    KnownError(
        id="token-decoding",
        section=SECTION,
        title="Numbers cannot be decoded to tokens",
        summary="The tokenizer got numbers that are no tokens: -100, fractions, or lists in lists.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("out of range integral", r"OverflowError: out of range integral type conversion attempted"),
            Pattern("argument 'ids': ", r"TypeError: argument 'ids': (?P<reason>[^\n]{1,100})"),
            literal("OverflowError: can't convert negative int to unsigned"),
        ),
        causes=(
            "The labels hold -100 where the loss is not computed.",
            "The predictions are logits, or padded with -100 by the trainer.",
            "A batch went to decode(), which takes one text.",
        ),
        fixes=(
            Fix(
                "Replace -100 before decoding.",
                "labels = np.where(labels != -100, labels, tokenizer.pad_token_id)",
            ),
            Fix("Make tokens of the logits.", "tokens = logits.argmax(-1)"),
            Fix(
                "Decode a batch as one.",
                "texts = tokenizer.batch_decode(tokens, skip_special_tokens=True)",
                first_for=("'list' object",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/transformers/issues/22634",),
        said_by="transformers 4.25-5.0, tokenizers 0.13-0.22",
    ),
)
