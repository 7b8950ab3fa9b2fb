"""What a recipe says: YAML files laid over one another, and read into checked dataclasses.

`merging` reads the files with what they extend, `recipe` turns the result into a `Recipe`, and each other file has one
section with its keys. Neither data nor weights are needed.
"""
