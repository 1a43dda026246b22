"""The words of the built-in English-German corpus: tables, and rules for their forms.

An entry of a table is one word in both languages. It gives only forms that must be
memorized; rules derive the others (the English plural *dogs*, the German dative plural
*Hunden*). Nouns belong to groups (person, text, food, ...), and verbs and adjectives
name the groups that they go with, so people read books and dogs do not.

Each English word has one German translation in its context. Words whose translation
depends on knowledge of the world are excluded (*you*, *it*, the past of *read*).
"""

from typing import NamedTuple

# Nouns by group. English singular (and plural, if irregular) : German article,
# singular, plural ("-" for a mass noun, which has none), and of men, children and weak
# nouns the genitive.
NOUNS = {
    "he": """
        man men : der Mann Männer Mannes | boy : der Junge Jungen Jungen |
        teacher : der Lehrer Lehrer Lehrers |
        student : der Student Studenten Studenten | doctor : der Arzt Ärzte Arztes |
        neighbor : der Nachbar Nachbarn Nachbarn |
        friend : der Freund Freunde Freundes | farmer : der Bauer Bauern Bauern |
        baker : der Bäcker Bäcker Bäckers | painter : der Maler Maler Malers |
        singer : der Sänger Sänger Sängers | king : der König Könige Königs |
        uncle : der Onkel Onkel Onkels | brother : der Bruder Brüder Bruders |
        father : der Vater Väter Vaters | son : der Sohn Söhne Sohnes |
        grandfather : der Großvater Großväter Großvaters |
        pilot : der Pilot Piloten Piloten | guest : der Gast Gäste Gastes |
        thief thieves : der Dieb Diebe Diebes | soldier : der Soldat Soldaten Soldaten |
        waiter : der Kellner Kellner Kellners |
        gardener : der Gärtner Gärtner Gärtners |
        policeman policemen : der Polizist Polizisten Polizisten |
        prince : der Prinz Prinzen Prinzen""",
    "she": """
        woman women : die Frau Frauen | aunt : die Tante Tanten |
        queen : die Königin Königinnen | sister : die Schwester Schwestern |
        mother : die Mutter Mütter | daughter : die Tochter Töchter |
        grandmother : die Großmutter Großmütter |
        nurse : die Krankenschwester Krankenschwestern |
        princess : die Prinzessin Prinzessinnen |
        actress : die Schauspielerin Schauspielerinnen""",
    "young": """
        girl : das Mädchen Mädchen Mädchens |
        child children : das Kind Kinder Kindes""",
    "animal": """
        dog : der Hund Hunde | cat : die Katze Katzen | horse : das Pferd Pferde |
        bird : der Vogel Vögel | cow : die Kuh Kühe | mouse mice : die Maus Mäuse |
        rabbit : das Kaninchen Kaninchen | bear : der Bär Bären Bären |
        lion : der Löwe Löwen Löwen | duck : die Ente Enten | goat : die Ziege Ziegen |
        pig : das Schwein Schweine | monkey : der Affe Affen Affen |
        elephant : der Elefant Elefanten Elefanten""",
    "text": """
        book : das Buch Bücher | letter : der Brief Briefe |
        newspaper : die Zeitung Zeitungen | poem : das Gedicht Gedichte |
        report : der Bericht Berichte | story : die Geschichte Geschichten |
        novel : der Roman Romane | magazine : die Zeitschrift Zeitschriften""",
    "food": """
        apple : der Apfel Äpfel | cake : der Kuchen Kuchen | egg : das Ei Eier |
        banana : die Banane Bananen | tomato tomatoes : die Tomate Tomaten |
        potato potatoes : die Kartoffel Kartoffeln | pear : die Birne Birnen |
        sausage : die Wurst Würste | carrot : die Karotte Karotten |
        roll : das Brötchen Brötchen | bread : das Brot - | cheese : der Käse - |
        soup : die Suppe - | rice : der Reis -""",
    "drink": """
        milk : die Milch - | water : das Wasser - | tea : der Tee - |
        coffee : der Kaffee - | juice : der Saft - | beer : das Bier - |
        wine : der Wein -""",
    "clothes": """
        hat : der Hut Hüte | coat : der Mantel Mäntel | shirt : das Hemd Hemden |
        dress : das Kleid Kleider | jacket : die Jacke Jacken | skirt : der Rock Röcke |
        scarf scarves : der Schal Schals | sweater : der Pullover Pullover |
        blouse : die Bluse Blusen""",
    "thing": """
        table : der Tisch Tische | chair : der Stuhl Stühle | clock : die Uhr Uhren |
        bag : die Tasche Taschen | key : der Schlüssel Schlüssel |
        knife knives : das Messer Messer | bottle : die Flasche Flaschen |
        glass : das Glas Gläser | plate : der Teller Teller | cup : die Tasse Tassen |
        picture : das Bild Bilder | flower : die Blume Blumen | ball : der Ball Bälle |
        box : die Kiste Kisten | suitcase : der Koffer Koffer |
        umbrella : der Regenschirm Regenschirme | guitar : die Gitarre Gitarren |
        mirror : der Spiegel Spiegel""",
    "device": """
        lamp : die Lampe Lampen | radio : das Radio Radios |
        computer : der Computer Computer | television : der Fernseher Fernseher""",
    "vehicle": """
        car : das Auto Autos | bicycle : das Fahrrad Fahrräder | bus : der Bus Busse |
        train : der Zug Züge | ship : das Schiff Schiffe | boat : das Boot Boote""",
    "opening": """
        door : die Tür Türen | window : das Fenster Fenster""",
    "meal": """
        breakfast : das Frühstück - | lunch : das Mittagessen - |
        dinner : das Abendessen -""",
    "place": """
        garden : der Garten Gärten | park : der Park Parks | city : die Stadt Städte |
        village : das Dorf Dörfer | forest : der Wald Wälder | house : das Haus Häuser |
        school : die Schule Schulen | church : die Kirche Kirchen |
        kitchen : die Küche Küchen | market : der Markt Märkte |
        station : der Bahnhof Bahnhöfe | library : die Bibliothek Bibliotheken |
        museum : das Museum Museen | restaurant : das Restaurant Restaurants |
        hospital : das Krankenhaus Krankenhäuser | office : das Büro Büros |
        beach : der Strand Strände | castle : das Schloss Schlösser |
        hotel : das Hotel Hotels""",
    "waters": """
        lake : der See Seen | river : der Fluss Flüsse""",
}

