"""Localisers: ACoL by its definition, maps of the fused output, finer maps, checkpoints, both parts of an object."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import l2caf
from l2caf import CAM, GradCAM
from l2caf.errors import InputError
from l2caf.networks.adl import put_adl
from l2caf.networks.erasing import ErasingHead, erase, of_classes, unit_range
from l2caf.networks.fineness import make_finer
from l2caf.networks.imports import import_timm
from l2caf.networks.localiser import Localiser, LocaliserConfig, MeanHead, build, localiser_backbone, save_localiser


def test_erasing_is_what_the_definition_says() -> None:
    torch.manual_seed(0)
    features, maps = torch.rand(3, 4, 5, 6), torch.randn(3, 5, 6)
    made = erase(features, maps, 0.6)
    for sample in range(3):
        low, high = float(maps[sample].min()), float(maps[sample].max())
        for row in range(5):
            for column in range(6):
                erased = (float(maps[sample, row, column]) - low) / (high - low) >= 0.6
                wanted = torch.zeros(4) if erased else features[sample, :, row, column]
                assert torch.equal(made[sample, :, row, column], wanted)
    assert torch.equal(erase(features, torch.ones(3, 5, 6), 0.6), features)  # a flat map shows nothing to erase


def slow_maps(classifier: nn.Sequential, features: Tensor) -> Tensor:
    """Class maps of one sample, (classes, H, W), by one linear classifier applied cell by cell."""
    convolution = classifier[-1]
    weight, bias = convolution.weight.detach()[:, :, 0, 0], convolution.bias.detach()
    _, rows, columns = features.shape
    made = torch.zeros(len(weight), rows, columns)
    for row in range(rows):
        for column in range(columns):
            made[:, row, column] = weight @ features[:, row, column] + bias
    return made


def slow(head: ErasingHead, features: Tensor, label: int | None, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    """One sample by the definition: the scores of both classifiers, and those of their fused maps."""
    first = slow_maps(head.first, features)
    chosen = max(range(len(first)), key=lambda one: float(first[one].mean())) if label is None else label
    map_ = first[chosen]
    low, high = float(map_.min()), float(map_.max())
    seen = features.clone()
    for row in range(map_.shape[0]):
        for column in range(map_.shape[1]):
            if (float(map_[row, column]) - low) / (high - low) >= threshold:
                seen[:, row, column] = 0
    second = slow_maps(head.second, seen)
    fused = torch.tensor(
        [[[max(float(a), float(b)) for a, b in zip(*rows, strict=True)] for rows in zip(*maps, strict=True)]
         for maps in zip(first, second, strict=True)]
    )  # fmt: skip
    return first.mean(dim=(1, 2)), second.mean(dim=(1, 2)), fused.mean(dim=(1, 2))


def test_acol_is_what_the_definition_says() -> None:
    torch.manual_seed(0)
    head, features, labels = (
        ErasingHead(6, 3, width=0, threshold=0.7),
        torch.rand(4, 6, 5, 4),
        torch.tensor([0, 1, 2, 0]),
    )
    scores, fused = head.scores(features, labels), head(features)
    for sample in range(4):
        first, second, _ = slow(head, features[sample], int(labels[sample]), 0.7)
        torch.testing.assert_close(scores[:, sample], torch.stack([first, second]))
        torch.testing.assert_close(fused[sample], slow(head, features[sample], None, 0.7)[2])


def test_the_second_classifier_never_sees_what_the_first_finds_most_discriminative() -> None:
    torch.manual_seed(0)
    head, features, labels = ErasingHead(8, 3, width=4, layers=1), torch.rand(4, 8, 6, 6), torch.tensor([0, 1, 2, 0])
    seen: list[Tensor] = []
    head.second.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    first, _ = head.maps(features, labels)
    discriminative = unit_range(of_classes(first, labels)) >= 0.6
    assert discriminative.flatten(1).any(dim=1).all()
    shown = (seen[0] != 0).any(dim=1)
    assert torch.equal(shown, ~discriminative)


def test_each_classifier_learns_by_its_own_loss() -> None:
    torch.manual_seed(0)
    head, features, labels = ErasingHead(8, 3, width=0), torch.rand(4, 8, 6, 6), torch.tensor([0, 1, 2, 0])
    first, second = head.scores(features, labels)
    parameters = [*head.first.parameters(), *head.second.parameters()]
    flows = torch.autograd.grad(second.sum(), parameters)
    assert [bool(flow.any()) for flow in flows] == [False, False, True, True]
    assert torch.allclose(first, head.first(features).mean(dim=(2, 3)))


def acol(classes: int = 4) -> Localiser:
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU())
    return Localiser(trunk, ErasingHead(8, classes, width=6, layers=1)).eval()


def test_maps_of_an_acol_network_are_those_of_its_fused_output() -> None:
    network, images = acol(), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        fused = torch.maximum(*network.head.maps(network.trunk(images)))
    assert torch.allclose(network(images), fused.mean(dim=(2, 3)), atol=1e-6)
    cam = CAM(1)(network, images)
    assert cam.layer == "head.fuse"
    assert torch.allclose(cam.weights, fused[:, 1], atol=1e-5)
    found = l2caf.explain(network, images)
    assert found.layer == "head.fuse"
    assert all(str(outcome) == "exact" for outcome in found.solution.outcome)
    # The filter that is best among many others gives the fused output best.
    others = torch.randn(200, 2, 64)
    flat, whole = fused.flatten(2), fused.mean(dim=(2, 3))

    def loss(weights: Tensor) -> Tensor:
        unit = weights / weights.norm(dim=-1, keepdim=True)
        return ((flat * unit[..., None, :]).mean(dim=-1) - whole).square().sum(dim=-1)

    ours = torch.as_tensor(found.solution.filter).reshape(2, 64)
    assert (loss(ours) <= loss(others).amin(dim=0)).all()


def test_grad_cam_is_cam_on_a_mean_and_a_linear_layer() -> None:
    torch.manual_seed(0)
    trunk = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.ReLU())
    network, images = Localiser(trunk, MeanHead(8, 5)).eval(), torch.rand(3, 3, 32, 32)
    ours, theirs = (torch.as_tensor(method(network, images).maps) for method in (CAM(2), GradCAM(2)))
    ours, theirs = (maps.clamp_min(0) / maps.flatten(1).amax(dim=1)[:, None, None] for maps in (ours, theirs))
    assert float((ours - theirs).abs().max()) < 1e-5


@pytest.mark.parametrize("name", ["resnet10t", "tf_efficientnet_lite0", "seresnet50"])
def test_a_finer_map_sees_as_far_as_one_that_was_built_so(name: str) -> None:
    """As timm's own networks of that stride do, which are built for it."""
    torch.manual_seed(0)
    trunk = import_timm().create_model(name, pretrained=False, num_classes=0, global_pool="").eval()
    flat = torch.ones(1, 3, 128, 128)
    with torch.no_grad():
        coarse = trunk(flat)
        make_finer(trunk, 16, flat)
        fine = trunk(flat)
        if name == "resnet10t":  # timm pools with overlap there, and nothing is pooled here
            assert fine.shape[-1] == 8
            return
        theirs = import_timm().create_model(name, pretrained=False, num_classes=0, global_pool="", output_stride=16)
        theirs.load_state_dict(trunk.state_dict())
        images = torch.rand(2, 3, 128, 128)
        assert torch.allclose(trunk(images), theirs.eval()(images), atol=1e-4)
    assert (coarse.shape[-1], fine.shape[-1]) == (4, 8)


