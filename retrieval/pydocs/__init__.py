"""`docparade:pydocs`: a collection of long documents made from the documentation of installed Python packages."""
