"""Files here, on object stores and on HDFS, behind one front."""

from dpbeam.storage.filesystems import FileSystems

__all__ = ["FileSystems"]
