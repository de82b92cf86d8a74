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


@pytest.mark.parametrize(("files", "is_known"), [((OWN[0], INSTALLED, TORCH), True), ((INSTALLED, OWN[0]), False)])
def test_a_package_that_was_given_texts(files: tuple[str, ...], is_known: bool) -> None:
    cause = explain_text(traceback("KeyError: 'input_ids'", *files)).cause
    assert (cause is not None and cause.error.id == "dataset-columns") == is_known


@pytest.mark.parametrize("message", MISSING)
@pytest.mark.parametrize("files", [(), OWN, (INSTALLED, OWN[0]), (INSTALLED, OWN[1], TORCH), (TORCH,)])
def test_code_of_the_user_may_be_wrong_itself(message: str, files: tuple[str, ...]) -> None:
    explanation = explain_text(traceback(message, *files))
    assert explanation.cause is None
    assert explanation.unknown is not None


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("AttributeError: 'tuple' object has no attribute 'log_softmax'", "the tuple"),
        ("AttributeError: 'list' object has no attribute 'long'", "torch.stack"),
        ("AttributeError: 'dict' object has no attribute 'logits'", "out of the dict"),
        ("AttributeError: 'float' object has no attribute 'grad_fn'", "item()"),
        ("AttributeError: 'NoneType' object has no attribute 'zero_'", "returned None"),
    ],
)
def test_a_value_of_a_wrong_kind_in_own_code(message: str, part: str) -> None:
    match = explain_text(traceback(message, OWN[0], TORCH)).cause
    assert match is not None
    assert match.error.id == "not-a-tensor"
    assert part in match.fixes[0].text + match.fixes[0].code
    assert explain_text(traceback(message, OWN[0], INSTALLED)).cause is None


@pytest.mark.parametrize(
    "message",
    [
        "AttributeError: 'NoneType' object has no attribute 'shape'",
        "AttributeError: 'dict' object has no attribute 'loss'",
        "TypeError: unsupported operand type(s) for +: 'int' and 'str'",
        "KeyError: 'labels'",
        "ValueError: 3 is not in list",
    ],
)
def test_a_wrong_value_is_not_a_wrong_version(message: str) -> None:
    assert explain_text(traceback(message, OWN[0], INSTALLED)).cause is None
    assert explain_text(traceback(message, OWN[0], MODEL)).cause is None
    about_cache = explain_text(
        traceback(message, OWN[0], MODEL).replace("work(batch)", "past_key_values[0][0].shape[2]")
    )
    assert (about_cache.cause is not None) == message.startswith(("AttributeError", "TypeError"))
    if about_cache.cause is not None:
        assert "grep transformers_version" in about_cache.cause.fixes[0].code
