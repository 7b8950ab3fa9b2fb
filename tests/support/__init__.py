"""What tests share: tiny models, small collections, real recipes, damage and kills."""