# Prepositions that depend on the place: the English one for being there ("at"), then
# the German ones for being there (dative), going there ("in" takes the accusative, "zu"
# the dative) and coming from there (dative). The default is "in in in aus".
PLACE_PREPOSITIONS = {
    "market": "at auf zu von",
    "station": "at an zu von",
    "beach": "at an zu von",
    "school": "at in zu aus",
    "church": "in in in aus",
}

# More groups, across those of NOUNS, for particular verbs and adjectives.
GROUPS = {
    "small-animal": "cat bird mouse rabbit duck dog monkey",
    "writing": "book letter poem report story novel",
    "cooked": "egg potato soup rice carrot sausage",
    "baked": "cake bread roll",
    "openable": "door window box suitcase bottle letter bag",
    "breakable": "glass plate cup bottle mirror",
    "repairable": "table chair clock door window guitar",
    "carried": "bag box suitcase table chair umbrella guitar",
    "built": "house ship boat school church",
    "room": "kitchen office house",
    "cleaned": "kitchen office window mirror table lamp",
    "sight": "picture castle church house garden ship",
    "ridden": "bus train",
    "toy": "ball dog cat rabbit",
    "vessel": "bottle glass plate cup box suitcase",
    "drawn": "flower house castle ship",
    "hot-drink": "tea coffee soup milk water",
    "sweet": "apple banana pear cake tea juice",
    "tip": "book novel story magazine wine cheese cake",
    "owned": "dog cat horse rabbit bird goat",
    "fed": "dog cat horse bird cow rabbit duck goat pig monkey elephant",
    "prey": "mouse bird rabbit duck",
    "colored": "umbrella flower box ball bag cup plate lamp chair door",
}

