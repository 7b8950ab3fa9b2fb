"""All variants of a recipe: run them, and put what was measured into one table or figure.

`variants` lists and runs them, `measurements` reads what they left, `layout` says what goes where, and `table` and
`figure` show it.
"""
