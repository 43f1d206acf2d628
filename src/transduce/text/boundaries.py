"""Find where the sentences of a line end: by punctuation, the word before it and the word after it.

The language need not be known: the lists of five languages are merged. An end too few is better than one too many,
because a model reads two sentences together better than half of one.
"""

import re

from transduce.text.words import is_small


def _words(*, english: str, german: str, french: str, spanish: str, italian: str) -> frozenset[str]:
    return frozenset(" ".join((english, german, french, spanish, italian)).split())


# Abbreviations, without spaces and without the last full stop (`z. B.` is `z.b`), in lower case unless that would be
# another word. No sentence ends after these, whatever follows.
NEVER_LAST = _words(
    english="mr mrs Ms messrs dr drs prof profs lt sgt capt cpl cmdr adm supt insp e.g eg i.e ie cf vs viz approx",
    german="""z.b z.t d.h i.d.r i.e.s i.a s.o s.u u.u sog bzw vgl evtl ggf ggfs inkl exkl einschl zzgl abzgl bspw insb
        insbes dipl dipl.-ing hrsg engl frz griech österr ehem geb etw jdm jdn jds jmd""",
    french="M MM mme mmes mlle mlles mgr p.ex c.-à-d c.à.d env",
    spanish="dra sra sres srta p.ej pág págs núm núms aprox ud uds vd vds ee",
    italian="dott dott.ssa ing avv sig sigg sig.ra p.es",
)
# After these a sentence ends only before a word that often begins one.
SELDOM_LAST = _words(
    english="jr inc ltd co corp bros dept univ assn eds esq al etc ph.d a.m p.m u.s u.k ave blvd rd",
    german="""usw u.a u.ä o.ä u.v.m u.a.m ca str jh jhd v.chr n.chr mio mrd tsd std sek mwst gmbh tel abk allg ebd
        entspr gegr jew lfd orig röm urspr zzt z.zt z.hd""",
    french="j.-c éd ex suppl cie ets",
    spanish="dpto tfno cía admón uu ee.uu",
    italian="ecc s.p.a s.r.l",
)
# A name follows these, as it follows an initial: a sentence ends only before an opening word that occurs in no name.
BEFORE_NAMES = _words(
    english="st ste mt ft sr gen col maj rep sen gov rev hon pres bros",
    german="hr hrn fa",
    french="av boul",
    spanish="avda pza sto sta",
    italian="fra",
)
# These are abbreviations only before a number; otherwise they are words of their own, or names.
BEFORE_NUMBERS = _words(
    english="""no nos p pp fig figs vol vols ch chap sec eq art ref app pt par jan feb mar apr jun jul aug sep sept oct
        nov dec est""",
    german="nr nrn abs s bd bde kap abb anm ziff rn rdnr lit aufl jg ausg tab max febr mrz okt dez",
    french="n° nº t fasc janv févr avr juil déc",
    spanish="ene abr ago dic cap",
    italian="gen mag giu lug ott",
)
# Words that often begin a sentence and are seldom names.
OPENING_WORDS = _words(
    english="""A About After All Also Although An And Another Are As At Because Before Both But By Can Could Did Do Does
        Don' During Each Even Every Finally For From Furthermore Had Has Have He Her Here His How However I If In Is It
        Its Later Let Many Maybe Meanwhile More Moreover Most My Nevertheless No Not Now Of On Once One Only Or Other
        Our Perhaps Please See She Should Since So Some Such Than That The Their Then There Therefore These They This
        Those Though Three Through Thus To Today Two Under Unfortunately Until Was We Well Were What When Where Which
        While Who Why Will With Without Would Yes Yet You Your""",
    german="""Aber Alle Allerdings Als Also Am An Auch Auf Aus Außerdem Bei Beim Bis Bitte Da Dabei Dafür Daher Damit
        Dann Daran Darauf Darum Das Dass Dazu Dein Deine Dem Den Denn Der Des Deshalb Die Dies Diese Diesem Diesen
        Dieser Dieses Doch Dort Du Durch Ein Eine Einem Einen Einer Eines Er Es Für Gegen Hat Hier Ich Ihm Ihn Ihr Ihre
        Im Immer In Ist Jede Jeder Jedes Jedoch Jetzt Kann Kannst Kein Keine Können Leider Man Manche Mein Meine Mit
        Nach Natürlich Nein Nicht Nichts Noch Nun Nur Ob Oder Ohne Schon Sehr Sein Seine Seit Sie Siehe Sind So Solche
        Sondern Trotzdem Um Und Uns Unser Unsere Unter Viele Vielleicht Vom Von Vor War Waren Warum Was Weil Wenn Wer
        Werden Wie Wieso Wir Wird Wo Zu Zudem Zum Zur Über""",
    french="""Ah Ainsi Alors Après As Au Aucun Aujourd' Aussi Aux Avant Avec Avez C' Car Ce Ceci Cela Celui Cependant
        Certaines Certains Ces Cet Cette Chaque Chez Comme Comment D' Dans De Depuis Des Donc Du Elle Elles En Enfin
        Ensuite Est Et Il Ils J' Je L' La Le Les Leur Leurs Lors Lorsque Ma Mais Malgré Mes Mon Même N' Ne Non Nos Notre
        Nous On Or Ou Où Par Parce Pas Pendant Peut Plus Plusieurs Pour Pourquoi Pourtant Puis Qu' Quand Quant Que Quel
        Quelle Qui Quoi S' Sa Sans Se Selon Ses Si Son Sous Sur T' Ta Tes Toi Ton Tous Tout Toute Toutefois Toutes Très
        Tu Un Une Voir Vos Votre Vous Y À Ça""",
    spanish="""Además Al Algunos Aquel Así Aunque Aún Como Con Cuando Cuál Cómo De Del Desde Después Donde Dónde El Ella
        Ellas Ellos En Entonces Entre Era Es Esa Ese Eso Esta Estas Este Esto Estos Está Fue Ha Hace Hasta Hay La Las Lo
        Los Me Mi Mis Mucho Muchos Muy Más Nada Nadie Ni No Nos Nosotros Nuestra Nuestro O Para Pero Por Porque Pues Que
        Quién Qué Se Según Ser Si Sin Sino Sobre Son Su Sus Sí También Te Tiene Todo Todos Tu Un Una Unos Usted Ustedes
        Y Ya Yo Él""",
    italian="""Alcuni Alla Allora Anche Ancora Che Chi Ci Come Con Cosa Così Da Dal Dalla Della Di Dopo Dove E Era Essi
        Fu Gli Ha Hai Hanno Ho I Il In Infine Inoltre Io Lei Li Loro Lui Ma Mentre Mi Molti Nel Nella Nelle Nessuno Noi
        Non Ogni Ora Per Perché Perciò Poi Prima Quale Quando Quanto Quella Quello Questa Queste Questi Questo Qui Sarà
        Se Sei Senza Si Siamo Sono Su Sui Sul Sulla Tra Tuttavia Tutti Tutto Un Una Uno Vi Voi È""",
)
# Those of them that occur in names after an initial or a title (J. De Vries, St. La Salle) or are names (Al, An, Das).
_IN_NAMES = frozenset(
    "Al An D' Da Dal Das De Del Della Den Der Des Di Du El Ha Hai Ho L' La Las Le Les Li Lo Los Mi So Su Von Y".split()
)

