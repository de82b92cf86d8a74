"""Errors of tokenizers and chat templates, and of the lengths of texts and images."""

from typing import Final

from gpumon.diagnosis.catalogue.data_sets import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_CHAT: Final = "https://huggingface.co/docs/transformers/chat_templating"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="tokenizer-padding",
        section=SECTION,
        title="Tokenizer has no padding token",
        summary="Texts of different lengths were to become one batch, and the tokenizer has no token to fill them up.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Asking to pad but the tokenizer does not have a padding token"),
            literal("Cannot handle batch sizes > 1 if no padding token is defined"),
            Pattern("The tokenizer does not have a pad token", r"The tokenizer does not have a pad token\. Please set"),
            Pattern(
                "is not found in the vocabulary of the given",
                r"The specified `(?P<token>eos_token|pad_token)` \('(?P<name>[^\n]{1,60}?)'\) is not found in the"
                r" vocabulary"
                r" of the given",
            ),
        ),
        causes=("Models such as Llama or GPT were trained without padding.",),
        fixes=(
            Fix(
                "Set the token, in the tokenizer and in the model.",
                """\
if tokenizer.pad_token is None:
    tokenizer.pad_token = tokenizer.eos_token
model.config.pad_token_id = tokenizer.pad_token_id""",
            ),
            Fix(
                "For fine-tuning, a separate token is better, so that the model still learns where a text ends.",
                """\
tokenizer.add_special_tokens({"pad_token": "<|pad|>"})
model.resize_token_embeddings(len(tokenizer))""",
            ),
            Fix(
                "Name the end token of this tokenizer; with Unsloth, upgrade unsloth and unsloth_zoo.",
                "config = SFTConfig(eos_token=tokenizer.eos_token)",
                first_for=("`eos_token`",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/transformers/pad_truncation",),
        said_by="transformers 4.30-5.0, TRL 0.20-1.0",
    ),
    KnownError(
        id="chat-template",
        section=SECTION,
        title="Chat template is missing or rejects the conversation",
        summary="The template, which makes one text of a conversation, is not there or does not accept these messages.",
        context=ContextState.ALIVE,
        patterns=(
            literal("Cannot use chat template functions because tokenizer.chat_template is not set"),
            literal("default chat template is no longer allowed"),
            Pattern("onversation roles must alternate", r"[Cc]onversation roles must alternate"),
            literal("Only user and assistant roles are supported"),
            Pattern("System role not supported", r"TemplateError: System role not supported"),
            Pattern("No user query found in messages", r"TemplateError: No user query found in messages"),
            literal("Cannot use apply_chat_template() because tokenizer.chat_template is not set"),
            Pattern("apply_chat_template requires jinja2", r"apply_chat_template requires jinja2"),
            literal("No chat template is set for this processor"),
            literal("tokenizer's chat_template is null"),
            Pattern(
                "jinja2.exceptions.TemplateSyntaxError: ",
                r"jinja2\.exceptions\.TemplateSyntaxError: (?P<reason>[^\n]{1,120})",
            ),
            literal("Cannot use apply_chat_template because this processor does not have a chat template"),
        ),
        causes=(
            "The model is a base model, which has no chat template; only the tuned one has.",
            "The template knows no system role, or wants user and assistant in turn.",
            "The tokenizer was saved without its template, which is a separate file in newer versions.",
        ),
        fixes=(
            Fix("Use the tuned model, whose name ends in -Instruct, -Chat or -it."),
            Fix("Or set a template.", 'tokenizer.chat_template = open("template.jinja").read()'),
            Fix("In vLLM, give the template as a file.", "vllm serve MODEL --chat-template template.jinja"),
            Fix(
                "Merge successive messages of one role, and put the system text into the first one of the user.",
                first_for=("roles", "System role"),
            ),
            Fix("Install Jinja.", "pip install --upgrade jinja2", first_for=("jinja2 to be installed",)),
            Fix(
                "In Axolotl, name a template.",
                'echo "chat_template: chatml" >> config.yaml',
                first_for=("chat_template is null",),
            ),
            Fix(
                "Let Jinja name the place: the template is cut off, or contains what Jinja does not know.",
                "python -c 'import jinja2; jinja2.Environment().parse(open(\"template.jinja\").read())'",
                first_for=("TemplateSyntaxError",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_CHAT,),
        said_by="transformers 4.40-5.0",
    ),
    KnownError(
        id="tokenizer-load",
        section=SECTION,
        title="Tokenizer cannot be loaded",
        summary="The files of the tokenizer are missing, or belong to another version of tokenizers or transformers.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Cannot instantiate this tokenizer from a slow",
                r"Cannot instantiate this tokenizer from a slow version(?:\. If it's based on (?P<package>\w{4,20}))?",
            ),
            Pattern("could not parse ModelProto from", r"could not parse ModelProto from (?P<file>[^\n]{1,160})"),
            literal("Couldn't instantiate the backend tokenizer from one of"),
            Pattern(
                "data did not match any variant of untagged enum",
                r"data did not match any variant of untagged enum (?P<type>\w{1,60})",
            ),
            Pattern(
                "TypeError: not a string",
                r"^TypeError: not a string$",
            ),
            Pattern(
                "Error parsing line b'", r"Error parsing line b'[^\n]{1,60} in (?P<file>\S{1,200}tokenizer\.model)"
            ),
            Pattern(
                "Converting from ",
                r"Converting from (?:SentencePiece and Tiktoken|Tiktoken) failed, if a converter for",
            ),
            Pattern("Unable to load vocabulary from file", r"Unable to load vocabulary from file"),
        ),
        causes=(
            "The packages sentencepiece, tiktoken or protobuf are missing, which old tokenizers need.",
            "The file tokenizer.json was written by a newer version than the installed one.",
            "The folder has the weights only: the tokenizer was not saved with the model.",
        ),
        fixes=(
            Fix("Upgrade both packages together.", "pip install --upgrade transformers tokenizers"),
            Fix(
                "Install the packages that tokenizers are converted with.",
                "pip install sentencepiece tiktoken protobuf",
                first_for=("slow version", "Tiktoken", "backend tokenizer", "Error parsing line"),
            ),
            Fix(
                "Check that the folder has the files of the tokenizer.",
                "ls -l MODEL | grep -i token",
                first_for=("not a string", "ModelProto", "Unable to load vocabulary"),
            ),
            Fix("Or load the tokenizer of the base model.", "tokenizer = AutoTokenizer.from_pretrained(base_model)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/huggingface/transformers/issues/31789",),
        said_by="transformers 4.30-5.0, tokenizers 0.13-0.22, sentencepiece 0.1-0.2",
    ),
    KnownError(
        id="tokenizer-input",
        section=SECTION,
        title="Tokenizer received something else than text",
        summary="A value of the data set is None, a number or a nested list, where the tokenizer takes text.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("text input must of type", r"text input must of type `str` \(single example\)"),
            literal("text input must be of type `str` (single example)"),
            literal("TextEncodeInput must be Union[TextInputSequence"),
            Pattern("text input must be of type", r"ValueError: text input must be of type `str`"),
        ),
        causes=(
            "A row of the data set is empty: None or NaN, which pandas makes of empty cells.",
            "A conversation was passed where the text of its template is expected.",
        ),
        fixes=(
            Fix("Drop the rows without text.", 'dataset = dataset.filter(lambda row: isinstance(row["text"], str))'),
            Fix("Make a text of a conversation.", "text = tokenizer.apply_chat_template(messages, tokenize=False)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/transformers/main_classes/tokenizer",),
        said_by="transformers 4.20-5.0, tokenizers 0.13-0.22",
    ),
    KnownError(
        id="context-exceeded",
        section=SECTION,
        title="Text is longer than the context of the model",
        summary="The prompt, with the tokens to be generated, is longer than the model or the server permits.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "but `max_length` is set to",
                r"Input length of \w{1,30} is (?P<length>\d{1,9}), but `max_length` is set to (?P<limit>\d{1,9})",
            ),
            Pattern(
                "maximum context length is ",
                r"[Tt]his model's maximum context length is (?P<limit>\d{1,9}) tokens",
            ),
            Pattern(
                "longer than the maximum model length of ",
                r"prompt \((?:total )?length (?P<length>\d{1,9})\) is longer than the maximum model length of"
                r" (?P<limit>\d{1,9})",
            ),
            Pattern(
                ") exceed context window of ",
                r"Requested tokens \((?P<length>\d{1,9})\) exceed context window of (?P<limit>\d{1,9})",
            ),
            Pattern(
                "is longer than the model's context length",
                r"The input \((?P<length>\d{1,9}) tokens\) is longer than the model's context length"
                r" \((?P<limit>\d{1,9}) tokens\)",
            ),
            Pattern(
                "cannot exceed the maximum allowed length of",
                r"Labels' sequence length (?P<length>\d{1,9}) cannot exceed the maximum allowed length of"
                r" (?P<limit>\d{1,9})",
            ),
            Pattern("exceeds the available context size", r"exceeds the available context size"),
            Pattern("tokens exceed n_ctx", r"(?P<length>\d{1,9}) tokens exceed n_ctx"),
            Pattern("increase the physical batch size", r"too large to process\. increase the physical batch size"),
            Pattern(
                "tokens + `max_new_tokens` must be",
                r"`inputs` tokens \+ `max_new_tokens` must be <= (?P<limit>\d{1,9})",
            ),
        ),
        causes=(
            "The prompt has grown: history, documents or images, each of which counts hundreds of tokens.",
            "The server was started with a shorter context than the model has.",
            "The setting `max_length` counts the prompt too; `max_new_tokens` does not.",
        ),
        fixes=(
            Fix("Shorten the prompt, or ask for fewer new tokens."),
            Fix(
                "In transformers, limit only what is generated.",
                "model.generate(**inputs, max_new_tokens=256)",
                first_for=("`max_length` is set",),
            ),
            Fix(
                "Leave out the examples whose text is longer, or cut their labels.",
                'dataset = dataset.filter(lambda row: len(row["labels"]) <= 448)',
                first_for=("Labels' sequence length",),
            ),
            Fix("Start the server with a longer context.", "vllm serve MODEL --max-model-len 32768"),
            Fix("In llama.cpp, too.", "llama-server -m MODEL.gguf -c 32768", first_for=("available context size",)),
            Fix(
                "For embeddings, a text must fit into one batch: enlarge it up to the model's context, or cut texts.",
                "llama-server -m MODEL.gguf --embeddings -c 8192 -b 8192 -ub 8192",
                first_for=("exceed n_ctx", "physical batch size"),
            ),
            Fix(
                "In llama-cpp-python, load the model with a longer context; the default is 512.",
                'llm = Llama(model_path="MODEL.gguf", n_ctx=32768)',
                first_for=("exceed context window",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.vllm.ai/en/latest/serving/openai_compatible_server/",),
        said_by="transformers 4.30-5.0, vLLM 0.4-0.19, SGLang 0.5, llama-cpp-python 0.2-0.3, llama.cpp of 2025",
    ),
)