# One verb a line, by frame (the objects that it takes):
#
#     English | German | groups of its object, if it has one | groups of its subject,
#     unless these are people
#
# English: base form; past and participle, if irregular ("-" if spelled like the
#   present; that form is never used). "~" comes before a particle that an object
#   pronoun precedes (pick him up), "_" before any other particle or preposition. A
#   leading "=" marks a state (no progressive), "==" a lasting one (no adverb of time).
# German: infinitive ("+" after a separable prefix), third person, past, participle
#   ("*" if its auxiliary is sein).
VERBS = {
    "intransitive": """
        sleep slept slept | schlafen schläft schlief geschlafen | person animal
        laugh | lachen lacht lachte gelacht
        cry | weinen weint weinte geweint
        sing sang sung | singen singt sang gesungen
        dance | tanzen tanzt tanzte getanzt
        work | arbeiten arbeitet arbeitete gearbeitet
        play | spielen spielt spielte gespielt | person small-animal
        wait | warten wartet wartete gewartet
        run ran run | laufen läuft lief *gelaufen | person animal
        smile | lächeln lächelt lächelte gelächelt""",
    "intransitive, no place": """
        wake~up woke woken | auf+wachen wacht wachte *gewacht | person animal
        get~up got gotten | auf+stehen steht stand *gestanden
        fall~asleep fell fallen | ein+schlafen schläft schlief *geschlafen \
            | person animal
        arrive | an+kommen kommt kam *gekommen | person ridden
        come~back came come | zurück+kommen kommt kam *gekommen | person animal
        disappear | verschwinden verschwindet verschwand *verschwunden | person animal
        go~shopping went gone | ein+kaufen kauft kaufte gekauft""",
    "rest": """
        sit sat sat | sitzen sitzt saß gesessen | person animal
        =stay | bleiben bleibt blieb *geblieben
        =live | wohnen wohnt wohnte gewohnt""",
    "swim": """
        swim swam swum | schwimmen schwimmt schwamm *geschwommen | person animal""",
    "goal": """
        go went gone | gehen geht ging *gegangen
        drive drove driven | fahren fährt fuhr *gefahren
        hurry | eilen eilt eilte *geeilt""",
    "origin": """
        come came come | kommen kommt kam *gekommen""",
    "journey": """
        travel | reisen reist reiste *gereist
        fly flew flown | fliegen fliegt flog *geflogen""",
    "accusative": """
        =see saw seen | sehen sieht sah gesehen | person animal vehicle | person animal
        =hear heard heard | hören hört hörte gehört | person animal
        ==know knew known | kennen kennt kannte gekannt | person place writing
        ==love | lieben liebt liebte geliebt | person animal
        sell sold sold | verkaufen verkauft verkaufte verkauft \
            | text food clothes thing device vehicle
        read - read | lesen liest las gelesen | text
        eat ate eaten | essen isst aß gegessen | food
        eat ate eaten | fressen frisst fraß gefressen | food | animal
        drink drank drunk | trinken trinkt trank getrunken | drink
        =find found found | finden findet fand gefunden | thing clothes animal
        look_for | suchen sucht suchte gesucht | thing clothes animal person
        visit | besuchen besucht besuchte besucht | person
        meet met met | treffen trifft traf getroffen | person
        repair | reparieren repariert reparierte repariert | vehicle device repairable
        wash | waschen wäscht wusch gewaschen | clothes vehicle
        wear wore worn | tragen trägt trug getragen | clothes
        carry | tragen trägt trug getragen | carried
        open | öffnen öffnet öffnete geöffnet | openable
        close | schließen schließt schloss geschlossen | openable
        break broke broken | zerbrechen zerbricht zerbrach zerbrochen | breakable
        lose lost lost | verlieren verliert verlor verloren | thing clothes
        =forget forgot forgotten | vergessen vergisst vergaß vergessen \
            | thing clothes text
        =need | brauchen braucht brauchte gebraucht | thing clothes vehicle device
        =have had had | haben hat hatte gehabt | owned thing clothes vehicle
        clean | putzen putzt putzte geputzt | cleaned
        catch caught caught | fangen fängt fing gefangen | prey | person animal
        feed fed fed | füttern füttert fütterte gefüttert | fed
        steal stole stolen | stehlen stiehlt stahl gestohlen | thing clothes vehicle
        watch | beobachten beobachtet beobachtete beobachtet | person animal \
            | person animal
        greet | begrüßen begrüßt begrüßte begrüßt | person
        hide hid hidden | verstecken versteckt versteckte versteckt | thing clothes text
        kiss | küssen küsst küsste geküsst | person
        ==understand understood understood | verstehen versteht verstand verstanden \
            | text person
        describe | beschreiben beschreibt beschrieb beschrieben | person place
        call | an+rufen ruft rief gerufen | person
        invite | ein+laden lädt lud geladen | person
        pick~up | ab+holen holt holte geholt | person
        turn~on | ein+schalten schaltet schaltete geschaltet | device
        turn~off | aus+schalten schaltet schaltete geschaltet | device
        put~on - put | an+ziehen zieht zog gezogen | clothes
        take~off took taken | aus+ziehen zieht zog gezogen | clothes
        throw~away threw thrown | weg+werfen wirft warf geworfen | thing clothes text
        bring~along brought brought | mit+bringen bringt brachte gebracht | thing food
        look_at | an+sehen sieht sah gesehen | sight clothes animal
        clean~up | auf+räumen räumt räumte geräumt | room
        prepare | vor+bereiten bereitet bereitete bereitet | meal""",
    "accusative, for someone": """
        buy bought bought | kaufen kauft kaufte gekauft \
            | text food drink clothes thing device vehicle
        write wrote written | schreiben schreibt schrieb geschrieben | writing
        cook | kochen kocht kochte gekocht | cooked
        bake | backen backt backte gebacken | baked
        paint | malen malt malte gemalt | person animal
        draw drew drawn | zeichnen zeichnet zeichnete gezeichnet | drawn animal
        build built built | bauen baut baute gebaut | built""",
    "dative": """
        help | helfen hilft half geholfen | person
        thank | danken dankt dankte gedankt | person
        follow | folgen folgt folgte *gefolgt | person animal | person animal
        answer | antworten antwortet antwortete geantwortet | person
        ==trust | vertrauen vertraut vertraute vertraut | person
        congratulate | gratulieren gratuliert gratulierte gratuliert | person
        listen_to | zu+hören hört hörte gehört | person
        ==belong_to | gehören gehört gehörte gehört | person | thing clothes vehicle""",
    "ditransitive": """
        give gave given | geben gibt gab gegeben | text food clothes thing
        show showed shown | zeigen zeigt zeigte gezeigt \
            | text clothes thing animal vehicle
        send sent sent | schicken schickt schickte geschickt | text clothes thing
        lend lent lent | leihen leiht lieh geliehen | text clothes thing vehicle
        bring brought brought | bringen bringt brachte gebracht \
            | text food drink thing""",
    "ditransitive, to": """
        explain | erklären erklärt erklärte erklärt | writing
        recommend | empfehlen empfiehlt empfahl empfohlen | tip""",
    "clause": """
        ==know knew known | wissen weiß wusste gewusst
        ==think thought thought | glauben glaubt glaubte geglaubt
        say said said | sagen sagt sagte gesagt
        ==hope | hoffen hofft hoffte gehofft""",
}