STOPS = ".!?…‼⁇⁈⁉‽⸮\u037e؟۔।॥։።။។៕᠃᠉"
WIDE = "。！？｡．"  # need no space after them
_QUOTES = "\"'”’“‘»«›‹」』"
_OPENING = "\"'“”„‘’‚«»‹›¿¡([{「『（［【《〈*_–—•·#§-"
_EMOJI = "\u2600-\u27bf\ufe0f\u200d\U0001f000-\U0001faff"
_SPOKEN = (
    "said|says|asked|asks|replied|answered|cried|shouted|yelled|whispered|exclaimed|added|thought|screamed|continued"
)

# One or more marks, what closes after them (quotes, including German “ and « and French » with its space; notes such as
# [1]; emoji), and white space, which Chinese and Japanese do not need.
_END = re.compile(
    rf"(?<![{STOPS}{WIDE}])(?:(?=[{STOPS}]*+[{WIDE}])(?P<wide>[{STOPS}{WIDE}]++)|[{STOPS}]++)"
    rf"(?P<closing>(?:[\"'”’»›」』)\]}}）］】》〉｝*_]|(?(wide)(?!)|[“‘«‹])|\s?»(?!\w)|\[\d{{1,3}}\]|\s?[{_EMOJI}])*+)"
    r"(?:\s++|(?(wide)|(?!)))"
)
_BEGINNING = re.compile(
    rf"(?P<opening>(?:[{re.escape(_OPENING)}]\s?){{0,4}})[$€£]?(?P<word>[^\W_]\w{{0,20}}+['’]?)(?P<dot>\.?)"
)
_SPEAKER = re.compile(rf"(?:\w+\s){{1,2}}(?:{_SPOKEN})\b")
_WORD = re.compile(r"[^\W_]")
_JOINED = re.compile(r"^(?:[a-z]{1,2}|[dns]?[ae]ll)['’](?=\w)|^.*/(?=[^\W\d_])", re.IGNORECASE)  # l'art., jdm./etw.
_DOTTED = re.compile(r"(?:[^\W\d_]{1,2}\.-?)+[^\W\d_]{1,2}")
_ORDINAL = re.compile(r"(?:\d{1,2}\.[-–/]?)*\d{1,3}")  # am 3. Mai, vom 10.–11. Mai, am 3.5. Urlaub
_ROMAN = re.compile(r"[IVXLC]{2,}")
_NUMBERING = re.compile(r"(?:\d{1,3}|[^\W\d_]|[IVXLC]+|\d{1,2}(?:\.\d{1,2})+)")
_CONSONANTS = re.compile(r"[B-DF-HJ-NP-TV-XZ]?[b-df-hj-np-tv-xzß]{1,4}")
_NO_ABBREVIATIONS = frozenset("km kg cm mm ml cl kb mb gb ms Hz Lkw Pkw".split())


