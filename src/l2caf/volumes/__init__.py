"""Volumes: scans in NIfTI files and arrays, how a network is given them, and where its input lies in them."""

from .crop import VolumeCrop as VolumeCrop
from .files import Volume as Volume
from .files import as_volume as as_volume
from .files import is_volume as is_volume
from .files import read_volume as read_volume
from .files import write_volume as write_volume
from .preprocessing import PreparedVolume as PreparedVolume
from .preprocessing import VolumePreprocessing as VolumePreprocessing
