"""Loads docparade's models as soon as transformers is imported, and not before.

Importing transformers and torch takes seconds; `docparade.retrieval` and most commands need neither. But whoever
imports docparade and transformers, in either order, finds the models registered.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODELS = "docparade.modeling"


def load_models_with_transformers() -> None:
    """Load the models now if transformers is loaded, and otherwise once somebody imports it."""
    if "transformers" in sys.modules:
        import_module(MODELS)
    elif not any(type(finder).__name__ == _TransformersWatcher.__name__ for finder in sys.meta_path):
        sys.meta_path.insert(0, _TransformersWatcher())


class _TransformersWatcher(MetaPathFinder):
    """Finds transformers where the other finders do, with a loader that loads the models after it.

    It stays in place when transformers is only looked for, as `importlib.util.find_spec` does to see if a package is
    installed.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "transformers":
            return None
        for finder in sys.meta_path:
            if finder is not self and (spec := finder.find_spec(fullname, path, target)) is not None:
                if spec.loader is not None:
                    spec.loader = _LoaderBefore(spec.loader)
                return spec
        return None


class _LoaderBefore(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self.loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # From here on transformers has its own loader, as if nobody had watched.
        module.__loader__ = self.loader
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        self.loader.exec_module(module)
        # If it is the models that import transformers, they are being loaded already.
        if MODELS not in sys.modules:
            import_module(MODELS)
