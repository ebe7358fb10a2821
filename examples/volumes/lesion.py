"""A network that tells whether there is a lesion, asked what speaks for one in a scan of thick slices, stored sideways.

python examples/volumes/lesion.py docs/pictures/volume-lesion.png
"""

import sys

import nibabel as nib
import numpy as np
import torch
from torch import nn

import l2caf
from l2caf.volumes import VolumePreprocessing

PLACE = torch.tensor([34.0, -20.0, 10.0])  # of the lesion in the scan: millimetres to the right, front and top


def brain(points: torch.Tensor, lesion: torch.Tensor) -> torch.Tensor:
    """A made brain at points of the world (3, ...), in millimetres, with its ventricles, and a lesion somewhere."""
    x, y, z = points
    radius = ((x / 70) ** 2 + (y / 85) ** 2 + (z / 75) ** 2).sqrt()
    ventricles = ((x.abs() - 14) / 8) ** 2 + (y / 30) ** 2 + ((z - 5) / 14) ** 2 < 1
    spot = ((points - lesion.reshape(3, *[1] * (points.ndim - 1))) ** 2).sum(dim=0) < 15**2
    return 0.5 * (radius < 1) - 0.3 * ventricles + 0.9 * spot + 0.05 * torch.randn(x.shape)


def build() -> tuple[nn.Module, VolumePreprocessing]:
    """The network, trained on patches of 8 voxels of 6 mm, and how it takes scans; the command line calls it too."""
    torch.manual_seed(0)
    seen = [nn.Conv3d(1, 12, 4, stride=2, padding=1), nn.ReLU(), nn.Conv3d(12, 12, 4, stride=2, padding=1), nn.ReLU()]
    network = nn.Sequential(*seen, nn.AdaptiveAvgPool3d(1), nn.Flatten(), nn.Linear(12, 1))
    steps = torch.stack(torch.meshgrid(*[torch.arange(8) * 6.0 - 21] * 3, indexing="ij"))
    optimizer = torch.optim.Adam(network.parameters(), 1e-2)
    for _ in range(250):
        middles, ill = torch.rand(32, 3) * 190 - 95, torch.rand(32, 1) < 0.5
        lesions = torch.where(ill, middles + torch.rand(32, 3) * 30 - 15, 999.0)
        patches = [brain(steps + middle.reshape(3, 1, 1, 1), one) for middle, one in zip(middles, lesions, strict=True)]
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(network(torch.stack(patches)[:, None]), ill.float()).backward()
        optimizer.step()
    return network.eval(), VolumePreprocessing(orientation="RAS", spacing=6.0, multiple=4)


def main(out: str = "lesion.png") -> l2caf.Heatmap:
    affine = np.array([[0, 0, -3.0, 94], [-3, 0, 0, 94], [0, 9, 0, -90], [0, 0, 0, 1]])  # to the back, top and left
    points = np.einsum("wa,aijk->wijk", affine[:3], [*np.indices((64, 21, 64)), np.ones((64, 21, 64))])
    nib.save(nib.Nifti1Image(brain(torch.from_numpy(points).float(), PLACE).numpy(), affine), f"{out[:-4]}.nii.gz")
    heatmap = l2caf.Model("lesions", *build()).explain(f"{out[:-4]}.nii.gz", objective=l2caf.ClassSpecific())
    heatmap.save(f"{out[:-4]}-map.nii.gz")  # opens on the scan, in any viewer
    heatmap.save(out, box=0.5)
    return heatmap


if __name__ == "__main__":
    print(main(*sys.argv[1:]))
