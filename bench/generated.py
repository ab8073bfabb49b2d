"""
A made-up company's notes, with questions: what ranking and confidence are fitted on.

Nothing here comes from a benchmark: other things, other relations, other sentences. The kinds of question are the ones that
tell rankings apart: a fact of a named thing, two notes joined by a link, a description in other words, the current value of
something that changed, a thing that does not exist, and a fact that nobody wrote down.
"""

from __future__ import annotations

import datetime
import json
import random
from dataclasses import dataclass, field
from pathlib import Path

PURPOSES = [
    ("sends parcels labels to the label printers in the depots", "get address stickers onto boxes in the warehouses"),
    ("retries card payments that the bank declined", "try charging a customer again after their bank said no"),
    ("merges duplicate customer records", "turn two entries about the same buyer into one"),
    ("predicts when a delivery van needs new brakes", "tell before a vehicle's stopping parts wear out"),
    ("compresses surveillance video after thirty days", "shrink old security camera footage once a month has gone by"),
    ("translates product descriptions into nine languages", "let foreigners read what an item is about"),
    ("blocks logins from stolen passwords", "keep out people who sign in with leaked credentials"),
    ("assigns night shifts among the pharmacists", "decide who in the dispensary works while others sleep"),
    ("reads meter photographs taken by tenants", "turn pictures of utility dials into consumption figures"),
    ("answers routine tax questions of freelancers", "help the self-employed with what they owe the state"),
    ("routes ambulances around road works", "steer emergency vehicles past construction sites"),
    ("archives signed contracts for ten years", "store agreements with signatures for a decade"),
    ("estimates the ripeness of stored bananas", "judge how yellow the fruit in the cold room has become"),
    ("plans which trains are cleaned where", "choose the yard in which carriages get washed"),
    ("warns growers of night frost", "alert farmers that it will freeze before morning"),
    ("matches lost luggage to passengers", "reunite travellers with suitcases that went astray"),
    ("renders floor plans from laser scans", "draw the layout of rooms out of point measurements"),
    ("detects fake reviews of restaurants", "spot invented praise about places to eat"),
    ("schedules lifeguards on the beaches", "work out who watches swimmers and when"),
    ("calculates pensions of former miners", "figure out what retired colliery workers are paid"),
    ("cleans up abandoned shopping baskets", "tidy away purchases that people never finished"),
    ("checks medicine doses for children", "verify that what a young patient is given is not too much"),
    ("transcribes council meetings", "put what the aldermen said into writing"),
    ("balances water pressure across the districts", "even out how hard the taps run in different quarters"),
    ("groups similar support tickets", "put complaints about the same trouble together"),
    ("ranks apprentices' applications", "order the young people who want to be trained"),
    ("converts old microfilm into searchable text", "make tiny photographed newspapers findable by word"),
    ("reserves rehearsal rooms for orchestras", "book space in which musicians can practise"),
    ("monitors the temperature of vaccine freezers", "watch whether the jabs stay cold enough"),
    ("distributes leftover bread to charities", "give unsold loaves to those in need"),
]
FIRST = "Amara Bodhi Cleo Dario Esme Farid Gwen Hamish Ilse Jorik Keziah Lorcan Mirela Nils Odette Pavel Quinn Rosalba Stellan Tindra Ursula Viggo Wanda Xavi".split()  # noqa: E501
LAST = "Abernethy Bergstrom Castellano Dubrovsky Eriksen Fairweather Galvani Hollander Iwanowski Jankovic Kovalenko Lindholm Moreau Nakagawa Oduya Pettersen Quillfeather Rosenthal Szabo Thackeray".split()  # noqa: E501
SERVICES = "Anvil Beacon Cobalt Driftwood Ember Falcon Glacier Hornet Indigo Juniper Kelpie Lantern Mangrove Nimbus Onyx Parsnip Quartz Rhubarb Sextant Tamarind Umbra Vellum Walrus Xylem Yarrow Zephyr Bramblewick Copperfield Dovetail Evergreen".split()  # noqa: E501
SQUADS = "Atlas Borealis Cassini Dynamo Equinox Fermata Gauntlet Halcyon".split()
OFFICES = ["Aldermoor", "Brightwater", "Corrigan Bay", "Dunmere", "Eastleigh Park", "Fenwick", "Glasshouse Lane"]
STORES = "Aquarium Bucketeer Cellarium Deepwell Estuary Filament Granary Hayloft Inkwell Jetty".split()
LANGUAGES = ["Python", "Kotlin", "Elixir", "Ruby", "TypeScript", "C#", "Perl", "Swift", "Go", "Rust"]
HOBBIES = [
    "keeps bees",
    "restores typewriters",
    "rows at dawn",
    "collects tram tickets",
    "bakes sourdough",
    "sings alto",
]
DEGREES = ["physics", "linguistics", "architecture", "marine biology", "economics", "philosophy"]
PORTS = [7011, 7023, 7039, 7051, 7068, 7074, 7082, 7097, 7110, 7125, 7133, 7142, 7156, 7163, 7178, 7189]
WORD_OF = {"requests per second": "rate limit", "euros a month": "hosting budget", "days of retention": "retention"}
FILLER = [
    "The on-call rota is kept in the shared calendar and reviewed every quarter.",
    "Most of the discussion was about the budget and who should write the summary.",
    "There is a longer write-up in the drive, but this page is kept up to date.",
    "Remember that dashboards lag by a few minutes after each deployment.",
    "Nobody objected, and the minutes were circulated the next morning.",
    "Ask in the channel before changing anything here.",
    "This was migrated from the old wiki and lightly edited.",
    "See the glossary for the abbreviations that are used below.",
]
UNKNOWN_PEOPLE = [
    "Barnaby Ostrowski",
    "Calista Ferreira",
    "Dagny Whitlock",
    "Ezra Montague",
    "Fiona Drummond",
    "Leif Amundsen",
]
UNKNOWN_SERVICES = ["Gravel", "Hazelnut", "Ibex", "Jackdaw", "Kumquat", "Obelisk"]