# Verbs with a preposition of their own. Their subject is a person:
#
#     English | German | German preposition, its case | groups of its object
PREPOSITIONAL = """
    wait_for | warten wartet wartete gewartet | auf accusative | person ridden
    think_of thought | denken denkt dachte gedacht | an accusative | person place
    dream_of | träumen träumt träumte geträumt | von dative | person animal
    laugh_at | lachen lacht lachte gelacht | über accusative | person animal
    talk_to | sprechen spricht sprach gesprochen | mit dative | person
        talk_about | sprechen spricht sprach gesprochen | über accusative \
            | person text place
    play_with | spielen spielt spielte gespielt | mit dative | animal child"""

# English | German (and its stem before an ending, if irregular) | groups of the noun
ADJECTIVES = """
    old | alt | he she animal text clothes thing device vehicle place opening
    young | jung | he she animal
    small | klein | young animal clothes thing vehicle place opening
    big | groß | animal clothes thing vehicle place opening
    new | neu | text clothes thing device vehicle
    red | rot | clothes colored vehicle
    blue | blau | clothes colored vehicle
    green | grün | clothes colored vehicle
    yellow | gelb | clothes colored vehicle
    black | schwarz | clothes colored vehicle small-animal
    white | weiß | clothes colored vehicle small-animal
    brown | braun | clothes animal
    beautiful | schön | she clothes place thing
    friendly | freundlich | person
    tired | müde | person animal
    happy | glücklich | person
    sad | traurig | person
    famous | berühmt | he she
    poor | arm | person
    rich | reich | he she
    clever | klug | person animal
    brave | mutig | person
    sick | krank | person animal
    hungry | hungrig | person animal
    strong | stark | he animal
    lazy | faul | person animal
    wild | wild | animal
    dangerous | gefährlich | animal
    expensive | teuer teur | clothes thing device vehicle drink
    cheap | billig | clothes thing device vehicle
    heavy | schwer | carried
    interesting | interessant | text place
    long | lang | text
    short | kurz | text
    boring | langweilig | text
    fresh | frisch | food
    sweet | süß | sweet
    delicious | lecker | food
    cold | kalt | drink
    hot | heiß | hot-drink
    empty | leer | vessel
    fast | schnell | vehicle
    clean | sauber | clothes vessel
    dirty | schmutzig | clothes vehicle vessel opening"""

