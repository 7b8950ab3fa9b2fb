"""Recipes and what they leave: a YAML file that names an experiment, and the folder with its models, runs and measures.

The public names are listed in `__init__.pyi`, and imported when they are first used:

    from docparade.experiments import load_recipe, run_recipe
    run_recipe(load_recipe("quickstart"), Path("outputs/quickstart"))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
