"""Data of one's own: arrays, a table in a file, a folder of images, each as a data set's ``load``.

The rows for testing are drawn once, by a fixed seed, unless they are given.
"""

from torchapl.paper.data.own.memory import arrays
from torchapl.paper.data.own.parts import check_parts
from torchapl.paper.data.own.pictures import image_folder
from torchapl.paper.data.own.tables import table

__all__ = ["arrays", "check_parts", "image_folder", "table"]