POSSESSIVES = ("my", "his", "her", "our", "their")
NAMES = {
    "he": "Peter Paul Martin Daniel Simon David",
    "she": "Anna Maria Julia Laura Sophie Emma",
}
# English : German
CITIES = (
    "Berlin : Berlin | Hamburg : Hamburg | Munich : München"
    " | Vienna : Wien | Cologne : Köln | Zurich : Zürich"
)
NUMERALS = (
    "two : zwei | three : drei | four : vier | five : fünf | six : sechs"
    " | seven : sieben | eight : acht | nine : neun | ten : zehn"
)

# Adverbs of time by the tense that they fit, English : German. Those of "middle" come
# before the English verb, the others at the end or the front of the clause.
ADVERBS = {
    "habit": "every day : jeden Tag | every evening : jeden Abend"
    " | on Sundays : sonntags | in the evening : am Abend | in the morning : am Morgen",
    "habit middle": "often : oft | always : immer | sometimes : manchmal",
    "now": "today : heute | now : jetzt | at the moment : im Moment",
    "past": "yesterday : gestern | last week : letzte Woche | last year : letztes Jahr"
    " | on Monday : am Montag",
    "perfect middle": "already : schon | just : gerade",
    "future": "tomorrow : morgen | next week : nächste Woche | soon : bald"
    " | on Friday : am Freitag",
}

# One modal verb a line:
#
#     English present (third person, others), past | German present (singular, plural),
#     past (singular, plural) | flags
#
# The flag "do": negated and asked with *do*, like a main verb. "deny": may be negated;
# *must* and *may* are not, because *must not* does not mean *muss nicht*.
MODALS = """
    can can could | kann können konnte konnten | deny
    must must had_to | muss müssen musste mussten |
    wants_to want_to wanted_to | will wollen wollte wollten | do deny
    should should - | sollte sollten - - | deny
    may may - | darf dürfen - - |
    would_like_to would_like_to - | möchte möchten - - |"""