def find_boundaries(line: str) -> list[tuple[int, int]]:
    """Return the gaps between a line's sentences: where one ends and where the next begins."""
    gaps: list[tuple[int, int]] = []
    begin = 0
    for found in _END.finditer(line):
        if _is_end(line, begin, found):
            begin = found.end()
            gaps.append((found.end("closing"), begin))
    return gaps


def _is_end(line: str, begin: int, found: re.Match[str]) -> bool:
    """Whether a sentence that begins at `begin` ends at the mark found."""
    following = _BEGINNING.match(line, found.end())
    if not following or not _can_begin(following) or not _WORD.search(line, begin, found.start()):
        return False
    stop, closing = line[found.start() : found.start("closing")], found["closing"]
    word, spaced = following["word"], found.end() > found.end("closing")
    quoted = any(mark in _QUOTES for mark in closing)
    if found["wide"]:
        if stop[-1] == "．" and word[0].isdigit() and not spaced:
            return False
        # 「…。」と言った: a sentence goes on after quoted speech.
        return not quoted or spaced or following["opening"] != ""
    if stop == ".":
        return not _is_abbreviation(line, begin, found.start(), following)
    if not stop.strip(".…"):
        # After a space, dots may stand for omitted words. "I" is always a capital and a number never: no proof.
        left_out = line[found.start() - 1] in " \u00a0\u202f(["
        return word != "I" and not word[0].isdigit() and (not left_out or word in OPENING_WORDS)
    return not (quoted and _SPEAKER.match(line, found.end()))  # "Why?" Ann asked.


def _can_begin(following: re.Match[str]) -> bool:
    """Whether a word looks like a sentence's first: a capital, a number, or a letter of a script without capitals."""
    word = following["word"]
    return not is_small(word[0]) or word[1:2].isupper()  # iPhone


def _is_abbreviation(line: str, begin: int, end: int, following: re.Match[str]) -> bool:
    """Whether the full stop at `end` belongs to the word before it and ends no sentence."""
    words = line[max(begin, end - 30) : end].split()
    if not words:
        return False
    last = _JOINED.sub("", words[-1].lstrip(_OPENING))
    before = words[-2] if len(words) > 1 else ""
    if _NUMBERING.fullmatch(last) and (before.endswith(":") or not before):
        return True  # 1. First
    for earlier in words[-2:-5:-1]:  # z. B., i. d. R.
        if not (earlier.endswith(".") and len(earlier.lstrip(_OPENING)) == 2):
            break
        last = earlier.lstrip(_OPENING) + last
    key, next_word = last.lower(), following["word"].replace("’", "'")
    if key in NEVER_LAST or last in NEVER_LAST:
        return True
    if key in BEFORE_NUMBERS and (next_word[0].isdigit() or _ROMAN.fullmatch(next_word)):
        return True
    opens = not OPENING_WORDS.isdisjoint((next_word, next_word.removesuffix("'"))) and not following["dot"]
    is_initial = len(last) == 1 and last.isalpha() and not (last == "I" and before.islower())  # So am I.
    if is_initial or key in BEFORE_NAMES:
        return not opens or next_word in _IN_NAMES
    seldom = (
        key in SELDOM_LAST
        or _ORDINAL.fullmatch(last)
        or _DOTTED.fullmatch(last)
        or _ROMAN.fullmatch(last)
        or key.endswith("str")
        or (_CONSONANTS.fullmatch(last) and last not in _NO_ABBREVIATIONS)
    )
    return bool(seldom) and not opens
