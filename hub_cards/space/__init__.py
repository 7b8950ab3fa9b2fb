"""A web page that ranks long documents and shows which of their passages mattered, for the Hub and for your machine.

- `sources`: documents from typed text, uploaded files, a collection, and the examples.
- `guard`: what the page's server refuses: requests of other sites, and uploads without end.
- `ranking`: the documents ranked by one or two methods.
- `drawing`: a ranking as HTML, with a heat strip for each document.
- `page`: the Gradio page, and `launch`.
- `app.py`, `requirements.txt` and `README.md`: the files of a Space on the Hugging Face Hub.
"""
