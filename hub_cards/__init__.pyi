from .cards.fields import CardFields as CardFields
from .cards.model_card import missing_card_fields as missing_card_fields, write_card as write_card
from .publishing.hub_push import (
    Preview as Preview,
    Publication as Publication,
    preview_folder as preview_folder,
    push_folder as push_folder,
)
from .publishing.model_list import (
    PublishedModel as PublishedModel,
    build_model_folder as build_model_folder,
    list_models as list_models,
)
