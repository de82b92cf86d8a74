"""Errors of loading a model by name: the Hugging Face Hub, files that are missing, and classes that do not exist."""

from typing import Final

from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Loading models by name"

_HUB_VARIABLES: Final = "https://huggingface.co/docs/huggingface_hub/package_reference/environment_variables"
_TRANSFORMERS: Final = "https://huggingface.co/docs/transformers/main_classes/model"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="hub-unreachable",
        section=SECTION,
        title="Hugging Face Hub cannot be reached",
        summary="The model is not in the local cache, and this host could not download it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "We couldn't connect to '",
                r"We couldn't connect to '(?P<address>[^'\n]{1,80})' to load (?:this file|the files)",
            ),
            Pattern(
                "HTTPSConnectionPool(host='",
                r"HTTPSConnectionPool\(host='(?P<host>[\w.-]{0,40}huggingface\.co"
                r"|(?:[\w-]{1,30}\.){1,3}hf\.co|hf-mirror\.com)'",
            ),
            Pattern(
                "trying to locate the file",
                r"An error happened while trying to locate the files? on the Hub and we cannot find",
            ),
            Pattern(
                "and outgoing traffic has been disabled", r"disk (?:cache )?and outgoing traffic has been disabled"
            ),
            Pattern(
                "Consistency check failed: file should be",
                r"Consistency check failed: file should be of size (?P<size>\d{1,16})",
            ),
            literal("Cannot send a request, as the client has been closed"),
            Pattern("ConnectError: [Errno -", r"httpx\.ConnectError: \[Errno -\d\] (?P<reason>[^\n]{1,80})"),
            literal("An error occurred while downloading using `hf_transfer`"),
            Pattern("CAS service error", r"CAS service error :(?! ?IO Error) (?P<reason>[^\n]{1,120})"),
        ),
        causes=(
            "Compute nodes of a cluster have no way to the internet, or only through a proxy.",
            "HF_HUB_OFFLINE is set, and the files were never downloaded, or to another HF_HOME.",
            "A firewall, or the Hub or its mirror was down at that moment.",
            "The download was cut off, so that the file is shorter than it should be.",
        ),
        fixes=(
            Fix(
                "Download on a host with internet to a folder that all nodes see.",
                "HF_HOME=/data/hf hf download NAME/MODEL",
            ),
            Fix("Then run offline with the same folder.", "HF_HOME=/data/hf HF_HUB_OFFLINE=1 python train.py"),
            Fix("Check the way from this host.", "curl -sSI https://huggingface.co"),
            Fix(
                "Too many requests came from one address: log in, and download once, with few workers.",
                "hf auth login && hf download NAME/MODEL --max-workers 2",
                first_for=("429 Too Many Requests",),
            ),
            Fix(
                "If a download was cut off, repeat it with the older way of transfer.",
                "HF_HUB_DISABLE_XET=1 hf download NAME/MODEL --force-download",
                first_for=("Consistency check", "CAS service"),
            ),
            Fix(
                "Turn the package hf_transfer off, which hides the reason.",
                "HF_HUB_ENABLE_HF_TRANSFER=0 python train.py",
                first_for=("hf_transfer",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_HUB_VARIABLES,),
        said_by="transformers 4.30-5.0, huggingface_hub 0.20-1.3",
    ),
    KnownError(
        id="hub-access",
        section=SECTION,
        title="Hugging Face Hub or GitHub refused the download",
        summary="The name of the model is wrong, the account has no access to it, or one address asked too often.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("You are trying to access a gated repo"),
            Pattern("Could not download '", r"Could not download '(?P<model>[\w./@-]{1,120})' (?:pipeline|model)\."),
            Pattern(
                "is not a local folder and is not a valid model identifier",
                r"(?P<model>[\w./-]{1,120}) is not a local folder and is not a valid model identifier",
            ),
            Pattern("RepositoryNotFoundError: 40", r"RepositoryNotFoundError: 40[14] Client Error"),
            Pattern("GatedRepoError: 40", r"GatedRepoError: 40[13] Client Error"),
            Pattern("Cannot access gated repo for url", r"Cannot access gated repo for url (?P<model>\S{1,200})"),
            Pattern(
                "is restricted and you are not in the authorized list",
                r"Access to (?:model|dataset) (?P<model>[\w./-]{1,120}) is restricted and you are not in the"
                r" authorized list",
            ),
            Pattern("Repository Not Found for url: ", r"Repository Not Found for url: (?P<model>https://\S{1,200})"),
            Pattern("Revision Not Found for url: ", r"Revision Not Found for url: (?P<model>https://\S{1,200})"),
            Pattern(
                "429 Client Error: Too Many Requests",
                r"429 Client Error: Too Many Requests for url: https://huggingface\.co",
            ),
            Pattern(
                "Client Error: Forbidden for url",
                r"(?:HfHubHTTPError: 403 Client Error: Forbidden for url"
                r"|403 Client Error: Forbidden for url: https://huggingface\.co)",
            ),
            Pattern(
                "status client error (429 Too Many",
                r"Request error: HTTP status client error \(429 Too Many Requests\)",
            ),
            literal("HTTP Error 403: rate limit exceeded"),
            literal("HTTP Error 429: Too Many Requests"),
        ),
        causes=(
            "The model is gated: its license was not accepted with this account, or no token was given.",
            "The name has a typing error, or is a path that does not exist on this host.",
            "Too many requests from one address: many ranks or jobs download at once.",
        ),
        fixes=(
            Fix("Accept the license on the page of the model, then log in.", "hf auth login"),
            Fix(
                "Check the name; for a local model, check that the folder exists on every node.",
                "ls -l MODEL/config.json",
                first_for=("is not a local folder",),
            ),
            Fix(
                "Download once before the job, with few workers, and run offline.",
                "hf download NAME/MODEL --max-workers 2",
                first_for=("429 Client", "429 Too Many"),
            ),
            Fix(
                "Accept the license on the page of the model, and let the token read gated repositories, which a"
                " fine-grained token may do only if that is permitted.",
                "hf auth login --force && hf auth whoami",
                first_for=("403 Client Error: Forbidden",),
            ),
            Fix(
                "For torch.hub, load the model from a clone of the repository: GitHub limits how often one asks.",
                'model = torch.hub.load("REPOSITORY", "MODEL", source="local")',
                first_for=("HTTP Error 4",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://huggingface.co/docs/hub/models-gated",),
        said_by="transformers 4.30-5.0, huggingface_hub 0.20-1.3",
    ),
    KnownError(
        id="model-folder-missing",
        section=SECTION,
        title="Folder of the model does not exist",
        summary="The text is no folder with a configuration on this host, and no name of a model on the Hub, such as"
        " owner/model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Repo id must be in the form",
                r"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '(?P<model>[^'\n]{0,160})'",
            ),
            Pattern(
                "Repo id must use alphanumeric",
                r"Repo id must use alphanumeric chars[^\n]{0,140}: '(?P<model>[^'\n]{0,160})'",
            ),
            Pattern(
                "Cannot have -- or .. in repo_id", r"Cannot have -- or \.\. in repo_id: '(?P<model>[^'\n]{0,160})'"
            ),
            Pattern("Incorrect path_or_model_id", r"Incorrect path_or_model_id: ['\"](?P<model>[^'\"\n]{0,160})['\"]"),
            Pattern(
                "Invalid repository ID or local directory",
                r"Invalid repository ID or local directory specified: '(?P<model>[^'\n]{0,160})'",
            ),
            Pattern(
                "Could not detect config format",
                r"Could not detect config format for no config file found\. With config_format 'auto'",
            ),
            Pattern("No supported config format found", r"No supported config format found in (?P<model>\S{1,160})"),
        ),
        causes=(
            "The folder has another name, is on another host, or was not mounted into the container.",
            "A relative path is read from another working directory, or a quoted ~ was not expanded.",
            "The path leads to a file, or to the folder above the one with config.json.",
            "The name has a part too many, such as the name of a file or a tag behind owner/model.",
        ),
        fixes=(
            Fix(
                "Check the path, in the container too; an absolute path is safest.",
                "ls -l MODEL/config.json",
                first_for=(
                    "specified: '/",
                    "specified: './",
                ),
            ),
            Fix(
                "Mount the folder into the container.",
                "docker run --gpus all -v /data/models:/data/models IMAGE COMMAND",
            ),
            Fix("Download the model, and give its folder.", "hf download OWNER/MODEL --local-dir MODEL"),
            Fix(
                "Behind @ stands the revision, which newer libraries take as an argument: upgrade the package that"
                " joins them, or give it separately.",
                'pipeline = Pipeline.from_pretrained("OWNER/MODEL", revision="main")',
                first_for=("@",),
            ),
            Fix(
                "The folder of an adapter has no configuration: give the base model, and the adapter as an option.",
                "vllm serve MODEL --enable-lora --lora-modules name=/path/to/adapter",
                first_for=("_adapter",),
                hidden_otherwise=True,
            ),
            Fix(
                "For a name on the Hub, check that this host can fetch its config.json: spelling, access, network; a"
                " model for images has none.",
                "hf download OWNER/MODEL config.json",
                first_for=("Invalid repository ID",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/opendatalab/MinerU/issues/1650",
            "https://github.com/gpustack/gpustack/issues/1268",
        ),
        said_by="huggingface_hub 0.20-1.3, transformers 4.38-5.0, vLLM 0.6-0.33",
    ),
    KnownError(
        id="model-file-missing",
        section=SECTION,
        title="Folder of the model has no weights",
        summary="The folder was found, but not the file with the weights, the configuration or the tokenizer.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("modelscope.hub.errors.", r"modelscope\.hub\.errors\.NotExistError: (?P<reason>[^\n]{1,120})"),
            Pattern(
                "Error no file named ", r"Error no file named (?P<file>[\w.-]{1,60})[^\n]{0,200}?found in directory"
            ),
            Pattern(
                "does not appear to have ",
                r"(?P<model>[\w./-]{1,120}) does not appear to have (?:a file|files) named (?P<file>\S{1,80})",
            ),
            Pattern(
                "Can't load ",
                r"Can't load (?:the (?:configuration|model)|tokenizer|feature extractor|image processor|config)"
                r" (?:of|for) '(?P<model>[^'\n]{1,120})'",
            ),
            Pattern(
                "Can't find weights for ",
                r"Can't find weights for (?P<model>[^\n]{1,120}?) in [^\n]{1,120}? or in the Hugging"
                r" Face Hub",
            ),
            Pattern("Entry Not Found for url: ", r"Entry Not Found for url: (?P<file>https://\S{1,240}[^\s.])"),
            Pattern(
                "Cannot find any model weights with",
                r"Cannot find any model weights with [`'](?P<model>[^`'\n]{1,120})",
            ),
            Pattern(
                "no such modeling files are available",
                r"`variant=(?P<variant>[^`\n]{1,20})`, but no such"
                r" modeling files are available",
            ),
        ),
        causes=(
            "Saving or downloading was interrupted, or only the adapter (LoRA) was saved.",
            "The folder is one level above or below the checkpoint, or a sharded checkpoint was not consolidated.",
        ),
        fixes=(
            Fix("List the folder: config.json and a .safetensors file must be there.", "ls -l MODEL"),
            Fix(
                "Load an adapter with its base model.",
                "from peft import AutoPeftModelForCausalLM\n\nmodel = AutoPeftModelForCausalLM.from_pretrained(folder)",
            ),
            Fix("Download again.", "hf download NAME/MODEL --force-download"),
            Fix(
                "Leave out the variant.",
                "pipeline = DiffusionPipeline.from_pretrained(name, torch_dtype=torch.float16)",
                first_for=("`variant=",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TRANSFORMERS,),
        said_by="transformers 4.30-5.0, vLLM 0.4-0.19, diffusers 0.25-0.36",
    ),
    KnownError(
        id="model-file-damaged",
        section=SECTION,
        title="File of the model is damaged or incomplete",
        summary="A file of the model is there, and it cannot be read: a part is missing, or it has another content.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "is not a valid JSON file",
                r"the config file at '(?P<file>[^'\n]{1,200})' is not a valid JSON"
                r" file",
            ),
            Pattern(
                "does not contain the valid metadata",
                r"archive passed at (?P<file>[^\n]{1,200}?) does not contain the valid"
                r" metadata",
            ),
            Pattern(
                "Unable to load weights from ",
                r"Unable to load weights from checkpoint file for '(?P<file>[^'\n]{1,200})'",
            ),
            Pattern("shard file(s) missing", r"references (?P<missing>\d{1,4}) shard file\(s\) missing"),
            Pattern("has no attribute 'get_metadata'", r"'NoneType' object has no attribute 'get_metadata'"),
            Pattern("Value error, Expecting value", r"Value error, Expecting value: line 1 column 1 \(char 0\)"),
            Pattern('metadata.get("format")', r"if metadata\.get\(\"format\"\) (?:not in|==|!=)"),
        ),
        causes=(
            "The download or the copy was interrupted, or the disk was full.",
            "The repository was cloned without LFS, so that each file is a pointer of some lines.",
            "The file was written by another program, which leaves out the metadata.",
        ),
        fixes=(
            Fix("Check the sizes, and look at the start.", "ls -l MODEL; head -c 200 MODEL/config.json"),
            Fix("Download again.", "hf download NAME/MODEL --force-download"),
            Fix("If the files are pointers, fetch their contents.", "git -C MODEL lfs pull"),
            Fix(
                "If only the metadata is missing, write the file again.",
                """\
from safetensors.torch import load_file, save_file

save_file(load_file("model.safetensors"), "fixed.safetensors", metadata={"format": "pt"})""",
                first_for=("valid metadata", 'metadata.get("format")'),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TRANSFORMERS,),
        said_by="transformers 4.30-5.0, diffusers 0.20-0.36, SGLang 0.5.23",
    ),
    KnownError(
        id="model-class",
        section=SECTION,
        title="Model cannot be loaded by this class or version",
        summary=(
            "The installed transformers does not know this model, or not with this class or attention, or the model"
            " needs code from its repository."
        ),
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "does not exist or is not currently imported",
                r"Tokenizer class (?P<model>\w{1,60}) does not exist or is not currently imported",
            ),
            Pattern(
                "Unrecognized configuration class",
                r"Unrecognized configuration class <class '(?P<model>[\w.]{1,160})'> (?:for this kind of|to"
                r" build an) AutoModel\w{0,40}",
            ),
            Pattern(
                "Unrecognized ",
                r"Unrecognized (?P<part>processing class|image processor|feature extractor|video processor) in"
                r" (?P<model>[^\n]{1,120}?)\.",
            ),
            Pattern(
                "Unrecognized model in ",
                r"Unrecognized model in (?P<model>[^\n]{1,120}?)\. Should have a `model_type` key",
            ),
            Pattern(
                "KeyError: '",
                r"KeyError: '(?P<model>\w{2,60}For(?:CausalLM|ConditionalGeneration|SequenceClassification)|"
                r"qwen[\w.]{0,20}|llava_\w{1,20}|llama[\w.]{1,20}|mistral[\w.]{0,20}|mixtral|gemma[\w.]{0,"
                r"20}|minimax\w{0,12}|kimi\w{0,12}|hunyuan\w{0,12}|step3\w{0,8}|ernie\w{0,12}|seed_oss|nemotron\w{0,12}"
                r"|exaone\w{0,8}|granite\w{0,12}|internvl\w{0,8}|internlm\d|olmo\w{0,8}|cohere\d?|lfm2\w{0,8}|"
                r"phi[\w.-]{0,12}|deepseek\w{0,12}|glm\w{0,12}|gpt_oss|smollm3)'(?!\S)",
            ),
            Pattern(
                "does not support ",
                r"(?P<model>\w{3,60}) does not support (?:Flash Attention (?P<version>\d(?:\.\d)?) yet|an"
                r" attention implementation through|gradient checkpointing\b)",
            ),
            Pattern(
                "The current architecture does not support Flash Attention",
                r"The current architecture does not support Flash Attention",
            ),
            Pattern(
                "requires you to execute the ",
                r"[^\n]{1,160}? requires you to execute the (?:configuration|configuration"
                r" file|model|tokenizer|modeling) file in that repo",
            ),
            Pattern(
                "contains custom code which must be executed",
                r"contains custom code which must be executed to correctly load the model",
            ),
            Pattern("Could not find module ", r"Could not find module (?P<model>\w{1,80}) in `transformers`"),
            Pattern(
                "config.json found but missing 'model_type'", r"config\.json found but missing 'model_type' for model"
            ),
            Pattern("Not a supported model. ", r"Not a supported model\. (?:Unrecognized|Detected) architectures?"),
            Pattern(
                "Specified `attn_implementation=",
                r'Specified `attn_implementation="(?P<attention>[\w/-]{1,60})"` is not supported',
            ),
        ),
        causes=(
            "The model is newer than the installed transformers.",
            "The model is of another kind than the class that loads it: AutoModelForCausalLM loads few with images.",
            "The class of the model does not support this attn_implementation.",
            "The repository brings its own code, which runs only if it is allowed.",
        ),
        fixes=(
            Fix(
                "Upgrade transformers; serving programs pin a version, so upgrade them instead.",
                "pip install --upgrade transformers",
            ),
            Fix(
                "The repository brings its own tokenizer: after reading its code, allow it, for the model as well.",
                "tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=True)",
                first_for=("Tokenizer class",),
                hidden_otherwise=True,
            ),
            Fix(
                "Load with the class that the page of the model names.",
                "from transformers import AutoModelForImageTextToText\n\nmodel ="
                " AutoModelForImageTextToText.from_pretrained(name)",
                first_for=("configuration class",),
            ),
            Fix(
                "Use another attention: sdpa, or eager, which every model supports.",
                'model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="sdpa")',
                first_for=("ttention", "attn_implementation"),
            ),
            Fix(
                "Train without gradient checkpointing, with a smaller batch and more steps of accumulation.",
                "arguments = TrainingArguments(gradient_checkpointing=False, gradient_accumulation_steps=8)",
                first_for=("gradient checkpointing",),
            ),
            Fix(
                "After reading its code, allow the repository's own code.",
                "model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)",
                first_for=("execute",),
            ),
            Fix(
                "The type belongs to the code of LLaVA, not to transformers: update that code, or load the model by the"
                " version that saved it.",
                "git -C LLaVA pull && pip install -e LLaVA",
                first_for=("'llava_",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_TRANSFORMERS,),
        said_by="transformers 4.30-5.0",
    ),
)
