"""Values that are no tensors, or no models, where the user's code needs them."""

from typing import Final

from gpumon.diagnosis.catalogue.operators import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="value-not-tensor",
        section=SECTION,
        title="Value is not a tensor",
        summary="The code uses a value like a tensor or an array, and it is a container, a number, a text, or None.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "object has no attribute 'backward'",
                r"'(?P<type>tuple|list|dict|float|int|str|NoneType)' object has no attribute '(?P<name>backward)'",
            ),
            Pattern(
                "object has no attribute 'unsqueeze'",
                r"'(?P<type>tuple|list|dict|float|int|str|NoneType)' object has no attribute '(?P<name>unsqueeze)'",
            ),
        ),
        causes=(
            "A layer or a model returns several values: an LSTM, attention, a model of transformers or torchvision.",
            "A batch of the data loader is a list or a dictionary.",
            "A function returned None: no return in forward(), an image that cannot be read, a missing gradient.",
            "The loss was turned into a number, with item(), before backward().",
        ),
        fixes=(
            Fix("Print the type of the value before the last own line of the traceback.", "print(type(value))"),
            Fix(
                "Take the tensor out of the tuple that the layer or the model returns.",
                "output, state = layer(inputs)  # of transformers: model(**batch).logits",
            ),
            Fix("Make a tensor of the list.", "inputs = torch.stack(inputs)  # of numbers: torch.tensor(inputs)"),
            Fix(
                "Move each value of the dictionary, and take from it what is needed.",
                "batch = {name: value.to(device) for name, value in batch.items()}",
            ),
            Fix(
                "Keep the loss a tensor until backward() is done; use item() for printing only.",
                "loss.backward()\ntotal_loss += loss.item()",
            ),
            Fix(
                "Find the function that returned None: a file that OpenCV cannot read, a forward() without return, or a"
                " gradient before backward().",
                'assert image is not None, f"cannot read {path}"',
            ),
            Fix("Load what the text names: it is a path, or a name.", "model = AutoModel.from_pretrained(name)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/docs/stable/tensors.html",),
        said_by="Python, torch 1.13-2.13",
    ),
    KnownError(
        id="state-dict-as-model",
        section=SECTION,
        title="State dict is used as a model",
        summary="torch.load() returned the saved parameters, a dictionary, and the code uses them as a model.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "OrderedDict' object has no attribute ",
                r"'(?:collections\.)?OrderedDict' object has no attribute '(?P<name>eval|to|cuda|cpu|train|parameters"
                r"|modules|state_dict|load_state_dict|forward|half|float|predict)'",
            ),
            Pattern("OrderedDict' object is not callable", r"'(?:collections\.)?OrderedDict' object is not callable"),
        ),
        causes=("The checkpoint was saved with torch.save(model.state_dict(), path), as PyTorch recommends.",),
        fixes=(
            Fix(
                "Create the model first, then load the parameters into it.",
                'model = Net()\nmodel.load_state_dict(torch.load(path, map_location="cpu"))\nmodel.eval()',
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",),
        said_by="Python, torch 1.13-2.13",
    ),
)
