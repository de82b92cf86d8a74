"""Errors of data sets that a separate program prepares: point clouds, medical images, annotated images.

The wordings are from the sources of nnU-Net 2.6, OpenPCDet 0.6 and MMEngine 0.10, and from reports.
"""

from typing import Final

from gpumon.diagnosis.catalogue.datasets import SECTION
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="dataset-infos",
        section=SECTION,
        title="Prepared files of a 3D data set are missing or from another version",
        summary="OpenPCDet and MMDetection3D read files with infos, which a command creates from the data set; each"
        " version needs its own.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "No such file or directory: '",
                r"No such file or directory: '(?P<file>[^'\n]{0,160}_(?:db)?infos_\w{1,20}\.pkl)'",
            ),
            Pattern("KeyError: 'road_plane'", r"KeyError: '(?P<key>road_plane)'"),
            Pattern("KeyError: 'lidar_idx'", r"KeyError: '(?P<key>lidar_idx)'"),
            Pattern("KeyError: 'ann_info'", r"KeyError: '(?P<key>ann_info)'"),
            Pattern("Dataset: 'infos'", r"KeyError: \"(?P<dataset>\w{1,30}Dataset): '(?P<key>infos)'\""),
            Pattern("Annotation must have data_list", r"Annotation must have data_list and metainfo keys"),
        ),
        causes=(
            "The command that creates the files was not run, or ended with an error.",
            "The files come from another program or version: MMDetection3D 1.1 has data_list, older ones have infos.",
            "The planes of the road are an extra download, which the configuration asks for.",
        ),
        fixes=(
            Fix(
                "With OpenPCDet, delete the .pkl files and create them again.",
                "python -m pcdet.datasets.kitti.kitti_dataset create_kitti_infos"
                " tools/cfgs/dataset_configs/kitti_dataset.yaml",
            ),
            Fix(
                "With MMDetection3D and BEVFusion, create them with the version that you run.",
                "python tools/create_data.py nuscenes --root-path ./data/nuscenes --out-dir ./data/nuscenes"
                " --extra-tag nuscenes",
                first_for=("infos'", "data_list"),
            ),
            Fix(
                "Without the planes of the road, switch them off.",
                "python tools/train.py --cfg_file CFG --set DATA_CONFIG.DATA_AUGMENTOR.AUG_CONFIG_LIST.0."
                "USE_ROAD_PLANE False",
                first_for=("road_plane",),
            ),
            Fix("Print what a file has.", "python -c \"import pickle; print(type(pickle.load(open('FILE', 'rb'))))\""),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/open-mmlab/OpenPCDet/blob/master/docs/GETTING_STARTED.md",
            "https://github.com/open-mmlab/OpenPCDet/issues/9",
        ),
        said_by="OpenPCDet 0.3-0.6, MMDetection3D 0.15-1.4, MMEngine 0.10",
    ),
    KnownError(
        id="camera-models",
        section=SECTION,
        title="Cameras of the scene do not fit the images or the program",
        summary="For Gaussian splatting, COLMAP's cameras must have the size of the images, and no distortion.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("camera model not handled", r"[Cc]olmap camera model not handled"),
            Pattern("Unsupported camera model: ", r"Unsupported camera model: (?P<model>\d{1,2})\b"),
            Pattern(
                "loaded does not match the camera parameters",
                r"The size of image \((?P<image>[\d, ]{1,20})\) loaded does not match the camera parameters",
            ),
        ),
        causes=(
            "COLMAP's camera is OPENCV or SIMPLE_RADIAL, with distortion; the step that removes it was left out.",
            "The images were resized or turned after the cameras were computed, as by their EXIF data.",
        ),
        fixes=(
            Fix("Remove the distortion, as convert.py does.", "python convert.py -s SCENE --skip_matching"),
            Fix("Or remove it with `colmap image_undistorter`, and use the folder that it writes."),
            Fix(
                "Turn the images as their EXIF data says, and compute the cameras again.",
                "from PIL import Image, ImageOps\n\nImageOps.exif_transpose(Image.open(path)).save(path)",
                first_for=("camera parameters",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/graphdeco-inria/gaussian-splatting#processing-your-own-scenes",
            "https://github.com/nerfstudio-project/nerfstudio/issues/3585",
        ),
        said_by="Gaussian splatting of 2023-2025, nerfstudio 1.0-1.1",
    ),
    KnownError(
        id="dataset-classes",
        section=SECTION,
        title="Classes of the data set are not those of the model",
        summary="In OpenMMLab's configuration, the head has another number of classes than the data set names.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "does not matches the length of `CLASSES`",
                r"The `num_classes` \((?P<model>\d{1,6})\) in (?P<head>\w{1,60}) of \w{1,40} does not matches the"
                r" length of `CLASSES` \(?(?P<data>\d{1,6})\) in (?P<dataset>\w{1,40})",
            ),
            literal("Results do not correspond to current coco set"),
            Pattern("CLASSES` in ", r"`CLASSES` in (?P<dataset>\w{1,40}) ?should be a tuple of str"),
        ),
        causes=(
            "The classes are set in the data set only, or in some of the heads only: 80 are those of COCO.",
            "The classes are set for training only, and the data sets for validation and test still have COCO's.",
            "The program runs an installed copy of the package, not the files that were changed.",
        ),
        fixes=(
            Fix(
                "Name the classes in all three data sets, and their number in every head.",
                """\
classes = ("cat", "dog")
data = dict(train=dict(classes=classes), val=dict(classes=classes), test=dict(classes=classes))
model = dict(roi_head=dict(bbox_head=dict(num_classes=2), mask_head=dict(num_classes=2)))""",
            ),
            Fix(
                "In MMDetection 3, name them in metainfo; with one class, do not forget the comma.",
                "train_dataloader = dict(dataset=dict(metainfo=dict(classes=('cat',))))",
                first_for=("should be a tuple",),
            ),
            Fix("Show which copy runs.", "python -c 'import mmdet; print(mmdet.__file__)'"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://mmdetection.readthedocs.io/en/latest/advanced_guides/customize_dataset.html",
            "https://github.com/open-mmlab/mmdetection/issues/4828",
        ),
        said_by="MMDetection 2.3-2.28",
    ),
    KnownError(
        id="coco-annotations",
        section=SECTION,
        title="Annotations are not in COCO's form",
        summary="The file lacks a part that COCO's form has: lists of images, annotations and categories.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "CocoDataset: '",
                r"KeyError: [^\n]{0,40}CocoDataset: '(?P<key>file_name|images?|image_id|annotations|categories|id"
                r"|width|height|bbox|area)'",
            ),
            Pattern("annotation file format ", r"annotation file format (?P<type><class '\w{1,20}'>) not supported"),
        ),
        causes=(
            "The file was exported in another form, such as Labelme's or one file for each image.",
            "The script that converted it left out a field, such as file_name, area or iscrowd.",
        ),
        fixes=(
            Fix(
                "Compare the fields of the file with those of COCO.",
                """\
import json

data = json.load(open("train.json"))
print(data.keys(), data["images"][0].keys(), data["annotations"][0].keys())""",
            ),
            Fix("Export it again as COCO from the program with which it was labeled."),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://cocodataset.org/#format-data", "https://github.com/microsoft/SoftTeacher/issues/105"),
        said_by="pycocotools 2.0, MMDetection 2",
    ),
    KnownError(
        id="dataset-registry",
        section=SECTION,
        title="Data set is not registered as Detectron2 needs it",
        summary="Detectron2 finds data sets by names, which the program registers once, before it trains.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " is not registered! Available data",
                r"Dataset '(?P<name>[^'\n]{1,80})' is not registered! Available data",
            ),
            Pattern(" is already registered!", r"Error: Dataset '(?P<name>[^'\n]{1,80})' is already registered!"),
            Pattern(
                "are not registered in the DatasetCatalog",
                r"dataset names are not registered in the DatasetCatalog: (?P<name>\{[^}\n]{1,80}\})",
            ),
            Pattern("No valid data found in ", r"AssertionError: No valid data found in (?P<name>[^\n]{1,80}?)\.?$"),
            Pattern(
                "cannot be set to a different value!",
                r"Attribute '(?P<attribute>\w{1,40})' in the metadata of '(?P<name>[^'\n]{1,80})' cannot be set to a"
                r" different value!",
            ),
        ),
        causes=(
            "The name is misspelled, or a text stands in place of a tuple: each of its letters is then a name.",
            "The cell of a notebook that registers the data set ran twice, or the name is one of COCO's own.",
            "The annotations are empty, or all images were filtered out for lack of objects.",
        ),
        fixes=(
            Fix(
                "Register under a separate name, and give the names as tuples.",
                """\
register_coco_instances("mine_train", {}, "train.json", "images")
cfg.DATASETS.TRAIN = ("mine_train",)""",
            ),
            Fix(
                "Remove what was registered before.",
                'DatasetCatalog.remove("mine_train")\nMetadataCatalog.remove("mine_train")',
                first_for=("already registered", "different value"),
            ),
            Fix(
                "Look at what is loaded.",
                'print(len(DatasetCatalog.get("mine_train")), DatasetCatalog.get("mine_train")[:1])',
                first_for=("No valid data",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=("https://detectron2.readthedocs.io/en/latest/tutorials/datasets.html",),
        said_by="Detectron2 0.1-0.6",
    ),
    KnownError(
        id="nnunet-paths",
        section=SECTION,
        title="Data set of nnU-Net is not found",
        summary="The folders of nnU-Net are in three variables, and the name of the data set's folder has its number.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "Could not find a dataset with the ID", r"Error: Could not find a dataset with the ID (?P<id>\d{1,4})"
            ),
            Pattern("Could not find a task with the ID", r"Error: Could not find a task with the ID (?P<id>\d{1,4})"),
        ),
        causes=(
            "The variables are not set in this terminal, or have quotation marks in their values on Windows.",
            "The folder is not named as `Dataset001_NAME`, with three digits, or not in nnUNet_raw.",
            "A variant of nnU-Net has its own paths, in its file paths.py.",
        ),
        fixes=(
            Fix(
                "Set the folders, and look for the data set.",
                "export nnUNet_raw=/data/nnUNet_raw nnUNet_preprocessed=/data/nnUNet_preprocessed"
                " nnUNet_results=/data/nnUNet_results; ls $nnUNet_raw",
            ),
            Fix(
                "Name the folder with three digits; it contains imagesTr, labelsTr and dataset.json.",
                "ls $nnUNet_raw/Dataset001_MyData",
            ),
            Fix("In a variant such as U-Mamba, check where it reads the folders.", "cat nnunetv2/paths.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://github.com/MIC-DKFZ/nnUNet/blob/master/documentation/setting_up_paths.md",
            "https://github.com/MIC-DKFZ/nnUNet/blob/master/documentation/dataset_format.md",
        ),
        said_by="nnU-Net 1.7-2.6",
    ),
)
