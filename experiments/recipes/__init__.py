"""What a recipe says: YAML files laid over one another, and read into checked dataclasses.

`recipe_files` finds the files, `merging` lays them over one another, and `recipe_loading` makes a `Recipe` of the
result; the files `..._recipe` have a section each, with its keys. Neither data nor weights are needed.
"""
