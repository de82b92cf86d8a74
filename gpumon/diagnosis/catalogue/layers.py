"""Errors of models, optimizers and schedulers that are built from PyTorch's parts, but not as the parts require."""

from typing import Final

from gpumon.diagnosis.catalogue.training import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

_MODULE: Final = "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"
_OPTIMIZERS: Final = "https://docs.pytorch.org/docs/stable/optim.html"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="module-definition",
        section=SECTION,
        title="Module is not defined as PyTorch requires",
        summary="A class of the model sets its parts in a way that torch.nn.Module does not accept.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "before Module.__init__() call",
                r"cannot assign (?P<part>modules?|parameters?|buffers?) before Module\.__init__\(\) call",
            ),
            Pattern(
                'is missing the required "forward" function',
                r"Module \[(?P<module>\w{1,80})\] is missing the required \"forward\" function",
            ),
            Pattern("is not a Module subclass", r"TypeError: (?P<type>[\w.]{1,80}) is not a Module subclass"),
            Pattern(
                "cannot assign '",
                r"cannot assign '(?P<type>[\w.]{1,60})'(?: object)? (?:as|to) (?P<part>child module|parameter|buffer)"
                r" '(?P<name>[\w.]{1,60})'",
            ),
            Pattern(
                "Cannot assign non-leaf Tensor to",
                r"Cannot assign non-leaf Tensor to parameter '(?P<name>[\w.]{1,60})'",
            ),
        ),
        causes=(
            "The class does not call super().__init__() first, or has no method forward at the level of the class.",
            "A list, a function or None was given where a module is needed, such as in a Sequential.",
            "A parameter was replaced by a plain tensor.",
        ),
        fixes=(
            Fix(
                "Call the constructor of the base class first.",
                """\
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)""",
            ),
            Fix(
                "Keep several modules in a ModuleList.",
                "self.blocks = torch.nn.ModuleList(blocks)",
                first_for=("not a Module subclass",),
            ),
            Fix(
                "Change the values of a parameter in place.",
                "with torch.no_grad():\n    layer.weight.copy_(values)",
                first_for=("non-leaf",),
            ),
            Fix(
                "Or make the tensor a parameter.",
                "layer.weight = torch.nn.Parameter(values)",
                first_for=("as parameter",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_MODULE,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="batch-norm-single",
        section=SECTION,
        title="Batch normalization got a single value per channel",
        summary="In training, batch normalization computes a variance, which one value does not have.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "when training, got input size",
                r"Expected more than 1 (?:value per channel|spatial element) when training, got input size"
                r" (?:torch\.Size\()?(?P<shape>\[[\d, ]{0,60}\])",
            ),
        ),
        causes=(
            "The last batch of an epoch has one sample.",
            "The batch size is 1, and a pooling layer reduced the image to one pixel.",
            "The model is in training mode while it should only predict.",
        ),
        fixes=(
            Fix("Leave out the last, incomplete batch.", "loader = DataLoader(dataset, batch_size=8, drop_last=True)"),
            Fix("For predictions, change the mode.", "model.eval()"),
            Fix(
                "Use larger images or patches: instance normalization needs more than one pixel at the deepest level.",
                first_for=("spatial element",),
            ),
            Fix(
                "If only single samples fit, use a normalization without a batch.",
                "norm = torch.nn.GroupNorm(32, channels)",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm2d.html",),
        said_by="torch 1.0-2.13",
    ),
    KnownError(
        id="layer-settings",
        section=SECTION,
        title="Arguments of a layer do not fit together",
        summary="A layer was created with sizes that do not divide evenly, or with a value out of its range.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("must be divisible by num_heads", r"embed_dim`? must be divisible by num_heads"),
            Pattern(
                "must be divisible by",
                r"\b(?P<argument>num_channels|in_channels|out_channels)(?: \(\d{1,9}\))? must be divisible by"
                r" (?P<divisor>num_groups|groups)\b",
            ),
            Pattern(
                "is not a multiple of the number of attention",
                r"hidden size \((?P<size>\d{1,9})[^\n]{0,8}\) is not a multiple of the number of attention heads"
                r" \((?P<heads>\d{1,9})",
            ),
            literal("dropout probability has to be between 0 and 1"),
            Pattern("should be at most half of ", r"pad(?:ding)? should be at most half of (?:effective )?kernel size"),
            literal("only one of size or scale_factor should be defined"),
        ),
        causes=(
            "The number of heads or groups does not divide the number of channels.",
            "A value of the configuration was changed without the others, or belongs to another model.",
        ),
        fixes=(
            Fix(
                "Print the settings with which the layer is created.",
                "print(embed_dim, num_heads, embed_dim % num_heads)",
            ),
            Fix("Choose a number that divides the other one without a rest."),
            Fix(
                "Choose a padding of at most half of the kernel.",
                "pool = torch.nn.MaxPool2d(kernel_size=3, stride=2, padding=1)",
                first_for=("at most half of",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html",),
        said_by="torch 1.13-2.13, transformers 4.20-5.0",
    ),
    KnownError(
        id="optimizer-parameters",
        section=SECTION,
        title="Optimizer does not accept these parameters",
        summary="The optimizer got something that is no parameter, or the same parameter twice.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "optimizer can only optimize Tensors, but",
                r"optimizer can only optimize Tensors, but one of the params is (?P<type>[^\n]{1,60})",
            ),
            literal("some parameters appear in more than one parameter group"),
            Pattern(
                "argument given to the optimizer should be",
                r"params argument given to the optimizer should be an iterable of Tensors or dicts, but got"
                r" (?P<type>[^\n]{1,60})",
            ),
            literal("optimizer parameters should be organized in ordered collections"),
        ),
        causes=(
            "A list of lists, of names and parameters, or a single tensor was given.",
            "Two groups share a parameter, such as tied embeddings, or one part is also in the rest.",
        ),
        fixes=(
            Fix("Give the parameters of the model.", "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)"),
            Fix(
                "Build the second group from what the first one does not contain.",
                """\
first = {id(parameter) for parameter in model.head.parameters()}
rest = [parameter for parameter in model.parameters() if id(parameter) not in first]""",
                first_for=("more than one parameter group",),
            ),
            Fix(
                "Wrap a single tensor in a list.",
                "optimizer = torch.optim.AdamW([tensor], lr=1e-4)",
                first_for=("iterable of Tensors",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_OPTIMIZERS,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="optimizer-settings",
        section=SECTION,
        title="Optimizer rejects a setting, or the kind of gradient",
        summary="A value is out of its range, two settings exclude each other, or the optimizer cannot use these"
        " tensors.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "ValueError: Invalid ",
                r"ValueError: Invalid (?P<setting>learning rate|epsilon value|weight_decay value|momentum"
                r" value|rho value"
                r"|beta parameter at index \d): (?P<value>[^\n]{1,60})",
            ),
            Pattern(
                " does not support sparse gradients",
                r"(?P<optimizer>\w{1,40}) does not support sparse gradients",
            ),
            literal("SparseAdam does not support dense gradients"),
            literal("TypeError: '<=' not supported between instances of 'float' and 'str'"),
            literal("Muon only supports 2D parameters"),
            Pattern(
                "`fused=True` requires all the params",
                r"`fused=True` requires all the params to be floating point Tensors of supported devices",
            ),
            literal("`fused` and `foreach` cannot be `True` together"),
            literal("lr as a Tensor is not supported for capturable=False and foreach=True"),
            Pattern(
                "If capturable=True, params and",
                r"If capturable=True, params and \w{1,20} must be on supported"
                r" devices",
            ),
            literal("parameter group didn't specify a value of required optimization parameter"),
            literal("can't use the foreach API on "),
        ),
        causes=(
            "A configuration has the number as text, such as 1e-4 in YAML, or with the wrong sign.",
            "An embedding was made with sparse=True, whose gradients most optimizers cannot use.",
            "The optimizer was built, or its state loaded, before the model was moved to the GPU.",
        ),
        fixes=(
            Fix("Print the settings, and convert text to numbers.", "learning_rate = float(config.learning_rate)"),
            Fix(
                "Use dense gradients.",
                "embedding = torch.nn.Embedding(rows, width, sparse=False)",
                first_for=("not support sparse",),
            ),
            Fix(
                "Move the model before the optimizer is built.",
                'model = model.to("cuda")\noptimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)',
                first_for=("fused", "capturable", "foreach=True was"),
            ),
            Fix("Give Muon the matrices of the hidden layers, and the rest to AdamW.", first_for=("Muon",)),
            Fix(
                "SparseAdam is for embeddings with sparse=True only: use Adam for all others.",
                "optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)",
                first_for=("SparseAdam does not",),
                hidden_otherwise=True,
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_OPTIMIZERS,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="scheduler-steps",
        section=SECTION,
        title="Scheduler of the learning rate is out of step",
        summary="The scheduler was called more often than planned, or resumes without the state that it needs.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "The specified number of total steps is",
                r"Tried to step (?P<step>\d{1,12}) times\. The specified number of total steps is (?P<total>\d{1,12})",
            ),
            Pattern(
                " is not specified in param_groups[",
                r"param '?(?P<name>\w{1,20})'? is not specified in param_groups\[\d{1,4}\] when resuming a(?:n"
                r" optimizer|"
                r" scheduler)",
            ),
            Pattern(
                "You must define either total_steps OR",
                r"You must define either total_steps OR \(epochs AND steps_per_epoch\)",
            ),
        ),
        causes=(
            "The scheduler is stepped for each batch while the plan counts epochs, or more steps are run than planned.",
            "The scheduler was created with last_epoch before the optimizer's state was loaded.",
            "Accelerate and DeepSpeed step the scheduler once per process unless the plan accounts for it.",
        ),
        fixes=(
            Fix(
                "Plan the steps that are taken.",
                "scheduler = OneCycleLR(optimizer, max_lr=1e-3, total_steps=epochs * len(loader))",
            ),
            Fix(
                "When resuming, load the states of both instead of giving last_epoch.",
                'optimizer.load_state_dict(state["optimizer"])\nscheduler.load_state_dict(state["scheduler"])',
                first_for=("initial_lr",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(_OPTIMIZERS,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="optimizer-state-device",
        section=SECTION,
        title="Optimizer's count of steps is on the wrong device",
        summary="Adam keeps a count of steps for each parameter; it must be on the CPU, or with capturable on the GPU.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("state_steps should not be CUDA", r"state_steps should not be CUDA tensors"),
            literal("state_steps must be CUDA tensors"),
            Pattern(
                "_warned_capturable_if_run_uncaptured",
                r"'(?P<optimizer>\w{1,40})' object has no attribute '_warned_capturable_if_run_uncaptured'",
            ),
        ),
        causes=(
            "PyTorch 1.12.0 moves the count to the GPU when a state is loaded; 1.12.1 no longer does.",
            "The program moves every tensor of the loaded state to the GPU by itself.",
            "The optimizer comes from a file or a copy that another version of PyTorch made.",
        ),
        fixes=(
            Fix("Upgrade PyTorch; if 1.12 is needed, to 1.12.1.", "pip install --upgrade torch"),
            Fix(
                "Move the count back after the state was loaded.",
                'for state in optimizer.state.values():\n    if "step" in state:\n'
                '        state["step"] = torch.as_tensor(state["step"]).cpu()',
            ),
            Fix(
                "Or let the optimizer count on the GPU.",
                'for group in optimizer.param_groups:\n    group["capturable"] = True',
            ),
            Fix("Save and load the state instead of the optimizer.", "optimizer.load_state_dict(state)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/pytorch/pytorch/issues/80809", _OPTIMIZERS),
        said_by="torch 1.12-2.1",
    ),
)
