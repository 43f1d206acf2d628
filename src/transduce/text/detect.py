"""Detect the language of a text by its script, common words, word endings, and letters that few languages have.

It needs no model and no data, only short lists. A sentence is enough; a single word may not be.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from functools import cache

NAMES = {
    **{"ar": "Arabic", "bg": "Bulgarian", "cs": "Czech", "da": "Danish", "de": "German", "el": "Greek"},
    **{"en": "English", "es": "Spanish", "et": "Estonian", "fa": "Persian", "fi": "Finnish", "fr": "French"},
    **{"he": "Hebrew", "hi": "Hindi", "hr": "Croatian", "hu": "Hungarian", "id": "Indonesian", "it": "Italian"},
    **{"ja": "Japanese", "ko": "Korean", "lt": "Lithuanian", "lv": "Latvian", "nb": "Norwegian", "nl": "Dutch"},
    **{"no": "Norwegian", "pl": "Polish", "pt": "Portuguese", "ro": "Romanian", "ru": "Russian", "sk": "Slovak"},
    **{"sl": "Slovenian", "sr": "Serbian", "sv": "Swedish", "th": "Thai", "tr": "Turkish", "uk": "Ukrainian"},
    **{"vi": "Vietnamese", "zh": "Chinese", "af": "Afrikaans", "am": "Amharic", "az": "Azerbaijani"},
    **{
        "be": "Belarusian",
        "bn": "Bengali",
        "bo": "Tibetan",
        "br": "Breton",
        "bs": "Bosnian",
        "ca": "Catalan",
        "cy": "Welsh",
    },
    **{
        "dz": "Dzongkha",
        "eo": "Esperanto",
        "eu": "Basque",
        "fo": "Faroese",
        "ga": "Irish",
        "gd": "Scottish Gaelic",
        "gl": "Galician",
    },
    **{"gu": "Gujarati", "ha": "Hausa", "hy": "Armenian", "ig": "Igbo", "is": "Icelandic", "jv": "Javanese"},
    **{"ka": "Georgian", "kk": "Kazakh", "km": "Khmer", "kn": "Kannada", "ku": "Kurdish", "ky": "Kyrgyz"},
    **{"la": "Latin", "lb": "Luxembourgish", "lo": "Lao", "mg": "Malagasy", "mi": "Maori", "mk": "Macedonian"},
    **{"ml": "Malayalam", "mn": "Mongolian", "mr": "Marathi", "ms": "Malay", "mt": "Maltese", "my": "Burmese"},
    **{"ne": "Nepali", "oc": "Occitan", "or": "Odia", "pa": "Punjabi", "ps": "Pashto", "qu": "Quechua"},
    **{"si": "Sinhala", "so": "Somali", "sq": "Albanian", "su": "Sundanese", "sw": "Swahili", "ta": "Tamil"},
    **{"te": "Telugu", "tg": "Tajik", "tl": "Tagalog", "tt": "Tatar", "ug": "Uyghur", "ur": "Urdu", "uz": "Uzbek"},
    **{"wo": "Wolof", "xh": "Xhosa", "yi": "Yiddish", "yo": "Yoruba", "zu": "Zulu"},
}
# The first word of a letter's Unicode name, and the languages written in that script.
SCRIPTS = {
    **{"ARABIC": "ar fa", "CYRILLIC": "ru uk bg", "GREEK": "el", "HEBREW": "he", "DEVANAGARI": "hi", "THAI": "th"},
    **{"CJK": "zh ja", "HIRAGANA": "ja", "KATAKANA": "ja", "HANGUL": "ko"},
    "LATIN": "en de fr es it pt nl sv da nb fi pl cs ro hu tr",
}
KNOWN = {language for languages in SCRIPTS.values() for language in languages.split()}  # that can be told from others
WORDS = {
    "en": (
        "the and of to in is that it for was on with as are this be at by have from not you which or an were has will "
        "i he she we they my your his her what who how do does did don t me him them there their can would if no all "
        "one out so up when been m s about just like know go get want time good"
    ),
    "de": (
        "der die und das ist nicht ein eine den von mit für auf dem des sich auch im es wird werden zu sind wir hat "
        "einen ich du er sie mein dein sein ihr was wer wie wo warum haben habe war mich mir dich uns ihm ihn kann "
        "muss will aber oder wenn noch nur nach bei aus an am um so dass als keine kein sehr hier gut bin bist"
    ),
    "fr": (
        "le la les des et est une un dans que qui pour sur pas au avec ce cette par plus sont nous du ou aux été mais "
        "je tu il elle vous ils mon ma mes ton son sa ses ne se en y à a ai as j c n qu d comment quoi où très bien "
        "fait être avoir tout suis es était si comme on moi toi lui leur faut l s"
    ),
    "es": (
        "el los las que y en un una por con para del se no es su al más como pero esta este son ha lo muy también yo "
        "tú él ella nosotros mi me te le nos qué quién cómo dónde cuando está estoy tengo tiene hay ser fue era si sí "
        "bien todo hacer de la a"
    ),
    "it": (
        "il di che è la per un una non sono con del della le gli nel alla anche si più come ma questo questa ha dei "
        "io tu lui lei noi mi ti ci cosa chi dove quando ho hai era stato molto bene tutto essere fare se lo l"
    ),
    "pt": (
        "o os as que e do da em um uma para não com por no na se dos das mais como mas ao é são foi pelo também eu tu "
        "ele ela nós você meu minha me te lhe quem onde quando está estou tenho tem há ser era muito bem tudo fazer "
        "isso"
    ),
    "nl": (
        "de het een en van is dat op te in zijn niet voor met die aan er ook als bij naar worden maar wordt heeft "
        "door ik jij je hij zij wij we mijn jouw hem haar wat wie hoe waar waarom heb hebben ben was kan moet wil "
        "geen nog dit deze om over uit zo"
    ),
    "sv": (
        "och att det som en på är av för med den inte ett har till om vi kan jag från eller men ska också denna var "
        "du han hon de dig mig min din vad vem hur när så sig sin skulle måste bara mycket här där"
    ),
    "da": (
        "og at det som en på er af for med den ikke et har til om vi kan jeg fra eller men skal også denne var blev "
        "du han hun de dig mig min din hvad hvem hvordan når så sig sin ville må kun meget her der"
    ),
    "nb": (
        "og at det som en på er av for med den ikke et har til om vi kan jeg fra eller men skal også denne var ble du "
        "han hun de deg meg min din hva hvem hvordan når så seg sin ville må bare mye her der"
    ),
    "fi": (
        "ja on ei se että oli hän mutta ovat kun niin kuin myös tai joka ole voi mitä olla sen tämä siitä jos olen "
        "minä sinä me te he en et minun sinun mikä kuka missä miksi minulla hyvin nyt vain"
    ),
    "pl": (
        "i w na nie się że z do to jest jak o co po ale przez tak dla od czy za jego są być tym które oraz może ja ty "
        "on ona my mój kto gdzie kiedy jestem mam ma był była mnie cię go jej tylko bardzo tu tam"
    ),
    "cs": (
        "a v se na je že to s z do i o jako pro ale jsem by jeho které nebo jsou jen aby co také byl ve není já ty on "
        "ona my můj kdo kde kdy jsi mám má byla mě ho jí velmi tady tam si k"
    ),
    "ro": (
        "și în de la a cu care nu pe un o că este mai din pentru sunt ca au dar fi sau prin această acest fost lui eu "
        "tu el ea noi meu mea ce cine unde când am ai are era foarte bine să îl îmi mă"
    ),
    "hu": (
        "a az és hogy nem is egy van ez meg ha csak volt de már mint vagy még el kell azt lesz ezt ki fel olyan én te "
        "ő mi ti mit hol mikor miért vagyok nagyon jó itt ott nekem"
    ),
    "tr": (
        "ve bir bu için ile da de olarak daha çok olan ne gibi var ama değil kadar sonra her mi ben en o şey olduğu "
        "sen biz siz onlar kim nerede nasıl benim senin yok iyi bana sana mı"
    ),
    "ru": (
        "и в не на что я с он как это но по из за то к у его так от она для мы же о все бы был или также есть ты вы "
        "они мой кто где когда меня тебя мне ему её их нет да очень"
    ),
    "uk": (
        "і в не на що я з він як це але по та за до у його так від вона для ми про все був або також є й ця ти ви "
        "вони мій хто де коли мене тебе мені йому її їх немає дуже"
    ),
    "bg": (
        "и в не на че се с той като това но по от за да са до го така тя ние със е или също има може бъде аз ти вие "
        "те моя кой къде кога мен теб ми му я ги няма много съм си"
    ),
    "ar": "في من على أن إلى هذا التي عن مع ما هو لا كان هذه أو قد بين ذلك الذي كل كما بعد لم أنا أنت هي نحن",
    "fa": "در از به که این را با است برای آن یک خود تا بر هم می شود اما شد ها او کرد نیز ای من تو ما",
}
# Word endings, for the words that are not listed.
ENDINGS = {
    "en": "ing tion ight ould ed ly ck th ow ay",
    "de": "en er ung lich isch cht chen te ten st ich heit keit",
    "fr": "ment eux tion ais ait ons ez eur ique elle ette oir",
    "es": "ción ado ada os ar ir mente dad aba amos",
    "it": "zione ato ata are ere ire mente tà ono iamo",
    "pt": "ção ado ada ão ões ar mente dade ava amos",
    "nl": "en lijk ijk aan oor eren heid tje ij",
    "sv": "ar en ade et ning lig orna",
    "da": "er en ede et ning lig erne",
    "nb": "er en ede et ning lig ene",
    "fi": "aan ssa sta lla lle nen vat een ksi",
    "pl": "ego ych nie ość ać ów owi cie",
    "cs": "ého ých ní ost ovat ou ech",
    "ro": "ul ii lor ție ează esc are",
    "hu": "ban ben nak nek ság ség unk ok",
    "tr": "lar ler dir mek mak iyor dan den",
}
LETTERS = {
    **{"de": "ßäöü", "fr": "çèêàùœîôëé", "es": "ñ¿¡áíóú", "it": "ìòàèù", "pt": "ãõçâêá", "sv": "åäö", "da": "æøå"},
    **{"nb": "æøå", "fi": "äö", "pl": "łąęśżźćń", "cs": "řěůčšž", "ro": "ășțâî", "hu": "őűáéó", "tr": "ğışç"},
    **{"uk": "іїєґ", "bg": "ъ", "ru": "ыэё", "fa": "پچگژک"},
}
SAME = {"no": "nb", "nn": "nb"}  # not told apart here
LETTER, ENDING = 0.3, 0.15  # weights of a letter and an ending; a word has 1
FEWEST_WORDS, CLEAR, CLEARLY = 4, 0.4, 3  # to be sure: fewest words, least share, and multiple of the expected one's
UNSEEN = 0.1  # what each language of the text's script starts with

LONGEST = max(len(ending) for endings in ENDINGS.values() for ending in endings.split())
_WORD = re.compile(r"[^\W\d_]+")


def name_language(code: str) -> str:
    """Return the English name of a language, or its code if none is known."""
    return NAMES.get(code) or NAMES.get(drop_region(code, ()), code)


def plain_code(code: str) -> str:
    """Return a language's code in the form in which codes are compared: pt-br for pt_BR."""
    return code.lower().replace("_", "-")


