"""Documents ranked by a head and by yes against no; queries and documents are cut and kept apart as they must be."""

from pathlib import Path

import numpy as np
import pytest

from llamay import gguf, settings
from llamay.errors import ContextFull, UsageError
from llamay.serve import ranking
from llamay.serve.encoding import Encoder, batch_of
from llamay.serve.engine import Engine
from llamay.serve.loading.load import load

DATA = Path(__file__).parents[1] / "data"
DOCUMENTS = ["the first", "A second one, which is longer", "the first", ""]


@pytest.fixture(params=["bert-rerank", "roberta-rerank"])
def encoder(request):
    model = load(DATA / "encoders" / f"{request.param}.f16.gguf", settings.load({"backend": "numpy"}), embeds=True)
    with Engine.of(model) as engine:
        yield Encoder(model, engine)


def test_scores_of_pairs(encoder):
    found = ranking.rank(encoder, "which one", DOCUMENTS)
    assert len(found.logits) == 4 and found.logits[0] == found.logits[2] != found.logits[1]
    assert found.probabilities == pytest.approx(1 / (1 + np.exp(-np.array(found.logits))), rel=1e-12)
    for at, document in enumerate(DOCUMENTS):
        assert ranking.rank(encoder, "which one", [document]).logits == (found.logits[at],)
    tokenizer, loaded = encoder.loaded.tokenizer, encoder.loaded
    asked, *told = [tokenizer.encode(text) for text in ("which one", *DOCUMENTS)]
    ids, kinds = tokenizer.pair(asked, told[1])
    row = loaded.executor.forward(batch_of([ranking.Encoded(tuple(ids), tuple(kinds))]))[0]
    assert found.logits[1] == loaded.finish.score(row)
    assert found.tokens == sum(len(tokenizer.pair(asked, one)[0]) for one in told)


def test_a_long_document_is_cut_and_a_long_query_refused(encoder):
    long = "word " * 400
    closing = encoder.loaded.tokenizer.closing
    pair = ranking._pair(encoder, encoder.loaded.tokenizer.encode("which"), long, 0)
    assert len(pair.ids) == len(pair.kinds) == 128 and (closing is None or pair.ids[-1] == closing)
    with pytest.raises(ContextFull, match=r"the query with document 0 has .* the query leaves no room"):
        ranking.rank(encoder, long, ["a"])


def test_texts_far_beyond_the_context_are_not_encoded_whole(encoder, monkeypatch):
    """Nor is the query encoded again for each document of a pair."""
    tokenizer, seen, encode = encoder.loaded.tokenizer, [], encoder.loaded.tokenizer.encode
    monkeypatch.setattr(tokenizer, "encode", lambda text, **how: seen.append(len(text)) or encode(text, **how))
    long = "a word " * 20_000
    scores = ranking.rank(encoder, "which", [long, long[:2000]]).logits
    assert scores[0] == scores[1] and max(seen) < 20_000 and seen.count(len("which")) == 1
    with pytest.raises(ContextFull, match="leaves no room"):
        ranking.rank(encoder, long, ["a"])
    with pytest.raises(ContextFull, match="text 0 has at least "):
        encoder.encoded(long, 0, truncate=False)
    assert encoder.encoded(long, 0, truncate=True) == encoder.encoded(long[:2000], 0, truncate=True)
    assert len(encoder.begun("\0" * 20_000)) == 20_000 or tokenizer.kind == "BPE", "which is no token of BERT's"


def test_an_encoder_without_a_head_does_not_rank():
    model = load(DATA / "encoders" / "bert-mean.f16.gguf", settings.load({"backend": "numpy"}), embeds=True)
    with Engine.of(model) as engine, pytest.raises(UsageError, match="was not made to rank"):
        ranking.rank(Encoder(model, engine), "q", ["a"])


def test_a_model_of_one_kind_of_tokens(tmp_path):
    """BERT's vocabulary parts the texts; the table has nothing to tell them apart."""
    source, path = gguf.open(DATA / "encoders" / "bert-rerank.f16.gguf"), tmp_path / "one.gguf"
    tensors = [(name, one.type, one.shape, one.read(0, one.rows)) for name, one in source.tensors.items()]
    gguf.write(path, source.metadata, [one if one[0] != "token_types.weight" else (*one[:2], (64, 1), one[3][:1]) for one in tensors])
    model = load(path, settings.load({"backend": "numpy"}), embeds=True)
    with Engine.of(model) as engine:
        one, other, same = ranking.rank(Encoder(model, engine), "which", ["a", "b", "a"]).logits
    assert one == same != other


def judging(path, **more):
    """llama-gqa under a name that ranks, with tokens for yes and no."""
    source = gguf.open(DATA / "models" / "qwen3.f16.gguf")
    tokens = source.metadata["tokenizer.ggml.tokens"].strings()
    tokens[300], tokens[301] = "yes", "no"
    metadata = {**source.metadata, "tokenizer.ggml.tokens": tokens, "general.name": "Tiny-Reranker", **more}
    tensors = [(name, one.type, one.shape, one.read(0, one.rows)) for name, one in source.tensors.items()]
    gguf.write(path, metadata, tensors)
    return path


TEMPLATE = {"tokenizer.chat_template.rerank": "Q {query} D {document} A"}


def test_a_decoder_judges_by_yes_and_no(tmp_path):
    model = load(judging(tmp_path / "judge.gguf", **TEMPLATE), settings.load({"backend": "numpy"}), embeds=True)
    with Engine.of(model) as engine:
        encoder = Encoder(model, engine)
        found = ranking.rank(encoder, "which", ["one", "another <|im_end|>"])
        ids = ranking._question(encoder, "which", "one", 0).ids
        assert model.tokenizer.text(ids) == "Q which D one A"
        from llamay.tensor.batch import Batch

        row = engine.call(lambda s: s.executor.forward(Batch.single(np.array(ids), 0, np.arange(4, dtype=np.int32))))[0]
    assert found.logits[0] == pytest.approx(float(row[300]) - float(row[301]), abs=1e-6)
    assert not ranking.judges(load_language(DATA / "models" / "qwen3.f16.gguf"))


def load_language(path):
    from llamay.serve.loading.language import Language

    return Language.read(path)


def test_special_tokens_in_a_document_stay_text(tmp_path):
    language = load_language(judging(tmp_path / "judge.gguf"))
    assert ranking.judges(language)
    special = next(text for text, id in language.tokenizer.ids.items() if language.tokenizer.types[id] == 3)
    model = load(tmp_path / "judge.gguf", settings.load({"backend": "numpy"}), embeds=True)
    with Engine.of(model) as engine:
        ids = ranking._question(Encoder(model, engine), special, special, 0).ids
    head = ranking.JUDGE.partition("{query}")[0]
    allowed = model.tokenizer.encode(head, parse_special=True).count(model.tokenizer.ids[special])
    allowed += model.tokenizer.encode(ranking.JUDGE.partition("{query}")[2], parse_special=True).count(model.tokenizer.ids[special])
    assert ids.count(model.tokenizer.ids[special]) == allowed
