"""HDF5: datasets of the file itself, read in ranges of rows; links to other files are refused."""

from typing import Any

from psfit.data.io.arrays import ArrayFile, texts_of
from psfit.data.io.base import DataFileError

# The longest chain of links; a longer one is taken for a circle.
MOST_LINKS = 32


class Hdf5File(ArrayFile):
    """Datasets X, y and sample_weight, read in ranges of rows."""

    def _features(self) -> tuple[Any, tuple[str, ...] | None]:
        try:
            import h5py
        except ImportError:
            raise self.error("HDF5 needs h5py; install psfit-toolbox[hdf5]") from None
        try:
            self.file = h5py.File(self.path, "r")
        except OSError as error:
            raise self.error(f"cannot be read as HDF5 ({error}); it may be cut short") from None
        X = self._dataset("X")
        if X is None:
            raise self.error(f"there is no dataset 'X'; it holds {', '.join(self.file)}")
        return X, texts_of(X.attrs.get("feature_names"))

    def _dataset(self, name: str) -> Any:
        """A dataset of the file itself; None if there is none of that name."""
        import h5py

        try:
            place = self._resolve_links(name)
            found = None if place is None else self.file.get(place)
        except DataFileError:
            raise
        except (RuntimeError, OSError, TypeError, KeyError, ValueError) as error:
            raise self.error(f"{name!r} cannot be read ({error}); it may be damaged") from None
        if not isinstance(found, h5py.Dataset):
            return None
        if found.external:
            raise self._other_file_error(name, found.external[0][0])
        if found.is_virtual:
            raise self.error(
                f"{name!r} is a virtual dataset, made of datasets that may be in other files; write its numbers"
            )
        return found

    def _resolve_links(self, name: str) -> str | None:
        """The path of a dataset after following all links inside the file; None if there is no such dataset."""
        import h5py

        parts, followed, here = [part for part in name.split("/") if part], 0, ""
        while parts:
            part, group = parts.pop(0), self.file[here or "/"]
            link = group.get(part, getlink=True) if isinstance(group, h5py.Group) else None
            if link is None:
                return None
            if isinstance(link, h5py.ExternalLink):
                raise self._other_file_error(name, link.filename)
            if isinstance(link, h5py.SoftLink):
                followed += 1
                if followed > MOST_LINKS:
                    raise self.error(f"{name!r} is a link to itself; write the dataset in its place")
                here = "" if link.path.startswith("/") else here
                parts = [step for step in link.path.split("/") if step not in ("", ".")] + parts
            else:
                here = f"{here}/{part}"
        return here or "/"

    def _other_file_error(self, name: str, other: str) -> DataFileError:
        return self.error(f"{name!r} is in another file, {other!r}, which is not read; copy it into this one")

    def _find_array(self, name: str) -> Any:
        import h5py

        found = self._dataset(name)
        if found is None or h5py.check_string_dtype(found.dtype) is None or not found.shape:
            return found
        # All texts are read now: h5py's view that decodes them later has no shape.
        return found.asstr()[:]

    def _advice(self) -> str:
        return f"it holds {', '.join(self.file)}"
