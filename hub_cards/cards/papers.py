"""The papers whose methods docparade implements, for citations."""

BIBTEX: dict[str, str] = {
    "zhang2021": """@inproceedings{zhang2021comparing,
  title     = {Comparing Score Aggregation Approaches for Document Retrieval with Pretrained Transformers},
  author    = {Zhang, Xinyu and Yates, Andrew and Lin, Jimmy},
  booktitle = {Advances in Information Retrieval (ECIR 2021)},
  year      = {2021},
  doi       = {10.1007/978-3-030-72240-1_11}
}""",
    "yang2019": """@article{yang2019simple,
  title   = {Simple Applications of {BERT} for Ad Hoc Document Retrieval},
  author  = {Yang, Wei and Zhang, Haotian and Lin, Jimmy},
  journal = {arXiv preprint arXiv:1903.10972},
  year    = {2019},
  url     = {https://arxiv.org/abs/1903.10972}
}""",
    "cip2021": """@inproceedings{chen2021cip,
  title     = {{CIP} at {TREC} 2021 Deep Learning Track},
  author    = {Chen, Xuanang and He, Ben and Sun, Le and Sun, Yingfei},
  booktitle = {Text REtrieval Conference (TREC) 2021},
  year      = {2021}
}""",
    "ghasemi2021": """@misc{ghasemi2021bert,
  title  = {{BERT} meets {C}ranfield: Uncovering the Properties of Full Ranking on Fully Labeled Data},
  author = {Ghasemi, Negin and Hiemstra, Djoerd},
  year   = {2021}
}""",
    "xiong2017": """@inproceedings{xiong2017end,
  title     = {End-to-End Neural Ad-hoc Ranking with Kernel Pooling},
  author    = {Xiong, Chenyan and Dai, Zhuyun and Callan, Jamie and Liu, Zhiyuan and Power, Russell},
  booktitle = {Proceedings of SIGIR 2017},
  year      = {2017},
  doi       = {10.1145/3077136.3080809}
}""",
    "macavaney2019": """@inproceedings{macavaney2019cedr,
  title     = {{CEDR}: Contextualized Embeddings for Document Ranking},
  author    = {MacAvaney, Sean and Yates, Andrew and Cohan, Arman and Goharian, Nazli},
  booktitle = {Proceedings of SIGIR 2019},
  year      = {2019},
  doi       = {10.1145/3331184.3331317}
}""",
    "li2023": """@article{li2023parade,
  title   = {{PARADE}: Passage Representation Aggregation for Document Reranking},
  author  = {Li, Canjia and Yates, Andrew and MacAvaney, Sean and He, Ben and Sun, Yingfei},
  journal = {ACM Transactions on Information Systems},
  year    = {2023},
  doi     = {10.1145/3600088}
}""",
    "nogueira2020": """@inproceedings{nogueira2020document,
  title     = {Document Ranking with a Pretrained Sequence-to-Sequence Model},
  author    = {Nogueira, Rodrigo and Jiang, Zhiying and Pradeep, Ronak and Lin, Jimmy},
  booktitle = {Findings of the Association for Computational Linguistics: EMNLP 2020},
  year      = {2020}
}""",
}
"""BibTeX by first author and year, the names that recipes and presets have."""
