"""Values that are no models where the user's code needs one."""

from typing import Final

from gpumon.diagnosis.catalogue.operators import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
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
