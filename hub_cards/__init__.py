"""How a model is published: its card, written from what was saved while it was trained and measured.

The public names are listed in `__init__.pyi`, and imported when they are first used:

    from docparade.hub_cards import CardFields, write_card
    write_card("outputs/quickstart/model", CardFields(license="apache-2.0", language=("en",)))
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
