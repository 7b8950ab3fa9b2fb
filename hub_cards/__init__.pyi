from .card import missing_card_fields as missing_card_fields, write_card as write_card
from .fields import CardFields as CardFields
from .published import (
    PublishedModel as PublishedModel,
    build_model_folder as build_model_folder,
    list_models as list_models,
)
from .publishing import (
    Preview as Preview,
    Publication as Publication,
    preview_folder as preview_folder,
    push_folder as push_folder,
)