class Noun(NamedTuple):
    """A noun in both languages; `singular`, `plural` and `genitive` are German."""

    english: str  # the singular, which also identifies the noun
    english_plural: str
    gender: str  # "m", "f", "n"
    singular: str
    plural: str  # "" for a mass noun
    genitive: str  # of the singular; "" where the grammar never needs one
    weak: bool  # takes -(e)n in all the singular but the nominative: den Jungen
    groups: frozenset[str]

    def german(self, number: str, case: str) -> str:
        """The German form for a number and a case."""
        if number == "plural":
            # The dative plural adds -n, except after -n and -s.
            bare = case != "dative" or self.plural[-1] in "ns"
            return self.plural if bare else self.plural + "n"
        if case == "genitive":
            return self.genitive
        return self.plural if self.weak and case != "nominative" else self.singular


class Adjective(NamedTuple):
    """An adjective in both languages."""

    english: str
    german: str  # as a predicate, without an ending: müde, teuer
    stem: str  # before an ending: müd-, teur-
    groups: frozenset[str]  # of the nouns that it may describe


class Verb(NamedTuple):
    """A verb in both languages, and what it goes with."""

    frame: str  # a key of VERBS, or "prepositional"
    english: dict[str, str]  # base, third, past (absent if unusable), participle, ing
    particle: str  # English: asleep, up, off ...
    particle_moves: bool  # picks him up, but: looks at him
    prefix: str  # German, separable: an-, auf- ...
    # infinitive, zu (infinitive with zu), first, third, plural, past, pasts (the plural
    # of the past), participle
    german: dict[str, str]
    auxiliary: str  # of the German perfect: "haben" or "sein"
    state: bool  # no progressive: sees
    lasting: bool  # and no adverb of time: not "today he knows her"
    subjects: frozenset[str]  # groups of nouns
    objects: frozenset[str]  # groups of nouns
    preposition: str  # German: auf, an ...
    case: str  # that the preposition governs


class Modal(NamedTuple):
    """A modal verb in both languages."""

    english: dict[str, tuple[str, ...]]  # third, others, past
    german: dict[str, str]  # third, plural, past, pasts (the plural of the past)
    do: bool  # is negated and asked with "do", like a main verb
    deny: bool  # may be negated


def rows(table: str) -> list[list[list[str]]]:
    """Reads a table of lines: the words of each column of each row."""
    return [
        [column.split() for column in line.split("|")]
        for line in table.strip().splitlines()
    ]


def entries(table: str) -> list[tuple[str, str]]:
    """Reads a table of entries "English : German" with bars between them."""
    pairs = (entry.split(":") for entry in table.split("|"))
    return [(english.strip(), german.strip()) for english, german in pairs]


