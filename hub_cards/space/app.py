"""The app of the Space on the Hugging Face Hub; on your machine, `docparade space` shows the same page.

Environment variables, to be set in the Space's settings:

- `MODEL_ID`: the model's Hub id, or two of them separated by a space; by default, the ranker that comes with docparade.
- `COLLECTION`: a collection to search, such as `hf:org/my-documents`.
"""

import os

from docparade.hub_cards.space.page import DEFAULT_MODEL, launch

if __name__ == "__main__":
    launch(os.environ.get("MODEL_ID", "").split() or [DEFAULT_MODEL], os.environ.get("COLLECTION") or None)
