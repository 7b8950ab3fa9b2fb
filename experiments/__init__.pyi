from .cross_validation import cross_validate as cross_validate
from .recipe import (
    Recipe as Recipe,
    load_recipe as load_recipe,
)
from .results import Results as Results
from .runner import run_recipe as run_recipe