@pytest.mark.parametrize("recipe", ["gap", "acol"])
def test_a_checkpoint_says_what_it_is(tmp_path: Path, recipe: str) -> None:
    torch.manual_seed(0)
    config = LocaliserConfig("timm:resnet10t", recipe=recipe, width=4, layers=1, classes=("wren", "finch", "owl"))
    network = build(localiser_backbone("timm:resnet10t", pretrained=False), config)
    model = l2caf.load(str(save_localiser(tmp_path / "localiser.safetensors", network, config)))
    images = torch.rand(1, 3, 64, 64)
    with torch.no_grad():
        assert torch.equal(model.network(images), network(images))
    assert model.class_names == ("wren", "finch", "owl")
    assert not model.embedding


def test_the_networks_of_the_literature() -> None:
    config = LocaliserConfig("vgg16-gap", width=1024, classes=("a", "b"))
    vgg = localiser_backbone("vgg16-gap", pretrained=False)
    network = build(vgg, config)
    shapes = [tuple(one.weight.shape) for one in network.head.modules() if isinstance(one, nn.Conv2d)]
    assert shapes == [(1024, 512, 3, 3), (1024, 1024, 3, 3)]
    with torch.no_grad():
        assert vgg.trunk(torch.zeros(1, 3, 64, 64)).shape == (1, 512, 4, 4)
    resnet = localiser_backbone("resnet50-se", pretrained=False)
    assert (resnet.name, resnet.channels) == ("resnet50-se", 2048)
    with pytest.raises(InputError, match="take 8, 16 or 32"):
        localiser_backbone("vgg16-gap", stride=7, pretrained=False)


