"""docparade re-ranks long documents: it reads them whole, passage by passage.

Importing it makes its models known to transformers, so that AutoModel loads them:

    import docparade
    from transformers import AutoModel

    model = AutoModel.from_pretrained("org/parade-electra")
    model.rank("why is the sky blue", long_documents)
"""

import lazy_loader

from docparade._with_transformers import load_models_with_transformers

__version__ = "0.1.0"

# The public names are listed in __init__.pyi. They are loaded when first used: they need torch, and
# `import docparade.retrieval` does not.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

load_models_with_transformers()
