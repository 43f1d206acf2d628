"""What clients send and get: LibreTranslate's forms, and our own with all that a translation knows."""

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
    """Nothing is passed over: a wrong name is an error."""

    model_config = ConfigDict(extra="forbid")


class LibreRequest(BaseModel):
    """LibreTranslate's request; what it has and we do not know is passed over, as its clients expect."""

    q: Text | Annotated[list[Text], Field(max_length=1000)] = Field(description="a text, or in JSON a list of them")
    source: Language = Field(examples=["en"], description="a language, or auto")
    target: Language
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, le=10, description="how many other translations are wanted")
    api_key: str | None = None


class LibreDetect(BaseModel):
    """LibreTranslate's question for a language."""

    q: Text
    api_key: str | None = None


class LibreFile(BaseModel):
    """LibreTranslate's upload: a file of text, HTML, a document or subtitles, by the ending of its name."""

    file: str = Field(json_schema_extra={"format": "binary"})
    source: Language = Field(examples=["en"], description="a language, or auto")
    target: Language
    api_key: str | None = None


class Detected(BaseModel):
    """A language that a text may be in; the confidence is in percent."""

    confidence: float
    language: str


class _Camel(BaseModel):
    """Named as LibreTranslate names things."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


class LibreResponse(_Camel):
    """LibreTranslate's answer: lists where a list was sent."""

    translated_text: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detected_language: Detected | list[Detected] | None = None


class FileResponse(_Camel):
    """Where a translated file is, for a while."""

    translated_file_url: str


class LanguageEntry(BaseModel):
    """A language and those it can be translated into."""

    code: str
    name: str
    targets: list[str]


class Health(BaseModel):
    """That all is well."""

    status: Literal["ok"] = "ok"


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str


class ModelEntry(BaseModel):
    """A model that is served."""

    name: str
    source: str
    target: str
    parameters: int


class _Asked(Form):
    """Which model is wanted; what is left open is found out from the text."""

    source: Language | None = Field(None, description="its language; left out or auto: found out", examples=["en"])
    target: Language | None = Field(None, description="the language wanted, where models translate into several")
    model: str | None = Field(None, description="a name of /v1/models, where several translate the same pair")


class TranslateRequest(_Asked):
    """Texts to translate, and what is wanted of them."""

    texts: list[Text] = Field(min_length=1, max_length=1000)
    prefix: Phrase = Field("", description="each translation begins with this; for texts of one sentence")
    require: list[Phrase] = Field([], max_length=MOST_PHRASES, description="phrases that each translation contains")
    forbid: list[Phrase] = Field([], max_length=MOST_PHRASES, description="phrases that it does not contain")
    n_best: int = Field(1, ge=1, le=16, description="translations wanted of each sentence")
    beam: int | None = Field(None, ge=1, le=16, description="width of the search; the model's own if left out")
    alpha: float | None = Field(None, ge=0, le=10, allow_inf_nan=False, description="strength of the length penalty")
    alignments: bool = Field(False, description="also tell which word comes from which")
    split: Literal["long", "always", "never"] = Field("long", description="which lines are split into sentences")


class StreamRequest(_Asked):
    """A text of any length, up to that of a file."""

    text: Text


class ContinueRequest(_Asked):
    """A sentence, and how its translation begins."""

    text: Text
    prefix: Phrase = ""
    n_best: int = Field(5, ge=1, le=16, description="ways to go on, each with another next word")


class AttentionRequest(_Asked):
    """A sentence to look at, with its translation if that is given."""

    text: Text
    translation: Text | None = Field(None, description="else the one that the search finds")


class Candidate(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float = Field(description="log-probability over the length penalty")
    log_probability: float
    complete: bool = Field(description="false if it was cut at the longest it might become")
    tokens: list[str] = Field(description="its subwords")
    token_scores: list[float] = Field(description="the log-probability of each, and of the end")
    alignment: list[Link] | None = Field(None, description="(source word, target word), counted from 0")

    @classmethod
    def of(cls, found: Alternative) -> "Candidate":
        """As the translator found it."""
        return cls(**vars(found))


class SentenceEntry(BaseModel):
    """A sentence as the model was given it, its translations, the best first, and what stands behind it."""

    source: str
    candidates: list[Candidate]
    behind: str


class Translated(BaseModel):
    """A text's translation, and what it is made of: what stands before it, then its sentences."""

    text: str
    score: float
    before: str
    sentences: list[SentenceEntry]

    @classmethod
    def of(cls, found: Translation) -> "Translated":
        """As the translator found it."""
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
                )
                for place, sentence in enumerate(found.sentences)
            ],
        )


class TranslateResponse(BaseModel):
    """Translations in the order of the texts."""

    model: str
    source: str
    target: str
    translations: list[Translated]


class ContinueResponse(BaseModel):
    """Translations that begin alike and go on differently, the best first."""

    model: str
    candidates: list[Candidate]


class AttentionResponse(BaseModel):
    """What `transduce show --json` prints; docs/seeing.md explains it."""

    format: int
    model: str
    source: dict[str, Any]
    target: dict[str, Any]
    attention: dict[str, list[list[list[list[float]]]]] = Field(
        description="for encoder, decoder and cross: layer, head, who looks, what is looked at"
    )
    steps: list[dict[str, Any]]
    alignment: list[Link]
    tree: list[dict[str, Any]]
