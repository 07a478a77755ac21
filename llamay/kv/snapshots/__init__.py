"""Saved contexts: described, checksummed page by page, sharing bytes on disk, restored only when all of it is sound."""

from llamay.kv.snapshots.folder import Folder, Saved, Survey
from llamay.kv.snapshots.manifest import Manifest, Origin, Run, Shape, State
from llamay.kv.snapshots.parting import Parting, compared, parting
from llamay.kv.snapshots.reader import verify
from llamay.kv.snapshots.restore import Restored, obstacle, restore
from llamay.kv.snapshots.save import Label, Recording, origin_of, record, save
from llamay.kv.snapshots.transfer import export, import_file

__all__ = [
    "Folder",
    "Label",
    "Manifest",
    "Origin",
    "Parting",
    "Recording",
    "Restored",
    "Run",
    "Saved",
    "Shape",
    "State",
    "Survey",
    "compared",
    "export",
    "import_file",
    "obstacle",
    "origin_of",
    "parting",
    "record",
    "restore",
    "save",
    "verify",
]
