"""Tiny encoders and tokenizers as fixtures, made here: nothing is downloaded."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import sentencepiece
import torch
from tokenizers import (
    BertWordPieceTokenizer,
    ByteLevelBPETokenizer,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedTokenizerBase,
    PreTrainedTokenizerFast,
    T5Tokenizer,
)

import docparade
from support.project import DECODERS, ENCODERS, LENGTH_DEPENDENT_ENCODERS, LICENSE, SEQ2SEQ_MODELS, WORDS


@pytest.fixture(scope="session")
def tokenizers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PreTrainedTokenizerBase]:
    """A WordPiece, a byte-level BPE and a SentencePiece tokenizer with the words of the project's license."""
    folder = tmp_path_factory.mktemp("tokenizers")
    lines = LICENSE.splitlines()
    kinds = {"wordpiece": "BertTokenizer", "byte_bpe": "RobertaTokenizer", "sentencepiece": "XLMRobertaTokenizer"}
    for name, kind in kinds.items():
        (folder / name).mkdir()
        (folder / name / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": kind}))
        model_type = {"wordpiece": "bert", "byte_bpe": "roberta", "sentencepiece": "xlm-roberta"}[name]
        (folder / name / "config.json").write_text(json.dumps({"model_type": model_type}))
    BertWordPieceTokenizer(wordpiece_vocabulary()).save_model(str(folder / "wordpiece"))
    byte_bpe = ByteLevelBPETokenizer()
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    byte_bpe.train_from_iterator(lines, vocab_size=500, special_tokens=specials, show_progress=False)
    byte_bpe.save_model(str(folder / "byte_bpe"))
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_prefix=str(folder / "sentencepiece" / "sentencepiece.bpe"),
        vocab_size=400,
        minloglevel=2,
    )
    return {name: AutoTokenizer.from_pretrained(folder / name) for name in kinds}


def wordpiece_vocabulary() -> dict[str, int]:
    """Characters and the commonest words: training a WordPiece gives other pieces at every run."""
    characters = sorted(set(LICENSE.lower()) - set(" \n"))
    words = Counter(re.findall(r"[a-z]{2,}", LICENSE.lower()))
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *characters, *(f"##{each}" for each in characters)]
    return {piece: number for number, piece in enumerate([*pieces, *(word for word, _ in words.most_common(380))])}


@pytest.fixture(scope="session")
def encoder_folder(
    tokenizers: dict[str, PreTrainedTokenizerBase], tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., Path]:
    """A folder with a tiny encoder of random weights: `encoder_folder("electra")`, or with a head, `labels=2`."""
    made: dict[tuple[str, int | None], Path] = {}

    def folder(architecture: str = "bert", labels: int | None = None) -> Path:
        if (architecture, labels) not in made:
            path = tmp_path_factory.mktemp(architecture)
            tokenizer_name, sizes = {**ENCODERS, **LENGTH_DEPENDENT_ENCODERS}[architecture]
            tokenizer = tokenizers[tokenizer_name]
            options = {"num_labels": labels} if labels else {}
            config = AutoConfig.for_model(
                architecture,
                vocab_size=len(tokenizer),
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                # Large weights, so that scores differ by more than rounding.
                initializer_range=0.3,
                **sizes,
                **options,
            )
            torch.manual_seed(0)
            auto = AutoModelForSequenceClassification if labels else AutoModel
            auto.from_config(config).save_pretrained(path)
            tokenizer.save_pretrained(path)
            made[architecture, labels] = path
        return made[architecture, labels]

    return folder


@pytest.fixture(scope="session")
def seq2seq_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder with a tiny encoder-decoder of random weights and its tokenizer: `seq2seq_folder("t5")`."""
    made: dict[str, Path] = {}

    def folder(name: str = "t5") -> Path:
        if name not in made:
            path = tmp_path_factory.mktemp(name)
            tokenizer = t5_tokenizer(path)
            architecture, sizes = SEQ2SEQ_MODELS[name]
            config = AutoConfig.for_model(
                architecture, vocab_size=len(tokenizer), decoder_start_token_id=tokenizer.pad_token_id, **sizes
            )
            torch.manual_seed(0)
            model = AutoModelForSeq2SeqLM.from_config(config)
            if name != "t5":  # only the first T5 shares the weights of its head with the word embeddings
                model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.lm_head.weight))
            model.save_pretrained(path)
            tokenizer.save_pretrained(path)
            made[name] = path
        return made[name]

    return folder


def t5_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """T5's kind of SentencePiece, with the words of the license and those that monoT5 answers with."""
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LICENSE.splitlines()),
        model_prefix=str(folder / "spiece"),
        vocab_size=400,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        bos_id=-1,
        user_defined_symbols=["▁true", "▁false", "▁yes", "▁no"],
        minloglevel=2,
    )
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "T5Tokenizer", "extra_ids": 5}))
    return T5Tokenizer.from_pretrained(folder)


