"""Things by their names: a name that does not exist is an error that lists those that do."""

from __future__ import annotations

from typing import Any, TypeVar

from rnnconvert.core.errors import NoSuchNameError
from rnnconvert.core.printable import called

T = TypeVar("T")


class Named(dict[str, T]):
    """A dictionary by name whose errors name what exists.

    A module that is itself a layer has the name "", as PyTorch has it; people read and may write `(the module itself)`.

    what  what a name stands for, as in "layer"
    """

    def __init__(self, what: str, *entries: Any) -> None:
        super().__init__(*entries)
        self.what = what

    def __missing__(self, name: object) -> T:
        from rnnconvert.core.arguments import nearest  # for errors alone

        if name == called("") and "" in self:
            return self[""]
        if not self:
            raise NoSuchNameError(f"there is no {self.what} {name!r}, and no other {self.what}")
        raise NoSuchNameError(f"there is no {self.what} {name!r}. {nearest(name, map(called, self))}")

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or (name == called("") and super().__contains__(""))

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value of this name, or the default."""
        return self[name] if name in self else default  # noqa: SIM401  # this is `get`

    def __repr__(self) -> str:
        return repr({called(name): value for name, value in self.items()})

    def __reduce__(self) -> tuple[Any, ...]:
        return Named, (self.what, dict(self))
