"""Errors of datasets and of the loader that reads them: nothing to read, samples of different sizes, damaged files."""

from typing import Final

from gpumon.diagnosis.catalogue import sources
from gpumon.diagnosis.catalogue.wording import NOT_ABOUT_MEMORY, literal
from gpumon.diagnosis.known import ContextState, Fix, KnownError, Pattern

SECTION: Final = "Data loading"

ERRORS: Final[tuple[KnownError, ...]] = (
    KnownError(
        id="samples-missing",
        section=SECTION,
        title="Dataset has no samples",
        summary="The program found no samples: the path is wrong, or a filter or a split left none.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                "num_samples should be a positive integer",
                r"num_samples should be a positive integer value, but got num_samples=0",
            ),
            literal("datasets should not be an empty iterable"),
            Pattern(
                "Found no valid file for the class",
                r"Found no valid file for the class(?:es)? (?P<classes>[^\n]{1,100}?)\.",
            ),
            Pattern("Couldn't find any class folder in", r"Couldn't find any class folder in (?P<path>[^\n]{1,200})\."),
            Pattern("in subfolders of", r"Found 0 (?:files|images) in subfolders of:? ?(?P<path>[^\n]{1,200})"),
            literal("Dataset not found or corrupted. You can use download=True"),
            literal("Could not recognize scene type!"),
            Pattern("cannot sample n_sample <= 0 samples", r"cannot sample n_sample <= 0 samples"),
            Pattern(
                ": No images found in ",
                r"Error: (?:[^\n]{0,80})?\b(?:train|val|test): No images found in (?P<path>[^\n]{1,200})",
            ),
            Pattern(
                "not start training",
                r"No (?:valid )?(?:images|labels)(?: found)?[^\n]{0,200}?[,.] ?can ?not start training",
            ),
            Pattern(
                "need at least one array to ",
                r"ValueError: need at least one array to (?:concatenate|stack)",
            ),
            Pattern("() should return >= 0", r"ValueError: __len__\(\) should return >= 0"),
            Pattern("corresponds to no data!", r"Instruction \"(?P<split>[^\"\n]{1,80})\" corresponds to no data!"),
        ),
        causes=(
            "The path is wrong, relative to another folder, or not mounted in the container.",
            "Names or endings of the files are not those that the dataset searches for.",
            "A filter, a split or the sampler removed all samples.",
        ),
        fixes=(
            Fix("Print the number of samples, and the path that is searched.", "print(len(dataset), path)"),
            Fix(
                "Show what the path contains, on the host and in the container of the job.", "ls -lR data | head -n 30"
            ),
            Fix("Give an absolute path, or start the program in the folder to which the path is relative."),
            Fix(
                "For Gaussian splatting, give the folder that contains `sparse/0` of COLMAP, or transforms_train.json.",
                "ls SCENE/images SCENE/sparse/0; python train.py -s SCENE",
                first_for=("recognize scene type",),
            ),
            Fix(
                "With Ultralytics on several GPUs, the validation set has fewer batches"
                " than processes. Upgrade it, use a smaller batch, or train on fewer GPUs.",
                "pip install --upgrade ultralytics",
                first_for=("should return >= 0",),
            ),
            Fix(
                "With musubi-tuner, cache the latents and the outputs of the text encoder first, with the same dataset"
                " file; check its paths, and the captions.",
                "python src/musubi_tuner/cache_latents.py --dataset_config FILE --vae VAE",
                first_for=("musubi-tuner",),
            ),
            Fix(
                "In MMDetection, name the classes of your annotations: images without one of them are left out.",
                "dataset = dict(metainfo=dict(classes=('CLASS',)))",
                first_for=("need at least one array to concatenate",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.DATA_LOADING, "https://docs.pytorch.org/vision/stable/datasets.html"),
        said_by="torch 1.13-2.13, torchvision 0.14-0.24, Ultralytics 8",
    ),
    KnownError(
        id="batch-unequal",
        section=SECTION,
        title="Samples of a batch have different sizes",
        summary="The loader stacks the samples of a batch into one tensor, which needs samples of the same size.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern(
                "stack expects each tensor to be equal size",
                r"stack expects each tensor to be equal size, but got (?P<shape>\[[\d, ]{0,60}\]) at entry"
                r" (?P<entry>\d{1,6}) and (?P<other_shape>\[[\d, ]{0,60}\]) at entry (?P<other_entry>\d{1,6})",
            ),
            Pattern(
                "each element in list of batch should be", r"each element in list of batch should be of equal size"
            ),
            literal("Trying to resize storage that is not resizable"),
        ),
        causes=(
            "Images have different sizes or numbers of channels, such as gray, RGB and RGBA.",
            "Texts, sounds or lists of boxes have different lengths.",
            "A batch of random crops, or with several scales, mixes sizes.",
        ),
        fixes=(
            Fix(
                "The stored latents of images are of other sizes than the images now have: delete them, and"
                " store them again.",
                "find IMAGES -name '*.npz' -delete",
                first_for=("kohya latents",),
                hidden_otherwise=True,
            ),
            Fix(
                "Bring all images to one size and three channels.",
                'image = transforms.functional.resize(image.convert("RGB"), [224, 224])',
            ),
            Fix(
                "Pad sequences in a collate function.",
                """\
from torch.nn.utils.rnn import pad_sequence


def collate(samples):
    return pad_sequence([torch.as_tensor(sample) for sample in samples], batch_first=True)


loader = DataLoader(dataset, batch_size=8, collate_fn=collate)""",
            ),
            Fix(
                "For detection, return lists.",
                "loader = DataLoader(dataset, collate_fn=lambda batch: tuple(zip(*batch)))",
            ),
            Fix(
                "Print the sizes, without workers, to find the sample.",
                "print({tuple(dataset[index][0].shape) for index in range(100)})",
                first_for=("not resizable",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.DATA_LOADING,),
        said_by="torch 1.7-2.13",
    ),
    KnownError(
        id="loader-settings",
        section=SECTION,
        title="Settings of a DataLoader or dataset contradict each other",
        summary="Two arguments of the loader, sampler or dataset exclude each other, or one is out of range.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            literal("prefetch_factor option could only be specified in multiprocessing"),
            literal("persistent_workers option needs num_workers > 0"),
            literal("sampler option is mutually exclusive with shuffle"),
            literal("batch_sampler option is mutually exclusive with batch_size"),
            literal("option disables auto-batching and is mutually exclusive"),
            Pattern(
                "DataLoader with IterableDataset: expected",
                r"DataLoader with IterableDataset: expected unspecified (?P<argument>\w{1,20}) option",
            ),
            literal("multiprocessing_context can only be used with multi-process loading"),
            Pattern(
                " should be a positive integer value, but got",
                r"(?P<argument>batch_size|num_samples) should be a positive integer value, but got (?!num_samples=0)",
            ),
            Pattern(
                "option should be non-negative",
                r"(?P<argument>num_workers|timeout|prefetch_factor) option should be non-negative",
            ),
            literal("Sum of input lengths does not equal the length of the input dataset!"),
            Pattern("Size mismatch between tensors", r"AssertionError: Size mismatch between tensors"),
            Pattern("Subclasses of Dataset should", r"NotImplementedError: Subclasses of Dataset should implement"),
        ),
        causes=(
            "Only workers use prefetch_factor, persistent_workers and timeout, and num_workers is 0.",
            "A sampler decides the order, so that shuffle must not be set; with a DistributedSampler, it shuffles.",
            "Lengths: the parts of random_split do not add up; inputs and labels have different numbers of rows.",
        ),
        fixes=(
            Fix(
                "Set the arguments of workers only if there are any.",
                "loader = DataLoader(dataset, num_workers=4, prefetch_factor=2, persistent_workers=True)",
            ),
            Fix("Shuffle in the sampler.", "sampler = DistributedSampler(dataset, shuffle=True)"),
            Fix(
                "Split by shares, which always add up.",
                "train, test = random_split(dataset, [0.9, 0.1])",
                first_for=("Sum of input lengths",),
            ),
            Fix("Print the lengths.", "print(len(inputs), len(labels))"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.DATA_LOADING,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="loader-timeout",
        section=SECTION,
        title="DataLoader waited too long for a batch",
        summary="No worker delivered a batch within the timeout of the loader.",
        context=ContextState.ALIVE,
        patterns=(
            Pattern("DataLoader timed out after", r"DataLoader timed out after (?P<seconds>[\d.]{1,12}) seconds"),
        ),
        causes=(
            "Storage is slow or does not answer, such as a network file system or a download.",
            "A worker hangs: a lock that was copied by fork, OpenCV's or another library's threads.",
            "One sample takes longer than the timeout.",
        ),
        fixes=(
            Fix("Show what the workers do.", "py-spy dump --pid PID"),
            Fix(
                "Start workers without fork.",
                'loader = DataLoader(dataset, num_workers=4, multiprocessing_context="spawn")',
            ),
            Fix("Disable threads within a worker.", "import cv2\n\ncv2.setNumThreads(0)"),
            Fix("Increase the timeout.", "loader = DataLoader(dataset, num_workers=4, timeout=600)"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(sources.DATA_LOADING,),
        said_by="torch 1.13-2.13",
    ),
    KnownError(
        id="streaming-memory",
        section=SECTION,
        title="StreamingDataset finds the shared memory of another run",
        summary="MosaicML's StreamingDataset keeps its state in shared memory by number, and a part already exists.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern("Reused local directory", r"ValueError: Reused local directory: \[?(?P<path>[^\n,\]]{1,160})"),
            Pattern(
                "File exists: '/0000",
                r"File exists: '/(?P<name>0000\d\d_\w{3,20})'",
            ),
        ),
        causes=(
            "An earlier run was killed and left its shared memory.",
            "Two programs, or two datasets of one program, use the same local directory at once.",
            "Each rank counts itself as the first: the launcher does not set RANK, WORLD_SIZE and LOCAL_WORLD_SIZE.",
        ),
        fixes=(
            Fix(
                "Delete what an earlier run left, once, before the dataset is created.",
                "import streaming\n\nstreaming.base.util.clean_stale_shared_memory()",
            ),
            Fix(
                "Give each dataset and each program a separate local directory.",
                'dataset = StreamingDataset(remote=REMOTE, local="/tmp/run-1", batch_size=8)',
            ),
            Fix("Start with a launcher that sets the ranks.", "torchrun --nproc-per-node 4 train.py"),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.mosaicml.com/projects/streaming/en/stable/",
            "https://github.com/mosaicml/streaming/issues/767",
        ),
        said_by="mosaicml-streaming 0.4-0.13",
    ),
    KnownError(
        id="image-transform",
        section=SECTION,
        title="Image does not suit the transform",
        summary="A transform works on images of another kind or size: PIL images, arrays or tensors.",
        context=ContextState.NOT_APPLICABLE,
        patterns=(
            Pattern(
                " should be PIL Image",
                r"(?:img|pic) should be PIL Image(?: or (?:nd|np\.nd)?[aA]rray| or Tensor)?\. Got"
                r" (?P<type><class '[\w.]{1,60}'>)",
            ),
            Pattern("img should be Tensor", r"img should be Tensor(?: Image)?\. Got (?P<type><class '[\w.]{1,60}'>)"),
            Pattern(
                "should be a float tensor. Got", r"Input tensor should be a float tensor\. Got (?P<type>[\w.]{1,20})"
            ),
            literal("Expected tensor to be a tensor image of size"),
            Pattern(
                "Unexpected type <class",
                r"TypeError: Unexpected type (?P<type><class '(?:numpy\.ndarray|torch\.Tensor|PIL\.[\w.]{1,40}"
                r"|NoneType|list|dict|tuple|str)'>)",
            ),
            Pattern(
                "permitted channel values are",
                r"Input image tensor permitted channel values are (?P<expected>[^\n]{1,30}), but found"
                r" (?P<channels>\d{1,9})",
            ),
            literal("pic should be 2/3 dimensional"),
            Pattern(
                " crop size ",
                r"(?:Required|Requested) crop size (?P<crop>[(\[][\d, ]{1,30}[)\]]) is (?:larger|bigger) than"
                r" (?:the )?input(?: image)? size (?P<size>[(\[][\d, ]{1,30}[)\]])",
            ),
            literal("Crop size (height, width) exceeds image dimensions"),
            Pattern(
                "must be numpy array type", r"\b(?P<target>image|mask|images|masks|volume)s? must be numpy array type"
            ),
            literal("You have to pass data to augmentations as named arguments"),
            literal("Height and Width of image, mask or masks should be equal"),
        ),
        causes=(
            "The transforms are in the wrong order: ToTensor turns a PIL image or an array into a tensor.",
            "OpenCV and NumPy read arrays, and many transforms need PIL images; albumentations needs arrays.",
            "The image is smaller than the crop, or has four channels.",
        ),
        fixes=(
            Fix(
                "Order the transforms: those for PIL images first, then ToTensor, then those for tensors.",
                "steps = [transforms.Resize(256), transforms.ToTensor(), transforms.Normalize(mean, std)]\n"
                "transform = transforms.Compose(steps)",
            ),
            Fix(
                "Convert an array to a PIL image before the transform.",
                "image = Image.fromarray(image)",
                first_for=("numpy.ndarray",),
            ),
            Fix(
                "Remove the second ToTensor: the image is a tensor already.",
                "transform = transforms.Normalize(mean, std)",
                first_for=("ndarray. Got <class 'torch.Tensor'>",),
            ),
            Fix(
                "Convert to floats before Normalize.",
                "image = transforms.functional.convert_image_dtype(image, torch.float32)",
                first_for=("float tensor",),
            ),
            Fix(
                "Pass arrays to albumentations, by name, with a mask of the same size.",
                "changed = transform(image=numpy.array(image), mask=numpy.array(mask))",
                first_for=("must be numpy array", "named arguments", "Height and Width"),
            ),
            Fix(
                "Enlarge or pad images that are smaller than the crop.",
                "transform = transforms.RandomCrop(224, pad_if_needed=True)",
                first_for=("rop size",),
            ),
            Fix(
                "Convert all images to three channels when they are read.",
                'image = Image.open(path).convert("RGB")',
                first_for=("permitted channel",),
            ),
        ),
        empty_cache=NOT_ABOUT_MEMORY,
        sources=(
            "https://docs.pytorch.org/vision/stable/transforms.html",
            "https://albumentations.ai/docs/",
        ),
        said_by="torchvision 0.14-0.29, albumentations 1-2",
    ),
)
