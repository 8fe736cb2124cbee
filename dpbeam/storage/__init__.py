"""Files here, on object stores, on HDFS and on whatever else Beam reads, behind one front."""

from dpbeam.storage.filesystems import FileSystems

__all__ = ["FileSystems"]