def _s(word: str) -> str:
    """Adds the -s of the English plural or third person."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ies"
    return word + ("es" if word.endswith(("s", "sh", "ch", "x", "go")) else "s")


def _doubles(word: str) -> bool:
    """True if the last consonant doubles: running, but opening and waiting."""
    vowels = [letter in "aeiou" for letter in word]
    one_syllable = vowels[-3:] == [False, True, False] and sum(vowels) == 1
    return one_syllable and word[-1] not in "wy"


def _ed(word: str) -> str:
    """The regular English past."""
    if word.endswith("y") and word[-2] not in "aeiou":
        return word[:-1] + "ied"
    return word + ("d" if word.endswith("e") else "ed")


def _ing(word: str) -> str:
    """The English present participle."""
    if word.endswith("e") and not word.endswith("ee"):
        return word[:-1] + "ing"
    return word + (word[-1] if _doubles(word) else "") + "ing"


def _nouns() -> list[Noun]:
    """Parses NOUNS."""
    nouns = []
    for group, table in NOUNS.items():
        for english, german in entries(table):
            name, *irregular = english.split()
            article, singular, plural, *genitive = german.split()
            if group == "she":  # feminine nouns have one form in the singular
                genitive = [singular]
            groups = {group, name} | {g for g in GROUPS if name in GROUPS[g].split()}
            if group in ("he", "she", "young"):
                groups.add("person")
            gender = {"der": "m", "die": "f", "das": "n"}[article]
            nouns.append(
                Noun(
                    english=name,
                    english_plural=irregular[0] if irregular else _s(name),
                    gender=gender,
                    singular=singular,
                    plural=plural.strip("-"),
                    genitive="".join(genitive),
                    # der Junge, des Jungen, die Jungen: plural and genitive agree.
                    weak=gender == "m" and [plural] == genitive,
                    groups=frozenset(groups),
                )
            )
    return nouns


def _verb(frame, english, german, *groups, preposition=("", "")) -> Verb:
    """Parses a row of a table of verbs and derives the regular forms."""
    takes_object = frame.startswith(("accusative", "dative", "ditransitive", "prep"))
    objects, *subjects = groups if takes_object else ((), *groups)
    base, *irregular = english
    stative, base = base.count("="), base.lstrip("=")
    # A particle that starts with "~" after the partition is one that does not move.
    base, separator, particle = base.replace("_", "~~").partition("~")
    past, *participle = irregular or [_ed(base)]
    forms = {
        "base": base,
        "third": "has" if base == "have" else _s(base),
        "ing": _ing(base),
    }
    forms |= {"past": past, "participle": participle[0] if participle else past}
    infinitive, third, past, participle = german
    prefix, _, infinitive = infinitive.rpartition("+")
    # The first person is the stem with -e, but for these.
    first_person = {"lächeln": "lächle", "füttern": "füttere", "wissen": "weiß"}
    return Verb(
        frame=frame,
        english={name: form for name, form in forms.items() if form != "-"},
        particle=particle.lstrip("~"),
        particle_moves=bool(separator) and not particle.startswith("~"),
        prefix=prefix,
        german={
            "infinitive": prefix + infinitive,
            "zu": f"{prefix}zu{infinitive}" if prefix else f"zu {infinitive}",
            "first": first_person.get(infinitive, infinitive.removesuffix("en") + "e"),
            "third": third,
            "plural": infinitive,
            "past": past,
            "pasts": past + ("n" if past.endswith("e") else "en"),
            "participle": prefix + participle.lstrip("*"),
        },
        auxiliary="sein" if participle.startswith("*") else "haben",
        state=stative > 0,
        lasting=stative > 1,
        subjects=frozenset(subjects[0] if subjects else ["person"]),
        objects=frozenset(objects),
        preposition=preposition[0],
        case=preposition[1],
    )


def _modals() -> list[Modal]:
    """Parses MODALS; "_" stands for a space, "-" for a form that does not exist."""
    modals = []
    for english, german, flags in rows(MODALS):
        en = zip(("third", "others", "past"), english, strict=True)
        de = zip(("third", "plural", "past", "pasts"), german, strict=True)
        en = {name: tuple(form.split("_")) for name, form in en if form != "-"}
        de = {name: form for name, form in de if form != "-"}
        modals.append(Modal(en, de, do="do" in flags, deny="deny" in flags))
    return modals


nouns, modals = _nouns(), _modals()
adjectives = [
    Adjective(english, german, *(stem or [german.removesuffix("e")]), frozenset(groups))
    for (english,), (german, *stem), groups in rows(ADJECTIVES)
]
verbs = [_verb(frame, *row) for frame, table in VERBS.items() for row in rows(table)]
verbs += [
    _verb("prepositional", english, german, objects, preposition=preposition)
    for english, german, preposition, objects in rows(PREPOSITIONAL)
]
adverbs = {kind: entries(table) for kind, table in ADVERBS.items()}
cities, numerals = dict(entries(CITIES)), dict(entries(NUMERALS))
names = " ".join(NAMES.values()).split()
be = _verb("be", ["be"], ["sein", "ist", "war", "*gewesen"])
be.german.update(first="bin", plural="sind", pasts="waren")
haben = {"first": "habe", "third": "hat", "plural": "haben"}
werden = {"first": "werde", "third": "wird", "plural": "werden"}