# As sentence-transformers' rerankers have it, with the roles of a pair.
CHAT_TEMPLATE = """{%- set given = messages | selectattr("role", "eq", "system") | map(attribute="content") | first -%}
{%- set instruction = given | default("Find what is asked for.") -%}
{%- set query = messages | selectattr("role", "eq", "query") | map(attribute="content") | first -%}
{%- set document = messages | selectattr("role", "eq", "document") | map(attribute="content") | first -%}
{{ bos_token or "" }}<|im_start|>system
Judge the document.<|im_end|>
<|im_start|>user
<Instruct>: {{ instruction }}
<Query>: {{ query }}
<Document>: {{ document }}<|im_end|>
<|im_start|>assistant
{{ "\\n\\n" }}"""
# How Qwen's and Llama 3's tokenizers split a text before they join bytes.
_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@pytest.fixture(scope="session")
def decoder_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder with a tiny decoder of random weights: `decoder_folder("qwen3")`, or with a classifier, `labels=1`."""
    made: dict[tuple[str, int | None], Path] = {}

    def folder(architecture: str = "qwen3", labels: int | None = None) -> Path:
        if (architecture, labels) not in made:
            path = tmp_path_factory.mktemp(architecture)
            sizes, is_gemma_like = DECODERS[architecture]
            tokenizer = _decoder_tokenizer(with_bytes=architecture != "gemma", with_bos=is_gemma_like)
            config = AutoConfig.for_model(
                architecture,
                vocab_size=len(tokenizer),
                pad_token_id=tokenizer.pad_token_id,
                bos_token_id=tokenizer.bos_token_id,
                eos_token_id=tokenizer.eos_token_id,
                **sizes,
                **({"num_labels": labels} if labels else {}),
            )
            torch.manual_seed(0)
            auto = AutoModelForSequenceClassification if labels else AutoModelForCausalLM
            auto.from_config(config).save_pretrained(path)
            tokenizer.save_pretrained(path)
            made[architecture, labels] = path
        return made[architecture, labels]

    return folder


def _decoder_tokenizer(with_bytes: bool, with_bos: bool) -> PreTrainedTokenizerBase:
    """A BPE of bytes as Qwen and Llama 3 have it, or one without words as Gemma has it."""
    tokenizer = Tokenizer(models.BPE(unk_token=None if with_bytes else "<unk>"))
    alphabet = sorted({*map(chr, range(33, 127)), "\n", "▁"})
    if with_bytes:
        split = pre_tokenizers.Split(Regex(_SPLIT), "isolated")
        level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, level])
        tokenizer.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
    else:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
        tokenizer.decoder = decoders.Replace("▁", " ")
        # Only for training: pieces of words, as real vocabularies have them.
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Split("▁", "merged_with_next"), pre_tokenizers.Split("\n", "isolated")]
        )
    specials = ["<pad>", "<bos>", "<eos>", "<unk>", "<|im_start|>", "<|im_end|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    words = "\n".join(["yes", "no", "Yes", "No", "1", "0", "is it?", "document.", "(work)", "Relevance: "] * 30)
    tokenizer.train_from_iterator([LICENSE, words], trainer)
    if not with_bytes:
        tokenizer.pre_tokenizer = None
    if with_bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<bos> $A", pair="<bos> $A $B", special_tokens=[("<bos>", tokenizer.token_to_id("<bos>"))]
        )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        eos_token="<eos>",
        bos_token="<bos>" if with_bos else None,
        additional_special_tokens=["<|im_start|>", "<|im_end|>"],
    )


@pytest.fixture(scope="session")
def tiny_ranker(
    encoder_folder: Callable[..., Path], seq2seq_folder: Callable[..., Path]
) -> Callable[..., docparade.DocumentRanker]:
    """A tiny ranker, made once for each set of arguments: `tiny_ranker(family, aggregation)`.

    With `pooling="mean"`, it is a ranker on a bi-encoder; with `architecture="t5"`, on an encoder-decoder.
    """
    made: dict[tuple, docparade.DocumentRanker] = {}

    def ranker(
        family: type[docparade.DocumentRanker], aggregation: str, architecture: str = "bert", **options: object
    ) -> docparade.DocumentRanker:
        key = (family, aggregation, architecture, tuple(sorted(options.items())))
        if key not in made:
            is_seq2seq = architecture in SEQ2SEQ_MODELS
            make_folder = seq2seq_folder if is_seq2seq else encoder_folder
            folder = make_folder(architecture)  # made before the seed is set: making it draws random numbers
            torch.manual_seed(0)
            settings = {
                "window": 12,
                "stride": 8,
                "max_passages": 5,
                "max_length": 24,
                "max_query_tokens": 8,
                **options,
            }
            if is_seq2seq:
                settings["max_length"] = 64  # room for the prompt
                build = family.from_cross_encoder
            else:
                build = family.from_bi_encoder if "pooling" in options else family.from_encoder
            model = build(folder, aggregation=aggregation, **settings)
            for name, parameter in model.named_parameters():
                if name.startswith(("aggregator.", "projection.")):
                    torch.nn.init.normal_(parameter, std=0.3)
            made[key] = model
        return made[key]

    return ranker


@pytest.fixture
def random_text() -> Callable[[int, int], str]:
    """Words of the license at random: `random_text(words, seed)`."""

    def text(words: int, seed: int = 0) -> str:
        return " ".join(random.Random(seed).choices(WORDS, k=words))

    return text