@dataclass
class Made:
    """A folder of notes and the questions about them, in the form of the benchmarks' questions.jsonl."""

    notes: dict[str, str] = field(default_factory=dict)
    questions: list[dict[str, object]] = field(default_factory=list)

    def ask(self, cls: str, question: str, answers: list[str], support: list[str]) -> None:
        self.questions.append(
            {
                "id": f"g{len(self.questions):04d}",
                "cls": cls,
                "question": question,
                "answers": answers,
                "support": support,
            }
        )

    def write(self, folder: Path) -> None:
        (folder / "vault").mkdir(parents=True, exist_ok=True)
        for name, text in self.notes.items():
            (folder / "vault" / f"{name}.md").write_text(text, encoding="utf-8")
        with (folder / "questions.jsonl").open("w", encoding="utf-8") as out:
            out.writelines(json.dumps(question) + "\n" for question in self.questions)


def make(seed: int) -> Made:
    """About 170 notes and 200 questions. The same seed gives the same bytes."""
    world = _World(random.Random(seed))
    world.people_notes()
    world.squad_notes()
    world.service_notes()
    world.decision_notes()
    world.other_notes()
    world.ask_all()
    return world.made


class _World:
    def __init__(self, random_: random.Random) -> None:
        self.random = random_
        self.made = Made()
        pairs = [(first, last) for first in FIRST for last in LAST]
        self.people = [f"{first} {last}" for first, last in random_.sample(pairs, 44)]
        self.services = random_.sample(SERVICES, 22)
        purposes = random_.sample(PURPOSES, len(PURPOSES))
        self.purpose = dict(zip(self.services, purposes, strict=False))
        self.unserved = purposes[len(self.services) :]
        self.squad_of_service = {service: random_.choice(SQUADS) for service in self.services}
        self.store_of = {service: random_.choice(STORES) for service in self.services}
        self.lead = dict(zip(SQUADS, random_.sample(self.people, len(SQUADS)), strict=True))
        self.office = {squad: random_.choice(OFFICES) for squad in SQUADS}
        self.squad_of = {person: random_.choice(SQUADS) for person in self.people}
        self.language = {service: random_.choice(LANGUAGES) for service in self.services}
        self.store_language = {store: random_.choice(LANGUAGES) for store in STORES}
        self.port = {service: random_.choice(PORTS) for service in self.services}
        self.degree = {person: random_.choice(DEGREES) for person in self.people}
        self.hired = {person: random_.randint(2009, 2024) for person in self.people}
        self.owner = {service: random_.choice(self.people) for service in self.services}
        self.backups: dict[str, list[str]] = {}
        self.changed: list[tuple[str, str, str, str, str]] = []

    def note(self, name: str, title: str, kind: str, date: str, body: str, extra: str = "") -> None:
        self.made.notes[name] = (
            f'---\ntitle: "{title}"\ntype: {kind}\ndate: {date}\n{extra}---\n\n# {title}\n\n{body}\n'
        )

    def filler(self, share: float = 0.5) -> str:
        return f" {self.random.choice(FILLER)}" if self.random.random() < share else ""

    def people_notes(self) -> None:
        for person in self.people:
            squad = self.squad_of[person]
            parts = [
                f"{person} is an engineer in the [[squad-{slug(squad)}|{squad}]] squad.",
                f"Hired in {self.hired[person]}, after studying {self.degree[person]}.",
            ]
            if self.random.random() < 0.5:
                parts.append(f"In the evenings {person.split()[0]} {self.random.choice(HOBBIES)}.")
            owned = [service for service in self.services if self.owner[service] == person]
            if owned:
                parts.append("Product owner of " + ", ".join(f"[[svc-{slug(s)}|{s}]]" for s in owned) + ".")
            self.note(
                f"who-{slug(person)}", person, "person", f"{self.hired[person]}-03-01", " ".join(parts) + self.filler()
            )

    def squad_notes(self) -> None:
        for squad in SQUADS:
            members = [person for person in self.people if self.squad_of[person] == squad]
            services = [service for service in self.services if self.squad_of_service[service] == squad]
            body = (
                f"The {squad} squad sits in [[office-{slug(self.office[squad])}|{self.office[squad]}]] and reports to "
                f"[[who-{slug(self.lead[squad])}|{self.lead[squad]}]].{self.filler()}\n\n"
                f"Runs {', '.join(f'[[svc-{slug(s)}|{s}]]' for s in services) or 'nothing yet'}.\n\n"
                f"People: {', '.join(f'[[who-{slug(p)}|{p}]]' for p in members)}."
            )
            self.note(f"squad-{slug(squad)}", f"{squad} squad", "squad", "2022-02-01", body)
        for number, office in enumerate(OFFICES):
            body = f"{office} has {20 + 7 * number} seats and opened in {1999 + 3 * number}.{self.filler()}"
            self.note(f"office-{slug(office)}", office, "office", "2020-01-01", body)

    def service_notes(self) -> None:
        for service in self.services:
            squad, store = self.squad_of_service[service], self.store_of[service]
            body = (
                f"{service} {self.purpose[service][0]}. It is operated by the [[squad-{slug(squad)}|{squad}]] squad.\n\n"
                f"{service} is implemented in {self.language[service]} and keeps its data in "
                f"[[store-{slug(store)}|{store}]].{self.filler()} It listens on port {self.port[service]}."
            )
            self.note(f"svc-{slug(service)}", service, "service", "2023-05-01", body)
        for store in STORES:
            filler, every = self.filler(), self.random.choice(("night", "hour", "Sunday", "six hours"))
            body = f"{store} was written in {self.store_language[store]}.{filler} Backups of {store} run every {every}."
            self.backups[store] = [every]
            self.note(f"store-{slug(store)}", store, "store", "2021-08-01", body)

    def decision_notes(self) -> None:
        day = datetime.date(2024, 1, 9)
        for service in self.random.sample(self.services, 11):
            first, second = self.random.sample(range(20, 400, 10), 2)
            unit = self.random.choice(list(WORD_OF))
            word = {
                "requests per second": "rate limit",
                "euros a month": "hosting budget",
                "days of retention": "retention",
            }[unit]
            later = day + datetime.timedelta(days=self.random.randint(90, 300))
            old, new = f"adr-{day}-{slug(service)}-{slug(word)}", f"adr-{later}-{slug(service)}-{slug(word)}"
            link = f"[[svc-{slug(service)}|{service}]]"
            self.note(
                old, f"{service} {word} ({day})", "decision", str(day),
                f"We agreed on a {word} of {first} {unit} for {link}.{self.filler()}",
                f'status: superseded\nsuperseded_by: "[[{new}]]"\n',
            )  # fmt: skip
            self.note(
                new, f"{service} {word} ({later})", "decision", str(later),
                f"The {word} of {link} is raised to {second} {unit}; this takes the place of [[{old}|what we agreed before]]."
                f"{self.filler()}",
                "status: current\n",
            )  # fmt: skip
            self.changed.append((service, word, f"{first} {unit}", f"{second} {unit}", f"{old} {new}"))
            day += datetime.timedelta(days=self.random.randint(5, 40))

    def other_notes(self) -> None:
        day = datetime.date(2024, 3, 1)
        for number in range(30):
            people = self.random.sample(self.people, 3)
            services = self.random.sample(self.services, 3)
            body = (
                f"With {', '.join(f'[[who-{slug(p)}|{p}]]' for p in people)}.\n\n"
                f"- {people[0]} is worried about [[svc-{slug(services[0])}|{services[0]}]] before the holidays.\n"
                f"- Could [[svc-{slug(services[1])}|{services[1]}]] use [[store-{slug(STORES[number % 10])}|"
                f"{STORES[number % 10]}]]?\n- {self.random.choice(FILLER)}\n"
                f"- Postponed: [[svc-{slug(services[2])}|{services[2]}]]."
            )
            squad = self.random.choice(SQUADS)
            self.note(f"weekly-{day}-{slug(squad)}", f"{squad} weekly {day}", "meeting", str(day), body)
            day += datetime.timedelta(days=7)
        body = "\n".join(f"- [[svc-{slug(service)}|{service}]]" for service in self.services)
        self.note("start", "Start here", "index", "2024-01-01", body)

    def ask_all(self) -> None:
        ask, pick = self.made.ask, self.random.sample
        for person in pick(self.people, 14):
            who = f"who-{slug(person)}"
            ask("fact", self.either(f"When was {person} hired?", f"Since what year has {person} been with the company?"),
                [str(self.hired[person])], [who])  # fmt: skip
            ask("fact", self.either(f"What did {person} study?", f"Which subject does {person} have a degree in?"),
                [self.degree[person]], [who])  # fmt: skip
        for service in pick(self.services, 10):
            note = f"svc-{slug(service)}"
            ask("fact", self.either(f"Which port does {service} use?", f"On what port can I reach {service}?"),
                [str(self.port[service])], [note])  # fmt: skip
            ask("fact", self.either(f"What programming language is {service} in?", f"{service} implementation language"),
                [self.language[service]], [note])  # fmt: skip
        for person in pick(self.people, 12):
            squad = self.squad_of[person]
            ask("bridge", self.either(f"Where does the squad of {person} sit?", f"In which office is {person}'s squad?"),
                [self.office[squad]], [f"who-{slug(person)}", f"squad-{slug(squad)}"])  # fmt: skip
        for service in pick(self.services, 12):
            squad, store = self.squad_of_service[service], self.store_of[service]
            ask("bridge", self.either(f"Who does the squad that operates {service} report to?",
                                      f"Who is the boss of the people running {service}?"),
                [self.lead[squad]], [f"svc-{slug(service)}", f"squad-{slug(squad)}"])  # fmt: skip
            ask("bridge", f"What language is the store behind {service} written in?", [self.store_language[store]],
                [f"svc-{slug(service)}", f"store-{slug(store)}"])  # fmt: skip
        for service in self.services:
            other = self.purpose[service][1]
            ask("paraphrase", self.either(f"What do we have to {other}?", f"Which service is there to {other}?"),
                [service], [f"svc-{slug(service)}"])  # fmt: skip
        for service in pick(self.services, 16):
            other, squad, store = self.purpose[service][1], self.squad_of_service[service], self.store_of[service]
            if self.random.random() < 0.5:
                ask("paraphrase_bridge", f"In which office sits the squad whose service is there to {other}?",
                    [self.office[squad]], [f"svc-{slug(service)}", f"squad-{slug(squad)}"])  # fmt: skip
            else:
                ask("paraphrase_bridge", f"What language was the store written in that "
                    f"holds the data of the service made to {other}?",
                    [self.store_language[store]], [f"svc-{slug(service)}", f"store-{slug(store)}"])  # fmt: skip
        for service, word, first, second, names in self.changed:
            old, new = names.split()
            ask("temporal", self.either(f"What is the current {word} of {service}?", f"What {word} does {service} have now?"),
                [second], [new])  # fmt: skip
            ask("temporal", f"What was the original {word} of {service}?", [first], [old])
        for person in UNKNOWN_PEOPLE:
            ask("absent_entity", self.either(f"When was {person} hired?", f"Where does {person}'s squad sit?"), [], [])
        for service in UNKNOWN_SERVICES:
            ask(
                "absent_entity",
                self.either(f"Which port does {service} use?", f"Who is the product owner of {service}?"),
                [],
                [],
            )
        for person in pick(self.people, 10):
            ask("absent_attribute", self.random.choice((
                f"What is {person}'s shoe size?", f"Where did {person} spend the last holiday?", f"How much does {person} earn?",
                f"What is the name of {person}'s dog?", f"Which blood group does {person} have?",
            )), [], [])  # fmt: skip
        for _, other in self.unserved:
            ask(
                "absent_topic",
                self.either(f"What do we have to {other}?", f"Which service is there to {other}?"),
                [],
                [],
            )
        known = {service for service, *_ in self.changed}
        for service in pick(sorted(set(self.services) - known), 8):
            ask("absent_attribute", self.random.choice((
                f"What is the rate limit of {service}?", f"What is the current hosting budget of {service}?",
                f"Which certificate authority does {service} trust?", f"How many lines of code has {service}?",
                f"Who wrote the first version of {service}?",
            )), [], [])  # fmt: skip
        self.ask_more()

    def ask_more(self) -> None:
        """Facts of other kinds, and more kinds of facts that nobody wrote down: what is known must not be told by its words."""
        ask, pick = self.made.ask, self.random.sample
        for number, office in enumerate(OFFICES):
            note = f"office-{slug(office)}"
            ask("fact", self.either(f"How many people can work in {office}?", f"How many seats are there at {office}?"),
                [str(20 + 7 * number)], [note])  # fmt: skip
            ask("fact", self.either(f"When was {office} opened?", f"Opening year of {office}?"),
                [str(1999 + 3 * number)], [note])  # fmt: skip
            ask("absent_attribute", self.random.choice((
                f"What rent is paid for {office}?", f"Who cleans {office}?", f"Is there a canteen at {office}?",
                f"Which bus goes to {office}?", f"What is the wifi password at {office}?", f"On what floor is {office}?",
            )), [], [])  # fmt: skip
        for store in STORES:
            ask("fact", self.either(f"How often is {store} backed up?", f"When do the backups of {store} run?"),
                self.backups[store], [f"store-{slug(store)}"])  # fmt: skip
            ask("absent_attribute", self.random.choice((
                f"How many terabytes does {store} hold?", f"Which encryption does {store} use?",
                f"Who designed the schema of {store}?", f"What was the last outage of {store}?",
                f"Which vendor sells {store}?", f"How many replicas has {store}?",
            )), [], [])  # fmt: skip
        for person in pick(self.people, 12):
            who, squad = f"who-{slug(person)}", self.squad_of[person]
            ask("fact", self.either(f"Which squad is {person} in?", f"{person}: what squad?"), [squad], [who])
            ask("absent_attribute", self.random.choice((
                f"What is {person}'s home address?", f"How tall is {person}?", f"When is {person}'s birthday?",
                f"Which car does {person} drive?", f"What did {person} say about the merger?",
                f"Whom did {person} marry?", f"Which languages does {person} speak?", f"Where was {person} born?",
            )), [], [])  # fmt: skip
        for squad in SQUADS:
            note = f"squad-{slug(squad)}"
            ask("fact", self.either(f"Whom does the {squad} squad report to?", f"Who is the boss of the {squad} squad?"),
                [self.lead[squad]], [note])  # fmt: skip
            ask("absent_attribute", self.random.choice((
                f"What is the annual goal of the {squad} squad?", f"When does the {squad} squad hold its retrospective?",
                f"What is the mascot of the {squad} squad?", f"How much may the {squad} squad spend on travel?",
            )), [], [])  # fmt: skip

    def either(self, *options: str) -> str:
        return self.random.choice(options)


def slug(text: str) -> str:
    return text.lower().replace(" ", "-")
