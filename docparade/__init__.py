"""docparade re-ranks long documents: it reads them whole, passage by passage."""