# A planted object: in one cell a strong sign of its class, in another a weak one.
CLASSES, GRID, STRONG, WEAK = 4, 4, 3.0, 1.0


def planted(count: int, draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    labels = torch.randint(CLASSES, (count,), generator=draw)
    images = 0.3 * torch.rand(count, 2 * CLASSES, GRID * GRID, generator=draw)
    strong = torch.randint(GRID * GRID, (count,), generator=draw)
    weak = (strong + torch.randint(1, GRID * GRID, (count,), generator=draw)) % (GRID * GRID)
    each = torch.arange(count)
    images[each, labels, strong] += STRONG
    images[each, CLASSES + labels, weak] += WEAK
    return images.unflatten(2, (GRID, GRID)), labels, strong, weak


def cover(recipe: str, seed: int) -> tuple[float, float]:
    """How strongly the weak part shows in the map of the right class, the strong one being 1; and top-1."""
    draw = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    trunk = nn.Sequential(nn.Conv2d(2 * CLASSES, 16, 1), nn.ReLU())
    head = ErasingHead(16, CLASSES, width=0) if recipe == "acol" else MeanHead(16, CLASSES)
    network = Localiser(trunk, head)
    if recipe == "adl":
        put_adl(network, ["trunk"])
    optimizer = torch.optim.SGD(network.parameters(), lr=0.5, momentum=0.9)
    network.train()
    for _ in range(150):
        images, labels, *_ = planted(64, draw)
        scores = network.head.scores(network.trunk(images), labels)
        loss = sum(nn.functional.cross_entropy(one, labels) for one in scores)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    network.eval()
    images, labels, strong, weak = planted(256, draw)
    right = float((network(images).argmax(dim=1) == labels).float().mean())
    with torch.no_grad():
        features = network.trunk(images)
        if isinstance(head, ErasingHead):
            maps = head.fuse(*head.maps(features))
        else:
            maps = torch.einsum("bkhw,ck->bchw", features, head.linear.weight)
    flat, each = of_classes(maps, labels).flatten(1), torch.arange(256)
    shown = flat - flat.median(dim=1).values[:, None]  # above the background
    return float(shown[each, weak].mean() / shown[each, strong].mean()), right


def test_adl_and_acol_cover_both_parts_of_an_object_more_than_a_plain_network_does() -> None:
    plain, adl, acol = ([cover(recipe, seed) for seed in range(2)] for recipe in ("gap", "adl", "acol"))
    assert min(right for _, right in (*plain, *adl, *acol)) > 0.95
    for (theirs, _), *ours in zip(plain, adl, acol, strict=True):
        assert all(weak > theirs + 0.1 for weak, _ in ours), (plain, adl, acol)
