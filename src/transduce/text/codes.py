"""Codes of languages as documents write them: what they name, and which way their languages are written."""

import re
from dataclasses import dataclass

from transduce.text.detect import NAMES, SAME, plain_language

# Codes of three letters, or withdrawn ones, each followed by what documents use instead.
_MEANT = (
    "afr af alb sq amh am ara ar arm hy aze az baq eu bel be ben bn bod bo bos bs bre br bul bg bur my cat ca ces cs "
    "chi zh cmn zh cym cy cze cs dan da deu de dut nl dzo dz ell el eng en epo eo est et eus eu fao fo fas fa fin fi "
    "fra fr fre fr geo ka ger de gla gd gle ga glg gl gre el guj gu hau ha heb he hin hi hrv hr hun hu hye hy ibo ig "
    "ice is in id ind id isl is ita it iw he jav jv ji yi jpn ja kan kn kat ka kaz kk khm km kir ky kor ko kur ku lao "
    "lo lat la lav lv lit lt ltz lb mac mk mal ml mao mi mar mr may ms mkd mk mlg mg mlt mt mon mn mri mi msa ms mya "
    "my nep ne nld nl nno nn nob nb nor no oci oc ori or ory or pan pa per fa pol pl por pt pus ps que qu ron ro rum "
    "ro rus ru sin si slk sk slo sk slv sl som so spa es sqi sq srp sr sun su swa sw swe sv swh sw tam ta tat tt tel "
    "te tgk tg tgl tl tha th tib bo tur tr uig ug ukr uk urd ur uzb uz vie vi wel cy wol wo xho xh yid yi yor yo zho "
    "zh zsm ms zul zu"
).split()
_SHORT: dict[str, str] = dict(zip(_MEANT[::2], _MEANT[1::2], strict=True))
# The country whose spelling office programs check when a document does not name another.
_COUNTRIES = (
    "af-ZA ar-SA az-AZ be-BY bg-BG bn-BD bs-BA ca-ES cs-CZ cy-GB da-DK de-DE el-GR en-US es-ES et-EE eu-ES fa-IR fi-FI "
    "fr-FR ga-IE gl-ES he-IL hi-IN hr-HR hu-HU hy-AM id-ID is-IS it-IT ja-JP ka-GE kk-KZ ko-KR lt-LT lv-LV mk-MK mn-MN "
    "ms-MY nb-NO nl-NL nn-NO no-NO pl-PL pt-PT ro-RO ru-RU sk-SK sl-SI sq-AL sr-RS sv-SE sw-KE ta-IN te-IN th-TH tr-TR "
    "uk-UA ur-PK uz-UZ vi-VN zh-CN zh-Hans-CN zh-Hant-TW"
).split()
_COUNTRY: dict[str, str] = {code[:-3]: code[-2:] for code in _COUNTRIES}
_LEFTWARDS = {"ar", "fa", "he", "ps", "ug", "ur", "yi", "arab", "hebr"}  # languages and scripts
_FORM = re.compile(r"([A-Za-z]{2,3})(?:[-_]([A-Za-z]{4}))?(?:[-_]([A-Za-z]{2}|[0-9]{3}))?(?:[-_].*)?")


def find_main(code: str) -> str:
    """Return what a code names without script and country, in two letters if it has them: de for deu and de-AT."""
    found = _FORM.fullmatch(code.strip())
    main = found[1].lower() if found else ""
    return _SHORT.get(main, main)


def write_code(name: str) -> str:
    """Return a code as documents write it, such as pt-BR for por_BR; nothing for what is no known language."""
    main, found = find_main(name), _FORM.fullmatch(name.strip())
    if not found or main not in NAMES | SAME:
        return ""
    _, script, country = found.groups()
    parts = (main, script and script.title(), country and country.upper().replace("XX", ""))
    return "-".join(part for part in parts if part)


def find_country(code: str) -> str:
    """Return the country of a code, or the usual one, without which office programs find no dictionary."""
    return next((part for part in code.split("-")[1:] if len(part) < len("Hans")), _COUNTRY.get(code, ""))


def find_direction(code: str) -> str:
    """Return ltr or rtl, as HTML names the directions in which languages are written."""
    parts = [find_main(code), *re.split("[-_]", code.lower())[1:]]
    script = next((part for part in parts[1:] if len(part) == 4 and part.isalpha()), parts[0])
    return "rtl" if script in _LEFTWARDS else "ltr"


@dataclass(frozen=True)
class Codes:
    """The languages that a document is translated from and into; nothing for one that is not known."""

    source: str = ""
    target: str = ""

    @classmethod
    def read(cls, source: str, target: str) -> "Codes":
        """Return the languages of a model by its own names for them."""
        return cls(write_code(source), write_code(target))

    @property
    def turns(self) -> bool:
        """Whether the two are written in different directions."""
        return bool(self.source and self.target) and find_direction(self.source) != find_direction(self.target)

    def is_source(self, code: str) -> bool:
        """Whether a document's code names the language that it is translated from."""
        return bool(self.source) and is_same(code, self.source)


NO_CODES = Codes()


def is_same(code: str, other: str) -> bool:
    """Whether two codes name the same language, whatever the country."""
    one, two = (plain_language(find_main(each)) for each in (code, other))
    return bool(one) and one == two