def drop_region(code: str, known: Iterable[str]) -> str:
    """Return a code without its region or script: de for de-AT; but en-de is kept if de is a known language."""
    languages = set(map(str.lower, known))
    language, *others = re.split("[-_]", code.lower())
    return code if set(others) & (languages - {language}) else language


def plain_language(code: str) -> str:
    """Return a code without its region; languages that cannot be told apart here get the same one."""
    main = drop_region(code, ())
    return SAME.get(main, main)


def detect(text: str, among: Sequence[str]) -> list[tuple[str, float]]:
    """Return the given languages with the probability that a text is in them, likeliest first.

    Probabilities are shares among all languages known here, so those of the given ones need not add up to 1.
    """
    scripts = Counter(_script(letter) for letter in text if letter.isalpha())
    counts: defaultdict[str, float] = defaultdict(float)
    for script, many in scripts.items():
        for language in SCRIPTS.get(script, "").split():
            counts[language] += UNSEEN * many / scripts.total()
    # Kana tell Japanese from Chinese, however many characters the two share.
    if scripts["HIRAGANA"] + scripts["KATAKANA"] > 0.05 * scripts.total():
        counts["ja"] += 10
    elif scripts["CJK"]:
        counts["zh"] += 10 * scripts["CJK"] / scripts.total()
    tables = _tables()
    lower = unicodedata.normalize("NFC", text).lower()
    for word in _WORD.findall(lower):
        for language, weight in tables.get(word, ()):
            counts[language] += weight
        for length in range(2, min(LONGEST, len(word) - 1) + 1):
            for language, weight in tables.get(f"…{word[-length:]}", ()):
                counts[language] += ENDING * weight * (length - 1)
    for letter, many in Counter(lower).items():
        for language, weight in tables.get(f"{letter}…", ()):
            counts[language] += LETTER * weight * many
    total = sum(counts.values())
    shares = [(code, counts[plain_language(code)]) for code in dict.fromkeys(among)]
    return sorted(((code, count / total if total else 0.0) for code, count in shares), key=lambda pair: -pair[1])


