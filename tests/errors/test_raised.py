"""An installed package that uses what another one lacks is a mismatch of versions, whatever the names are."""

import pytest

from gpumon.errors.explain import explain_text

OWN = ("/home/user/train.py", "/workspace/src/model.py")
TORCH = "/venv/lib/python3.12/site-packages/torch/nn/modules/module.py"
INSTALLED = "/venv/lib/python3.12/site-packages/unsloth_zoo/losses.py"
WINDOWS = r"C:\env\Lib\site-packages\unsloth_zoo\losses.py"
MODEL = "/home/user/.cache/huggingface/modules/transformers_modules/THUDM/cogvlm2/2bf7de68/modeling_cogvlm.py"
ENTRIES = {"TypeError": "library-arguments", "AttributeError": "library-attribute"}
MISSING = (
    "AttributeError: 'LossConfig' object has no attribute 'mini_batch'",
    "AttributeError: module 'zoo.losses' has no attribute 'chunked'",
    "ImportError: cannot import name 'chunked' from 'zoo.losses'",
    "ModuleNotFoundError: No module named 'zoo.losses.chunked'",
    "TypeError: accumulated_loss() got an unexpected keyword argument 'hidden'",
    "TypeError: accumulated_loss() missing 1 required positional argument: 'hidden'",
    "TypeError: accumulated_loss() takes 2 positional arguments but 3 were given",
)


def traceback(message: str, *files: str) -> str:
    frames = "".join(f'  File "{file}", line 7, in call\n    return work(batch)\n' for file in files)
    return f"Traceback (most recent call last):\n{frames}{message}\n"


@pytest.mark.parametrize("message", MISSING)
@pytest.mark.parametrize(
    "files", [(OWN[0], INSTALLED), (INSTALLED, TORCH), (OWN[0], INSTALLED, TORCH, TORCH), (WINDOWS,)]
)
def test_code_of_a_package_that_misses_something(message: str, files: tuple[str, ...]) -> None:
    explanation = explain_text(traceback(message, *files))
    assert explanation.unknown is None
    assert explanation.cause is not None
    assert explanation.cause.error.id == ENTRIES.get(message.partition(":")[0], "package-version")
    assert explanation.cause.text == message
    assert explanation.cause.values["raised_by"] == "unsloth_zoo"
    assert "Upgrade unsloth_zoo" in explanation.cause.fixes[0].text


def test_a_package_whose_object_lacks_what_the_users_code_asks_for_is_not_broken() -> None:
    text = traceback("AttributeError: 'Job' object has no attribute 'id'", OWN[0], INSTALLED)
    asked = text.replace('losses.py", line 7, in call', 'losses.py", line 7, in __getattr__')
    assert explain_text(text).cause is not None
    assert explain_text(asked).cause is None
