"""Errors of programs that are older than the libraries they use: of images, audio, configurations and OpenMMLab."""

from typing import Final

from gpumon.diagnosis.catalogue.packages import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="library-removed",
        section=SECTION,
        title="Program is older than a library that it uses",
        summary="The installed version of the library, or of Python, no longer has the function or takes its arguments"
        " in another form.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "FormatCode() got an unexpected",
                r"FormatCode\(\) got an unexpected keyword argument '(?P<name>\w{1,40})'",
            ),
            Pattern("mel() takes 0 positional", r"TypeError: (?P<name>mel)\(\) takes 0 positional arguments but"),
            Pattern(
                "stft requires the return_complex", r"stft requires the (?P<name>return_complex) parameter be given"
            ),
            Pattern("argument: 'Loader'", r"load\(\) missing 1 required positional argument: '(?P<name>Loader)'"),
            Pattern("has no attribute 'getargspec'", r"module 'inspect' has no attribute '(?P<name>getargspec)'"),
            Pattern(
                "module 'collections' has no",
                r"module 'collections' has no attribute '(?P<name>[A-Z]\w{2,20})'",
            ),
            Pattern(" from 'collections'", r"cannot import name '(?P<name>[A-Z]\w{2,20})' from 'collections'"),
        ),
        causes=("The requirements of the program name no versions, so that pip installed the newest ones.",),
        fixes=(
            Fix("Install the last version that fits the program.", "python -m pip install 'PACKAGE<VERSION'"),
            Fix(
                "Install the last yapf that mmcv and mmengine call in this form.",
                "python -m pip install yapf==0.40.1",
                first_for=("FormatCode()",),
            ),
            Fix(
                "Name the arguments of librosa's function, or install librosa 0.9.",
                "basis = librosa.filters.mel(sr=sampling_rate, n_fft=n_fft, n_mels=num_mels, fmin=fmin, fmax=fmax)",
                first_for=("mel()",),
            ),
            Fix(
                "Ask for complex values, and convert them to the old form.",
                "spectrum = torch.view_as_real(torch.stft(signal, n_fft, window=window, return_complex=True))",
                first_for=("return_complex",),
            ),
            Fix(
                "Use the function that needs no loader.",
                "config = yaml.safe_load(stream)",
                first_for=("'Loader'",),
            ),
            Fix(
                "For code older than Python 3.10 and 3.11, such as chumpy for SMPL, create an environment with such a"
                " Python.",
                "conda create -n old python=3.9",
                first_for=("getargspec", "'collections'"),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/open-mmlab/mmdetection/issues/10962",
            "https://librosa.org/doc/latest/changelog.html",
        ),
        said_by="yapf 0.40, librosa 0.10, torch 1.8-2.13, Python 3.10-3.14",
    ),
    KnownError(
        id="mm-registry",
        section=SECTION,
        title="OpenMMLab does not know the name in the configuration",
        summary="A class that the configuration names was not registered: its module was not imported, or the installed"
        " package has another version.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "registry. Please check whether the value of",
                r"KeyError: [\"'](?P<name>[\w.]{1,60}) is not in the (?P<registry>[\w:. -]{1,40}?) registry\. Please"
                r" check whether the value of",
            ),
            *(
                Pattern(
                    f"is not in the {registry} registry",
                    r"KeyError: [\"'](?:\w{1,40}: [\"'])?(?P<name>[\w.]{1,60}) is not in the"
                    rf" (?P<registry>{registry}) registry",
                )
                for registry in ("models", "dataset", "pipeline")
            ),
            Pattern(
                "is already registered in",
                r"KeyError: [\"'](?P<name>[\w.]{1,60}) is already registered in (?P<registry>[\w:. -]{1,40}?)\b",
            ),
        ),
        causes=(
            "The program is a changed copy of mmdet, mmdet3d or mmseg, and Python imports the installed one.",
            "The configuration is for the other generation: MMCV 1 with mmdet 2, or MMCV 2 with mmdet 3.",
            "The module that defines the class is not imported: custom_imports, plugin_dir or __init__.py.",
        ),
        fixes=(
            Fix(
                "Install the repository itself in place of the released package.",
                "pip uninstall -y mmdet3d && pip install --no-build-isolation -e .",
            ),
            Fix(
                "Import the module of the class in the configuration.",
                "custom_imports = dict(imports=['projects.mymodel'], allow_failed_imports=False)",
            ),
            Fix(
                "Register the classes of the package before the configuration is used; for mmsegmentation and"
                " others, name"
                " their package in place of mmdet.",
                "from mmdet.utils import register_all_modules\n\nregister_all_modules()",
                first_for=("mmengine::",),
            ),
            Fix("Compare the versions with those that the README names.", "pip list | grep -i -E 'mm|torch'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://mmengine.readthedocs.io/en/latest/advanced_tutorials/config.html",),
        said_by="mmcv 1.3-1.7, mmengine 0.7-0.10, mmdet 3.0-3.3",
    ),
    KnownError(
        id="mmcv-version",
        section=SECTION,
        title="MMCV does not match the package that uses it",
        summary="MMDetection and the other packages of OpenMMLab accept a range of versions of MMCV, and the"
        " installed one"
        " is outside of it.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " is used but incompatible. Please install mm",
                r"(?P<name>MM\w{2,14})==(?P<installed>[\w.]{1,20}) is used but incompatible\. Please install mm\w{2,14}"
                r" ?>=(?P<required>[\w., <>=\[\]]{1,40}[\w\]])",
            ),
        ),
        causes=(
            "MMCV 1 belongs to mmdet 2 and mmseg 0, MMCV 2 to mmdet 3 and mmseg 1.",
            "MMDetection 3.3 names MMCV below 2.2, and for PyTorch 2.2 and later only MMCV 2.2 has wheels.",
        ),
        fixes=(
            Fix(
                "Install a version in the range that the message names.",
                'pip install -U openmim && mim install "mmcv>=2.0.0,<2.2.0"',
            ),
            Fix(
                "The package that the traceback names is of the generation of MMCV 1: install its new"
                " generation, which is"
                " for MMCV 2.",
                'pip uninstall -y mmdet && pip install -U openmim && mim install "mmdet>=3.3"',
                first_for=("<=1.", "<=[1"),
                hidden_otherwise=True,
            ),
            Fix(
                "Or, with a PyTorch for which only MMCV 2.2 has wheels, set mmcv_maximum_version to '2.3.0' in the file"
                " that the traceback names.",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://mmdetection.readthedocs.io/en/latest/notes/faq.html",),
        said_by="mmdet 2.11-3.3",
    ),
    KnownError(
        id="lightning-removed",
        section=SECTION,
        title="Program is older than Lightning 2",
        summary="Lightning 2 removed arguments of the Trainer and hooks of the module, and the program uses one.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " has been removed in v2.0.0. `",
                r"Support for `(?P<name>\w{1,40})` has been removed in v2\.0\.0\. `\w{1,60}` implements this method",
            ),
            Pattern(
                "got an unexpected keyword argument '",
                r"__init__\(\) got an unexpected keyword argument '(?P<name>gpus|num_processes|tpu_cores|progress_bar"
                r"_refresh_rate|weights_summary|checkpoint_callback|resume_from_checkpoint|auto_select_gpus|amp_backend"
                r"|amp_level|replace_sampler_ddp|flush_logs_every_n_steps|auto_scale_batch_size|auto_lr_find"
                r"|terminate_on_nan|prepare_data_per_node|track_grad_norm)'",
            ),
            Pattern(
                "'Trainer' has no attribute 'add_argparse_args'",
                r"type object 'Trainer' has no attribute '(?P<name>add_argparse_args)'",
            ),
            Pattern(
                "'Trainer' has no attribute 'from_argparse_args'",
                r"type object 'Trainer' has no attribute '(?P<name>from_argparse_args)'",
            ),
        ),
        causes=("The requirements name no version of Lightning, so that pip installed the newest one.",),
        fixes=(
            Fix("Install the last Lightning 1 that has it.", "python -m pip install pytorch-lightning==1.9.5"),
            Fix(
                "Or change the call: devices instead of gpus, and ckpt_path of fit instead of resume_from_checkpoint.",
                'trainer = Trainer(accelerator="gpu", devices=1)\ntrainer.fit(model, data, ckpt_path=path)',
            ),
            Fix(
                "Or rename the hook: on_train_epoch_end has no outputs, which the module has to keep itself.",
                "def on_validation_epoch_end(self):\n    loss = torch.stack(self.losses).mean()",
                first_for=("has been removed in v2.0.0",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://lightning.ai/docs/pytorch/stable/upgrade/migration_guide.html",),
        said_by="Lightning 2.0-2.6",
    ),
    KnownError(
        id="rasterizer-version",
        section=SECTION,
        title="Compiled rasterizer does not match the program",
        summary="The installed diff_gaussian_rasterization takes other arguments, or returns another number of"
        " values, than"
        " the program expects.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "GaussianRasterizationSettings.",
                r"GaussianRasterizationSettings\.__new__\(\) (?:got an unexpected keyword argument|missing"
                r" \d{1,2} required"
                r" positional arguments?:) '(?P<argument>\w{1,40})'",
            ),
        ),
        causes=(
            "Another version, or another repository's variant of the same name, is installed.",
            "The repository was updated, and its submodules were not built again.",
        ),
        fixes=(
            Fix(
                "Build the rasterizer of this repository again.",
                "git submodule update --init --recursive && pip uninstall -y diff_gaussian_rasterization && pip install"
                " --no-build-isolation submodules/diff-gaussian-rasterization",
            ),
            Fix(
                "If several repositories have their own variant, give each an environment.",
                "python -m venv .venv-splatting",
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://github.com/graphdeco-inria/gaussian-splatting/issues/952",),
        said_by="diff_gaussian_rasterization of 2024",
    ),
)
