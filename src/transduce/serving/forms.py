"""What clients send and get: LibreTranslate's forms, and our own with all details of a translation."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from transduce.decoding.translation import Alternative, Translation

MOST_PHRASES, LONGEST_PHRASE = 20, 1000

Language = Annotated[str, Field(min_length=1, max_length=32, examples=["de"])]
Text = Annotated[str, Field(examples=["it is already twenty-five to twelve"])]
Phrase = Annotated[str, Field(max_length=LONGEST_PHRASE)]
Link = Annotated[list[int], Field(min_length=2, max_length=2)]


class Form(BaseModel):
    """A form in which an unknown field is an error."""

    model_config = ConfigDict(extra="forbid")


class LibreRequest(BaseModel):
    """LibreTranslate's request; unknown fields are ignored, as its clients expect."""

    q: Text | Annotated[list[Text], Field(max_length=1000)] = Field(description="a text, or in JSON a list of texts")
    source: Language = Field(examples=["en"], description="a language, or auto")
    target: Language
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, le=10, description="number of alternative translations")
    api_key: str | None = None


class LibreDetect(BaseModel):
    """LibreTranslate's request to detect a language."""

    q: Text
    api_key: str | None = None


class LibreFile(BaseModel):
    """LibreTranslate's upload: text, HTML, a document or subtitles; the ending of the file's name decides."""

    file: str = Field(json_schema_extra={"format": "binary"})
    source: Language = Field(examples=["en"], description="a language, or auto")
    target: Language
    api_key: str | None = None


class Detected(BaseModel):
    """A language that a text may be in, and the confidence in it, in %."""

    confidence: float
    language: str


class _Camel(BaseModel):
    """A form whose fields have LibreTranslate's names, in camel case."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class LibreResponse(_Camel):
    """LibreTranslate's answer; each field is a list if a list was sent."""

    translated_text: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detected_language: Detected | list[Detected] | None = None


class FileResponse(_Camel):
    """Where to download the translated file, which is kept for a while."""

    translated_file_url: str


class LanguageEntry(BaseModel):
    """A language and the languages it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Health(BaseModel):
    """The server is up and every model can translate."""

    status: Literal["ok"] = "ok"


class Problem(BaseModel):
    """Why a request was refused or failed."""

    error: str


class ModelEntry(BaseModel):
    """A served model."""

    name: str
    source: str
    target: str
    parameters: int


class _Asked(Form):
    """The model to use, by its languages or its name."""

    source: Language | None = Field(
        None, description="language of the text; if left out or auto, it is detected", examples=["en"]
    )
    target: Language | None = Field(None, description="target language, if the models translate into several")
    model: str | None = Field(None, description="a name from /v1/models, if several translate the same pair")


class TranslateRequest(_Asked):
    """Texts to translate, and options of the translation."""

    texts: list[Text] = Field(min_length=1, max_length=1000)
    prefix: Phrase = Field("", description="start every translation with this; for texts of one sentence")
    require: list[Phrase] = Field(
        [], max_length=MOST_PHRASES, description="phrases that every translation must contain"
    )
    forbid: list[Phrase] = Field([], max_length=MOST_PHRASES, description="phrases that no translation may contain")
    n_best: int = Field(1, ge=1, le=16, description="number of translations for each sentence")
    beam: int | None = Field(None, ge=1, le=16, description="beam width (default: the model's)")
    alpha: float | None = Field(None, ge=0, le=10, allow_inf_nan=False, description="strength of the length penalty")
    alignments: bool = Field(False, description="also give word alignments")
    split: Literal["long", "always", "never"] = Field("long", description="which lines are split into sentences")


class StreamRequest(_Asked):
    """A text of any length, up to the limit for files."""

    text: Text


class ContinueRequest(_Asked):
    """A sentence, and the beginning of its translation."""

    text: Text
    prefix: Phrase = ""
    n_best: int = Field(5, ge=1, le=16, description="number of continuations, each with a different next word")


class AttentionRequest(_Asked):
    """A sentence to look at, and optionally its translation."""

    text: Text
    translation: Text | None = Field(
        None, description="translation to look at (default: the one that the search finds)"
    )


class Candidate(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float = Field(description="log-probability divided by the length penalty")
    log_probability: float
    complete: bool = Field(description="false if it was cut off at the maximum length")
    tokens: list[str] = Field(description="its subwords")
    token_scores: list[float] = Field(description="the log-probability of each subword, and of the end")
    alignment: list[Link] | None = Field(None, description="(source word, target word), counted from 0")

    @classmethod
    def of(cls, found: Alternative) -> "Candidate":
        """Convert the translator's result."""
        return cls(**vars(found))


class SentenceEntry(BaseModel):
    """A sentence as given to the model, its translations, best first, and the text that follows it."""

    source: str
    candidates: list[Candidate]
    behind: str
    unsaid: list[str] = Field(description="translations of the glossary's terms that are missing from the best one")


class Translated(BaseModel):
    """The translation of a text, and its parts: the text before the first sentence, then the sentences."""

    text: str
    score: float
    before: str
    sentences: list[SentenceEntry]

    @classmethod
    def of(cls, found: Translation) -> "Translated":
        """Convert the translator's result."""
        layout = found.layout
        return cls(
            text=found.text,
            score=found.score,
            before=layout.gaps[0],
            sentences=[
                SentenceEntry(
                    source=sentence.source,
                    candidates=[Candidate.of(one) for one in sentence.alternatives],
                    behind=layout.behind(place, sentence.alternatives[0].text),
                    unsaid=list(sentence.unsaid),
                )
                for place, sentence in enumerate(found.sentences)
            ],
        )


class TranslateResponse(BaseModel):
    """The translations, in the order of the texts."""

    model: str
    source: str
    target: str
    translations: list[Translated]


class ContinueResponse(BaseModel):
    """Translations with the same beginning and different continuations, best first."""

    model: str
    candidates: list[Candidate]


class AttentionResponse(BaseModel):
    """What `transduce show --json` prints; docs/seeing.md explains it."""

    format: int
    model: str
    source: dict[str, Any]
    target: dict[str, Any]
    attention: dict[str, list[list[list[list[float]]]]] = Field(
        description="for encoder, decoder and cross: layer, head, query, key"
    )
    steps: list[dict[str, Any]]
    alignment: list[Link]
    tree: list[dict[str, Any]]
