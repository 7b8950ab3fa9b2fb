"""transformers' own tests of models, from its source distribution: `scripts/conformance.sh` fetches it."""

from __future__ import annotations

import os
import sys
from types import ModuleType

import pytest

SOURCE = os.environ.get("TRANSFORMERS_TESTS", "")
# Without them, there is nothing to run.
collect_ignore_glob = [] if SOURCE else ["test_*.py"]


def _provide(name: str, **contents: object) -> ModuleType:
    module = ModuleType(name)
    vars(module).update(contents)
    sys.modules[name] = module
    return module


# The tests import each other as one package. These of its files are not in the distribution, and not needed here.
_provide("transformers_tests").__path__ = [SOURCE]
for folder in ("exporters", "generation", "utils"):
    _provide(f"transformers_tests.{folder}").__path__ = []
_provide("transformers_tests.exporters.test_export", ExportTesterMixin=type("ExportTesterMixin", (), {}))
_provide("transformers_tests.generation.test_utils", GenerationTesterMixin=type("GenerationTesterMixin", (), {}))
_provide("transformers_tests.utils.test_configuration_utils", config_common_kwargs={})


def pytest_configure(config: pytest.Config) -> None:
    for name in ("accelerate_tests", "flash_attn_test", "flash_attn_3_test", "flash_attn_4_test", "torch_compile_test"):
        config.addinivalue_line("markers", f"{name}: of transformers")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if (why := item.cls.why_not(item.name) if getattr(item, "cls", None) else None) is not None:
            item.add_marker(pytest.mark.skip(reason=f"does not apply: {why}"))
