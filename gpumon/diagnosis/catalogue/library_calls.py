"""Errors of programs that call another version of a library: arguments and attributes that it does not have."""

from typing import Final

from gpumon.diagnosis.catalogue import fixes
from gpumon.diagnosis.catalogue.packages import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_MODEL: Final = (
    r"(?:(?:Ml|L)lama|Qwen|Mistral|Mixtral|Ministral|Pixtral|Gemma|PaliGemma|Phi|GPT|Gpt|Bert|Roberta|XLM|M?T5|Bart|"
    r"Whisper"
    r"|Wav2Vec2|CLIP|Siglip|Deep[Ss]eek|ChatGLM|G[Ll][Mm]|Intern|MiniCPM|Baichuan|Falcon|Bloom|OPT|Mamba|Cohere|Olmo"
    r"|StableLm|Starcoder|L[Ll]a[Vv][Aa]|Idefics|Florence|Blip|InstructBlip|Smol|Nemotron|Granite|Exaone|Ernie|Hunyuan"
    r"|HunYuan|Kimi|Moonshot|MiniMax|Molmo|Ovis|Flux|SD3|StableDiffusion|UNet2D|Autoencoder|Wan|LTX|CogVideo|Sana"
    r"|PixArt|Auto|PreTrained|Speech|Vision|ViT|Dino|Sam|Peft)"
)
"""How the classes of transformers and diffusers begin."""
_CLASS: Final = (
    r"(?:Config|Tokenizer(?:Fast)?|Processor(?:Fast)?|Model|For[A-Z]\w{3,40}|Attention|DecoderLayer|Pipeline|Embedding"
    r"|Experts|Block|Cache)"
)
"""How they end."""
_TRAINER: Final = (
    r"(?:\w{0,40}Trainer\.(?:compute_loss|_inner_training_loop|training_step|log|get_batch_samples|_get_train_sampler"
    r"|prediction_step|_save|create_model_card|create_optimizer\w{0,14})|Accelerator\.\w{1,40}|"
    r"(?:Params4bit|Int8Params|Linear[48]bit"
    r"|Linear8bitLt)\.__\w{2,8}__|hf_hub_download|snapshot_download|\w{1,40}Tokenizer(?:Fast)?\.\w{1,40}"
    r"|_unsloth_\w{1,40})"
)
"""Functions whose arguments differ between versions of the libraries."""

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="library-arguments",
        section=SECTION,
        title="Function takes other arguments in the installed version",
        summary="The program, or another package, passes arguments that the installed version of the library does not"
        " take.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "got an unexpected keyword argument '",
                rf"(?P<module>{_TRAINER}|{_MODEL}\w{{0,60}}?{_CLASS}\.\w{{1,40}})\(\) got an unexpected keyword"
                rf" argument"
                r" '(?P<name>\w{1,60})'",
            ),
            Pattern(
                "got an unexpected keyword argument '",
                r"TypeError: (?P<module>(?!load_dataset)[\w.<>]{1,120})\(\) got an unexpected"
                r" keyword argument"
                r" '(?P<name>use_auth_token"
                r"|token|cache_position|position_embeddings|past_key_values?|num_logits_to_keep|logits_to_keep|"
                r"padding_side"
                r"|num_items_in_batch|torch_dtype|dtype|attn_implementation|trust_remote_code|"
                r"transformer_options|processing_class"
                r"|_is_hf_initialized|load_in_[48]bit|low_cpu_mem_usage|keep_torch_compile|evaluation_strategy|"
                r"eval_strategy"
                r"|max_seq_length|dataset_text_field|resume_download|use_flash_attention_2|offload_state_dict|"
                r"rope_scaling)'",
            ),
            Pattern(
                " positional argument",
                rf"(?P<module>{_TRAINER})\(\) (?:takes (?:from \d to )?\d positional arguments? but \d were"
                rf" given|missing \d"
                r" required positional argument)",
            ),
            Pattern(
                " required positional argument",
                rf"(?P<module>{_MODEL}\w{{0,60}}?{_CLASS}\.forward)\(\) missing \d required positional"
                rf" arguments?: (?P<name>'\w{{1,40}}')",
            ),
            Pattern(
                " required positional argument",
                r"TypeError: (?P<module>forward)\(\) missing \d required positional arguments?: (?P<name>'(?:alibi"
                r"|position_embeddings|rotary_pos_emb\w{0,12}|cache_position)')",
            ),
            Pattern(
                "got an unexpected keyword argument '",
                r"(?P<module>(?:Seq2Seq|SFT|DPO|GRPO|PPO|KTO|ORPO|Reward)?(?:Trainer|Config|TrainingArguments)|Ac"
                r"celerator|AdamW|GradScaler|LLM|EngineArgs)\.(?:__)?init(?:__)?\(\) got an unexpected keyword argument"
                r" '(?P<name>(?!gpus'|progress_bar_|weights_summary|num_processes'|resume_from_checkpoint'|auto_|amp_)"
                r"\w{1,60})'",
            ),
            Pattern(
                "keyword argument 'verbose'",
                r"(?P<module>ReduceLROnPlateau|OneCycleLR|Cosine\w{2,30}|\w{2,30}LR)\.__init__\(\) got an unexpected"
                r" keyword argument '(?P<name>verbose)'",
            ),
            Pattern("seed_worker() missing ", r"(?P<module>seed_worker)\(\) missing \d required positional"),
        ),
        causes=(
            "One of two packages that belong together was upgraded alone, such as transformers without TRL.",
            "The program was written for an older version; arguments are renamed and moved into configurations.",
        ),
        fixes=(
            Fix(
                "Upgrade the packages that call each other together.",
                "pip install --upgrade transformers accelerate peft trl",
            ),
            Fix(
                "Add the argument to your own method.",
                """\
def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
    return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)""",
                first_for=("compute_loss()",),
            ),
            Fix(
                "The code in the model's repository is older than transformers: download it again, or install"
                " the version for which it was written.",
                'pip install "transformers<4.45"',
                first_for=("'padding_side'",),
                hidden_otherwise=True,
            ),
            Fix(
                "Upgrade bitsandbytes.",
                "pip install --upgrade bitsandbytes",
                first_for=("Params4bit",),
            ),
            Fix(
                "Rename the argument of the configuration.",
                "config = SFTConfig(output_dir, max_length=2048)",
                first_for=("Config.__init__() got an unexpected keyword argument 'max_seq_length'",),
            ),
            Fix(
                "Pass it in the configuration of the trainer.",
                'config = SFTConfig(output_dir, max_length=2048, dataset_text_field="text")\n'
                "trainer = SFTTrainer(model, args=config, train_dataset=data)",
                first_for=(
                    "'max_seq_length'",
                    "'dataset_text_field'",
                    "'loss_type'",
                ),
            ),
            Fix(
                "Rename the argument: the tokenizer is the processing class.",
                "trainer = Trainer(model, args, processing_class=tokenizer)",
                first_for=("argument 'tokenizer'",),
            ),
            Fix(
                "Rename the argument.",
                'arguments = TrainingArguments(output_dir, eval_strategy="epoch")',
                first_for=("'evaluation_strategy'",),
            ),
            Fix(
                "Rename the argument.",
                "model = Model.from_pretrained(name, token=token)",
                first_for=("use_auth_token",),
            ),
            Fix(
                "Pass the quantization as a configuration.",
                "model = Model.from_pretrained(name, quantization_config=BitsAndBytesConfig(load_in_4bit=True))",
                first_for=("'load_in_4bit'", "'load_in_8bit'"),
            ),
            Fix(
                "Name the attention.",
                'model = Model.from_pretrained(name, attn_implementation="flash_attention_2")',
                first_for=("use_flash_attention_2",),
            ),
            Fix(
                "In ComfyUI, update the custom node that the traceback names.",
                "git -C custom_nodes/NODE pull",
                first_for=("transformer_options",),
            ),
            Fix(
                "Upgrade sentence-transformers.",
                "pip install --upgrade sentence-transformers",
                first_for=("SentenceTransformer.", "INSTRUCTOR."),
            ),
            Fix(
                "Or install the versions that the program was written for, from its requirements.",
                "pip install --upgrade -r requirements.txt",
            ),
            Fix(
                "Upgrade Unsloth together with what it patches, and restart.",
                "pip install --upgrade --no-cache-dir unsloth unsloth_zoo",
                first_for=("_unsloth_",),
            ),
            Fix(
                "AutoAWQ is no longer developed: quantize by LLM Compressor, or install the transformers with which"
                " AutoAWQ was last tested.",
                "pip install transformers==4.51.3",
                first_for=("AutoAWQ", "'alibi'"),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=(
            "https://huggingface.co/docs/trl/sft_trainer",
            "https://huggingface.co/docs/transformers/main_classes/trainer",
        ),
        said_by="Python 3.6-3.14",
    ),
    KnownError(
        id="library-attribute",
        section=SECTION,
        title="Object of a library lacks an attribute in the installed version",
        summary="The program, or the code of the model, uses an attribute that this version does not have.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " has no attribute ",
                r"AttributeError: (?P<module>\w{2,60}(?:Tokenizer(?:Fast)?|Processor)) has no attribute"
                r" (?P<name>(?!(?:to|cuda|cpu|eval|train|parameters|half)\b)\w{1,80})",
            ),
            Pattern(
                "' object has no attribute '",
                rf"(?<!Message:"
                rf" )(?<!Message:\*\* )'(?P<module>{_MODEL}\w{{0,60}}?{_CLASS}|\w{{0,12}}(?:SFT|GRPO|DPO|PPO|KTO|RLOO"
                rf"|ORPO|Seq2Seq)(?:\w{{0,12}}Trainer|Config)|TrainerState|"
                rf"TrainingArguments|AcceleratorState|AdamW|MatmulLtState|ServerArgs|TransformersForCausalLM|"
                rf"EagleProposer|vLLM\w{{2,30}}|(?:Async)?LLMEngine|AsyncLLM|InprocClient|SyncMPClient|GPUModelRunner|"
                rf"[A-Z]\w{{0,40}}\dTokenizer|"
                rf"(?:Dynamic|Static|HybridCache|Sliding\w{{0,12}}|Encoder\w{{0,12}})Cache|"
                rf"torch\._C\._CudaDeviceProperties)'"
                r" object has no attribute '(?P<name>(?!unsloth_)\w{1,80})'",
            ),
            Pattern(
                "' has no attribute '",
                rf"type object '(?P<module>{_MODEL}\w{{0,80}})' has no attribute '(?P<name>\w{{1,80}})'",
            ),
            Pattern(
                "'Trainer' object has no attribute '",
                r"'Trainer' object has no attribute '(?P<name>tokenizer|deepspeed|sharded_ddp|use_apex)'",
            ),
            Pattern(
                "Cache only has ",
                r"Cache only has (?P<layers>\d{1,4}) layers, attempted to access layer with index (?P<layer>\d{1,4})",
            ),
            Pattern(
                "has no attribute 'encoder_and_decoder'",
                r"'ModelType' has no attribute '(?P<name>encoder_and_decoder)'",
            ),
            Pattern(
                "' object has no attribute 'all_tied_weights_keys'",
                r"'(?P<module>(?!PreTrained)\w{2,60}(?<!Config)(?<!Tokenizer)(?<!Processor))' object has no attribute"
                r" '(?P<name>all_tied_weights_keys)'",
            ),
            Pattern(
                "' object has no attribute '_supports_sdpa'",
                r"'(?P<module>(?!PreTrained)\w{2,60}(?<!Config)(?<!Tokenizer)(?<!Processor))' object has no attribute"
                r" '(?P<name>_supports_sdpa)'",
            ),
            Pattern(
                "' object has no attribute 'model_forward_params'",
                r"'(?P<module>(?!PreTrained)\w{2,60}(?<!Config)(?<!Tokenizer)(?<!Processor))' object has no attribute"
                r" '(?P<name>model_forward_params)'",
            ),
            Pattern(
                "'dict' object has no attribute '",
                r"'dict' object has no attribute '(?P<name>model_type|vocab_size|hidden_size|num_hidden_layers)'",
            ),
        ),
        causes=(
            "The model or the program is newer than the installed library, or older: attributes are added and removed.",
            "One of two packages that belong together was upgraded alone, such as transformers without vLLM.",
        ),
        fixes=(
            Fix(
                "Install the vLLM for which this version of verl is made, in a new environment, and turn off a mode"
                " that this back end does not have.",
                "pip install 'verl[vllm]'",
                first_for=("'vLLMRollout'", "'vLLM"),
            ),
            Fix(
                "Upgrade the library together with the program that uses it.",
                "pip install --upgrade transformers accelerate peft",
            ),
            Fix(
                "Evaluation collects the outputs of the model, and a cache is none that it can collect: switch it off.",
                "model.config.use_cache = False",
                first_for=("attribute 'detach'",),
            ),
            Fix(
                "If the library is newer than the program, install the version with which the model was saved.",
                "grep transformers_version MODEL/config.json",
                first_for=(
                    "forced_bos_token_id",
                    "CodeGen25Tokenizer'",
                    "Cache' object",
                    "Qwen2VLConfig",
                    "all_special_tokens_extended",
                ),
            ),
            Fix(
                "Upgrade the server, which brings the transformers that it needs.",
                "pip install --upgrade vllm",
                first_for=("EagleProposer",),
            ),
            Fix(
                "Use the new name, or install transformers 4.",
                "trainer.processing_class",
                first_for=("attribute 'tokenizer'",),
            ),
            Fix(
                "Install the versions that the program was written for, from its requirements: those of TRL and"
                " transformers belong together.",
                "pip install --upgrade -r requirements.txt",
                first_for=("GRPOConfig' object", "SFTConfig' object", "TrainingArguments' object"),
            ),
            Fix(
                "Install transformers 4, for which the program or the code of the model was written.",
                'pip install "transformers<5"',
                first_for=(
                    "batch_encode_plus",
                    "all_tied_weights_keys",
                ),
            ),
            Fix(
                "Install the version of vLLM that the training program asks for.",
                "pip check",
                first_for=("LLMEngine' object",),
            ),
            Fix(
                "Install the version of the server that the program asks for; upgrade SGLang or vLLM if the"
                " server itself fails.",
                "pip install --upgrade sglang",
                first_for=(
                    "TransformersForCausalLM",
                    "ServerArgs",
                ),
            ),
            Fix(
                "Install transformers 4.49 or older, which still adds generate() to the model classes of others,"
                " or upgrade the package with the class.",
                'pip install "transformers<4.50"',
                first_for=("attribute 'generate'",),
            ),
            Fix(
                "Upgrade TRL, and the package that changes its trainer, together.",
                "pip install --upgrade trl transformers",
                first_for=(
                    "SFTTrainer' object",
                    "GRPOTrainer' object",
                ),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        see_more=(fixes.SHOW_VERSIONS,),
        sources=("https://github.com/hiyouga/LlamaFactory/issues/2050",),
        said_by="transformers 4.30-5.0, diffusers 0.29, torch 2.0-2.6",
    ),
)