def find_other(text: str, expected: str) -> str | None:
    """Return the language that a text is clearly in, if it is not the expected one; None for short texts."""
    if len(_WORD.findall(text)) < FEWEST_WORDS or plain_language(expected) not in KNOWN:
        return None
    shares = dict(detect(text, [expected, *NAMES]))
    best = max(shares, key=shares.__getitem__)
    return best if shares[best] > max(CLEAR, CLEARLY * shares[expected]) else None


def find_clear(text: str) -> str | None:
    """Return the language that a text is clearly in, or None."""
    if len(_WORD.findall(text)) < FEWEST_WORDS:
        return None
    best, share = detect(text, list(NAMES))[0]
    return best if share > CLEAR else None


@cache
def _tables() -> dict[str, list[tuple[str, float]]]:
    """Return the languages of each word, ending (as …ing) and letter (as ß…), with its weight for each of them."""
    owners: dict[str, list[str]] = {}
    for mark, lists in (("", WORDS), ("…", ENDINGS)):
        for language, words in lists.items():
            for word in dict.fromkeys(words.split()):
                owners.setdefault(mark + word, []).append(language)
    for language, letters in LETTERS.items():
        for letter in letters:
            owners.setdefault(f"{letter}…", []).append(language)
    return {key: [(language, 1 / len(some)) for language in some] for key, some in owners.items()}


@cache
def _script(letter: str) -> str:
    return unicodedata.name(letter, "").partition(" ")[0]
