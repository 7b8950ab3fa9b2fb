from .card import missing_card_fields as missing_card_fields, write_card as write_card
from .fields import CardFields as CardFields
