"""Loads docparade's models as soon as transformers is imported, and not before.

Importing transformers and torch takes seconds; `docparade.retrieval` and most commands need neither. But whoever
imports docparade and transformers, in either order, finds the models registered.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType

MODELS = "docparade.modeling"


def load_models_with_transformers() -> None:
    """Load the models now if transformers is loaded, and otherwise once somebody imports it."""
    if "transformers" in sys.modules:
        import_module(MODELS)
    else:
        sys.meta_path.insert(0, _TransformersWatcher())


class _TransformersWatcher(MetaPathFinder):
    """Finds transformers as everybody does, with a loader that loads the models after it."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname != "transformers":
            return None
        sys.meta_path.remove(self)
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            spec.loader = _LoaderBefore(spec.loader)
        return spec


class _LoaderBefore(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        # If it is the models that import transformers, they are on their way already.
        if MODELS not in sys.modules:
            import_module(MODELS)
