from .cross_validation import cross_validate as cross_validate
from .experiment_results import Results as Results
from .recipes.recipe import Recipe as Recipe
from .recipes.recipe_loading import load_recipe as load_recipe
from .runner import run_recipe as run_recipe
