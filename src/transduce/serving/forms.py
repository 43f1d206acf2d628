"""What clients send and get: LibreTranslate's forms, and our own with all that a translation knows."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Language = Annotated[str, Field(min_length=2, max_length=16, pattern=r"^[A-Za-z][A-Za-z0-9-]*$", examples=["de"])]
Text = Annotated[str, Field(examples=["The animal didn't cross the street because it was too tired."])]


class Strict(BaseModel):
    """Nothing is passed over: a wrong name is an error."""

    model_config = ConfigDict(extra="forbid")


class LibreRequest(BaseModel):
    """LibreTranslate's request; what it has and we do not know is passed over, as its clients expect."""

    q: Text | list[Text]
    source: str = Field(examples=["en"], description="a language, or auto")
    target: Language
    format: Literal["text", "html"] = "text"
    alternatives: int = Field(0, ge=0, le=10, description="how many other translations are wanted")
    api_key: str | None = None


class Detected(BaseModel):
    """A language that a text may be in."""

    confidence: float
    language: str


class LibreResponse(BaseModel):
    """LibreTranslate's answer: a list where a list was sent."""

    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None


class LanguageEntry(BaseModel):
    """A language and those it can be translated into."""

    code: str
    name: str
    targets: list[str]


class TranslateRequest(Strict):
    """Texts to translate, and what is wanted of them."""

    texts: list[Text] = Field(min_length=1, max_length=1000)
    source: Language | None = Field(None, description="where several models translate into the target")
    target: Language | None = Field(None, description="where there are models for several languages")
    prefix: str = Field("", description="translations begin with this")
    require: list[str] = Field([], max_length=20, description="phrases that translations contain")
    forbid: list[str] = Field([], max_length=20, description="phrases that translations do not contain")
    n_best: int = Field(1, ge=1, le=16)
    beam: int | None = Field(None, ge=1, le=32)
    alpha: float | None = Field(None, ge=0, le=10)
    alignments: bool = Field(False, description="which word comes from which")


class Candidate(BaseModel):
    """One translation of a sentence."""

    text: str
    score: float
    log_probability: float
    complete: bool
    tokens: list[str]
    token_scores: list[float]
    alignment: list[tuple[int, int]] | None = None


class SentenceEntry(BaseModel):
    """A sentence as the model was given it, and its translations, the best first."""

    source: str
    candidates: list[Candidate]


class Translated(BaseModel):
    """A text's translation, and what it is made of."""

    text: str
    score: float
    sentences: list[SentenceEntry]


class TranslateResponse(BaseModel):
    """Translations in the order of the texts."""

    model: str
    translations: list[Translated]


class AttentionRequest(Strict):
    """A sentence to look at, with its translation if that is given."""

    text: Text
    source: Language | None = None
    target: Language | None = None
    translation: str | None = None


class Problem(BaseModel):
    """Why a request was not answered."""

    error: str
