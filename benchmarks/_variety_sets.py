"""Small made-up memories of five sorts, each with questions whose answering message is known.

The talk is put together from parts by a fixed seed: many stretches of like form, so that the wrong ones are close,
and questions in other words than the answer's. Nothing is taken from a data set.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

UNRELATED = (
    "Write a haiku about submarines",
    "What is the capital of Mongolia?",
    "Explain the Krebs cycle",
    "Translate 'good evening' into Welsh",
    "Who won the chess world championship in 1972?",
    "How do volcanoes form?",
    "Give me a synonym for melancholy",
    "thanks, that helps!",
)


@dataclass
class Said:
    sender: str
    text: str
    role: str = "user"


@dataclass
class Set:
    """Sessions of messages (or single notes), and questions with the text that answers each."""

    name: str
    owner: str
    sessions: list[list[Said]] = field(default_factory=list)
    questions: list[tuple[str, str]] = field(default_factory=list)
    notes: bool = False

    def add(self, said: list[Said], *asked: tuple[str, int]) -> list[Said]:
        self.questions += [(question, said[place].text) for question, place in asked]
        return said


def _sessions(stretches: list[list[Said]], per_session: int) -> list[list[Said]]:
    return [
        list(itertools.chain.from_iterable(stretches[start : start + per_session]))
        for start in range(0, len(stretches), per_session)
    ]


def coding(seed: int = 1) -> Set:
    """Sessions of a developer and a coding agent: the agent's turns and tool output hold most answers."""
    pick = random.Random(seed)
    out = Set("coding agent", "dev")
    modules = (
        "billing/invoice", "auth/session_store", "search/tokenizer", "export/csv_writer", "queue/worker",
        "mail/templates", "api/rate_limit", "storage/s3_client", "web/upload_form", "jobs/nightly_cleanup",
        "cache/redis_pool", "report/pdf_render",
    )  # fmt: skip
    errors = (
        ("KeyError: 'tenant_id'", "the tenant was missing from the request context", "I read the tenant from the token in middleware"),
        ("TimeoutError after 30 s", "the connection pool was exhausted", "I raised the pool size to 20 and added a retry with backoff"),
        ("UnicodeDecodeError at byte 0xff", "the file was UTF-16 from Excel", "I detect the byte order mark before decoding"),
        ("AssertionError: 3 != 4", "an off-by-one in the pagination loop", "I made the upper bound inclusive"),
        ("PermissionError: [Errno 13]", "the container runs as uid 1001", "I chown the volume in the entrypoint"),
        ("sqlite3.OperationalError: database is locked", "two writers shared a file", "I switched to WAL and one writer thread"),
        ("ModuleNotFoundError: No module named 'yaml'", "PyYAML was only a dev dependency", "I moved it to the main group of pyproject.toml"),
        ("MemoryError while sorting", "the whole table was loaded at once", "I stream rows in chunks of 5000"),
    )  # fmt: skip
    stretches = []
    for number, module in enumerate(modules):
        for step in range(2):
            error, cause, fix = errors[(number * 3 + step * 5) % len(errors)]
            name = module.split("/")[1]
            line = pick.randrange(20, 400)
            said = [
                Said("dev", f"pytest fails in src/{module}.py, can you look?"),
                Said("agent", f"Let me run the tests.\n[tool call: bash `pytest tests/test_{name}.py -x`]", "assistant"),
                Said("agent", f"[tool result] src/{module}.py:{line}: {error}\n1 failed, {pick.randrange(3, 90)} passed in {pick.random() * 9:.2f}s", "assistant"),
                Said("agent", f"The cause in {name}: {cause}. {fix}, and all tests pass now.", "assistant"),
                Said("dev", pick.choice(["Great, commit it.", "Nice. Please push that.", "OK, thanks. Next one."])),
                Said("agent", f"Committed as {pick.randrange(16**7):07x}: fix {name.replace('_', ' ')}.", "assistant"),
            ]  # fmt: skip
            asked = (
                (f"Why did {name} fail with {error.split(':')[0].split()[0]}?", 3),
                (
                    f"How did we fix the {error.split(':')[0].split()[0]} problem in the {name.replace('_', ' ')}?",
                    3,
                ),
                (f"On which line of {module}.py was the {error.split(':')[0].split()[0]} raised?", 2),
            )
            stretches.append(out.add(said, asked[(number + step) % 3]))
    facts = (
        ("We deploy with `make release ENV=staging`, never by hand.", "What command releases to staging?"),
        ("Please always use tabs in Makefiles and 4 spaces in Python, the linter is ruff with line length 110.", "Which linter and line length do I want?"),
        ("The staging database lives at db-stage-2.internal:5433, user cairn_ro.", "What is the host and port of the staging database?"),
        ("Don't touch src/legacy/, Tomás is rewriting it until March.", "Who is rewriting the legacy folder?"),
        ("Our Node version is pinned to 20.11.1 because of the canvas package.", "Why is Node pinned and to which version?"),
    )  # fmt: skip
    for text, question in facts:
        said = [
            Said("dev", text),
            Said("agent", "Understood, I will keep to that.", "assistant"),
            Said("dev", f"Now rename `{pick.choice(['load_cfg', 'getUser', 'parseRow'])}` everywhere."),
            Said(
                "agent",
                f"[tool call: edit] {pick.randrange(3, 12)} files changed, no test broke.",
                "assistant",
            ),
        ]
        stretches.append(out.add(said, (question, 0)))
    pick.shuffle(stretches)
    out.sessions = _sessions(stretches, 3)
    return out


def assistant(seed: int = 2) -> Set:
    """One person and an assistant over months: plans change, and the newest word counts."""
    pick = random.Random(seed)
    out = Set("user and assistant", "maya")
    told = (
        ("I'm allergic to peanuts, so please never suggest satay.", "What food must I avoid?", "Noted: no peanuts, no satay."),
        ("My sister Lena moved from Graz to Porto in February.", "Where does my sister live now?", "Porto is lovely in spring."),
        ("I switched from the gym to bouldering twice a week, Tuesdays and Fridays.", "On which days do I climb?", "Bouldering is great for the back."),
        ("The dentist appointment got moved to the 14th at 8:30.", "When do I have to be at the dentist?", "I have moved the reminder."),
        ("My manager is now Priyanka, Oskar left the company.", "Who do I report to?", "Congratulations on the new team."),
        ("We decided to call the cat Biscuit after all.", "What is my pet's name?", "Biscuit is a fine name."),
        ("I finished reading The Dispossessed, best novel this year.", "Which book did I like most this year?", "Le Guin is wonderful."),
        ("I sold the Corolla and bought an electric bike instead.", "What did I do with my car?", "A bike suits the city."),
        ("My landlord raises the rent to 1,140 euros from May.", "How much will my flat cost from May on?", "That is a rise of six percent."),
        ("I prefer answers as short bullet points, no emojis.", "How do I like replies to be formatted?", "Will do."),
        ("The wifi password at the cabin is written under the router, the network is BlueHeron.", "What's the name of the wireless network at the cabin?", "Got it."),
        ("I'm learning Portuguese with a tutor named Rui on Thursdays.", "Who teaches me languages?", "Boa sorte!"),
        ("My blood pressure was 135 over 85 at the last check.", "What were my latest blood pressure values?", "Slightly high, keep an eye on it."),
        ("For mum's 70th birthday we rent the boathouse on 3 August.", "Where do we celebrate my mother's birthday?", "That sounds like a party."),
        ("I gave up coffee after the holidays, only green tea now.", "What do I drink in the morning?", "How is the headache?"),
        ("The router at home is a Fritzbox 7590 in the hallway closet.", "Which router model do I own?", "A solid device."),
    )  # fmt: skip
    advice = (
        ("Can you suggest a starter for eight guests?", "For eight guests I would make roasted beetroot with walnuts and goat cheese: 2 kg beetroot, oven at 200 degrees, 50 minutes.", "What oven temperature did you recommend for the beetroot?"),
        ("How should I prepare for the interview?", "Prepare three stories: the migration you led, the conflict with sales, and the outage in June; tell each in two minutes.", "Which three stories did you advise me to prepare for the job interview?"),
        ("Which tent would you take for Norway?", "I would take the Hilleberg Nallo 2: it stands in storms and weighs 2.4 kg.", "What tent did you recommend for the Norway trip?"),
        ("What did the contract say about notice?", "According to the contract you pasted, the notice period is three months to the end of a quarter.", "How long is my notice period?"),
        ("Can you make me a running plan?", "Week 1: three runs of 5 km at easy pace; week 2: add one interval session of 6 x 400 m.", "What does the second week of my training plan add?"),
        ("Explain why my sourdough is flat.", "Your starter is too young: feed it twice a day for a week, at 26 degrees, then try 75 percent hydration.", "How often should I feed the sourdough starter?"),
    )  # fmt: skip
    small = ("What's the weather like?", "Set a timer for ten minutes.", "Tell me something interesting.", "How are you today?",
             "Remind me to water the plants.", "Play some jazz.", "Summarise this page.", "What time is it in Tokyo?")  # fmt: skip
    stretches = []
    for text, question, reply in told:
        said = [Said("maya", text), Said("helper", reply, "assistant")]
        stretches.append(out.add(said, (question, 0)))
    for ask, answer, question in advice:
        said = [Said("maya", ask), Said("helper", answer, "assistant"), Said("maya", "Thanks, I'll do that.")]
        stretches.append(out.add(said, (question, 1)))
    for number in range(40):
        ask = pick.choice(small)
        stretches.append(
            [Said("maya", f"{ask} ({number})" if number % 5 == 0 else ask), Said("helper", pick.choice(["Sure.", "Done.", "It is sunny, 21 degrees.", "Here you go."]), "assistant")]
        )  # fmt: skip
    pick.shuffle(stretches)
    out.sessions = _sessions(stretches, 4)
    return out


def group(seed: int = 3) -> Set:
    """Six people in one channel; who said it is half of the question."""
    pick = random.Random(seed)
    people = ("Ana", "Boris", "Chen", "Dalia", "Emeka", "Freya")
    out = Set("group of six", "ana")
    plans = (
        ("I can drive, there is room for four in the van.", "Who offers to drive?"),
        (
            "I booked the hut for the 12th to the 14th, it has bunk beds.",
            "For which dates is the hut booked?",
        ),
        ("I'm vegetarian, so please count me out of the sausages.", "Who doesn't eat meat?"),
        ("I bring the projector and the long HDMI cable.", "Who takes care of the projector?"),
        ("My train gets in at 18:40, platform 9.", "At what time does {who}'s train arrive?"),
        ("I lost my tent poles last year, could someone lend me a tent?", "Who needs to borrow a tent?"),
    )
    work = (
        ("the landing page is translated into Dutch and Polish.", "Into which languages was the landing page translated?"),
        ("the invoice of the printer is still unpaid, 480 euros.", "How much is the open printer invoice?"),
        ("I talked to the city, the permit for the stand costs nothing.", "What did {who} find out about the permit?"),
        ("the flyers arrive on Wednesday, 2,000 pieces.", "How many flyers were ordered?"),
        ("our speaker from Nairobi cancelled, Wanjiru steps in.", "Who replaces the speaker who cancelled?"),
        ("I moved the budget sheet to the shared drive, folder finance-2.", "Where is the budget sheet now?"),
    )  # fmt: skip
    likes = ("old maps", "beekeeping", "salsa nights", "chess puzzles", "ceramics", "night photography")
    stretches = []
    for number, (text, question) in enumerate((*plans, *work)):
        who = people[number % 6]
        said = [Said(pick.choice(people), pick.choice(["Any news?", "Where are we with the plan?", "Morning all!"])), Said(who, text),
                Said(people[(number + 1) % 6], pick.choice(["Perfect.", "Cool, thank you!", "Good to know."]))]  # fmt: skip
        stretches.append(out.add(said, (question.format(who=who), 1)))
    for number, thing in enumerate(likes):
        who, other = people[number], people[(number + 2) % 6]
        said = [Said(other, f"What are you up to this weekend, {who}?"), Said(who, f"Mostly {thing}, I joined a club for it in {pick.choice(['May', 'June', 'April'])}."),
                Said(other, f"Oh, I never got into {likes[(number + 3) % 6]} like you into that.")]  # fmt: skip
        stretches.append(out.add(said, (f"What hobby did {who} join a club for?", 1)))
    for _ in range(60):
        who, other = pick.sample(people, 2)
        stretches.append([
            Said(who, pick.choice([f"{other}, did you see the game?", "Lunch at noon?", "My bus is late again.", "Who has the key?", f"Happy birthday {other}!"])),
            Said(other, pick.choice(["Yes!", "No idea, sorry.", "On my way.", "Haha, same here.", "Thanks a lot!"])),
        ])  # fmt: skip
    pick.shuffle(stretches)
    out.sessions = _sessions(stretches, 5)
    for session in out.sessions:  # a session belongs to those who speak in it
        session.append(Said("Ana", pick.choice(["Noted.", "OK, see you all.", "Right."])))
    return out


def tongues(seed: int = 4) -> Set:
    """The same sort of small talk in German, French, Russian and Chinese; asked in the same tongue."""
    pick = random.Random(seed)
    out = Set("four languages", "nina")
    lines = (
        ("Ich habe gestern die Wohnung in Leipzig gekündigt.", "Welche Wohnung habe ich gekündigt?"),
        ("Mein Bruder heiratet am 12. September in Görlitz.", "Wo heiratet mein Bruder?"),
        ("Der Steuerberater will die Unterlagen bis Freitag haben.", "Was will der Steuerberater?"),
        ("Unser Hund verträgt kein Getreide mehr.", "Was verträgt der Hund nicht?"),
        ("Die Waschmaschine ist kaputt, der Techniker kommt Montag.", "Wann kommt der Techniker für die Waschmaschine?"),
        ("Wir fahren im Sommer mit dem Nachtzug nach Zürich.", "Wohin fahren wir mit dem Nachtzug?"),
        ("J'ai acheté un vélo électrique pour aller au bureau.", "Qu'est-ce que j'ai acheté pour aller au bureau ?"),
        ("Ma fille est allergique aux œufs depuis l'été dernier.", "À quoi ma fille est-elle allergique ?"),
        ("Le rendez-vous chez le notaire est fixé au 3 mars.", "Quand est le rendez-vous chez le notaire ?"),
        ("Nous avons choisi l'école près de la forêt.", "Quelle école avons-nous choisie ?"),
        ("Mon voisin joue du violoncelle tous les soirs.", "Quel instrument joue mon voisin ?"),
        ("La réunion de chantier est reportée à jeudi.", "À quel jour la réunion de chantier est-elle reportée ?"),
        ("Я купил билеты в Казань на майские праздники.", "Куда я купил билеты?"),
        ("Моя бабушка живёт в деревне под Тверью.", "Где живёт моя бабушка?"),
        ("Ремонт кухни закончат к концу октября.", "Когда закончат ремонт кухни?"),
        ("Сын поступил на факультет биологии.", "На какой факультет поступил сын?"),
        ("Врач запретил мне есть сладкое.", "Что запретил врач?"),
        ("Мы назвали щенка Пиксель.", "Как мы назвали щенка?"),
        ("我上周搬到了杭州，离公司很近。", "我搬到了哪个城市？"),
        ("妹妹在学小提琴，每周三上课。", "妹妹在学什么乐器？"),
        ("医生让我每天走一万步。", "医生让我每天走多少步？"),
        ("我们订了十月去成都的机票。", "我们什么时候去成都？"),
        ("新车的保险由平安公司负责。", "车的保险是哪家公司？"),
        ("房东同意我们养猫了。", "房东同意了什么？"),
    )  # fmt: skip
    filler = ("Alles klar, bis später!", "Wie war dein Tag?", "Das Wetter ist heute schön.", "Ça va, et toi ?", "Il pleut encore.", "Bonne nuit !",
              "Как дела?", "Сегодня холодно.", "Увидимся вечером.", "今天天气不错。", "你吃饭了吗？", "晚安！", "Ich muss noch einkaufen.", "On se voit demain ?",
              "Я скоро буду дома.", "我在路上。")  # fmt: skip
    stretches = []
    for text, question in lines:
        said = [Said("nina", text), Said("helper", pick.choice(filler), "assistant")]
        stretches.append(out.add(said, (question, 0)))
    stretches += [
        [Said("nina", pick.choice(filler)), Said("helper", pick.choice(filler), "assistant")]
        for _ in range(60)
    ]
    pick.shuffle(stretches)
    out.sessions = _sessions(stretches, 4)
    return out


def notes(seed: int = 5) -> Set:
    """Notes without talk: entries written by hand or imported, one by one."""
    pick = random.Random(seed)
    out = Set("notes without talk", "otto", notes=True)
    things = (
        ("Bread: 500 g flour, 350 g water, 10 g salt, rise overnight in the fridge.", "How much salt goes into the bread?"),
        ("Passport expires in November 2027, renewal takes six weeks.", "When does my passport run out?"),
        ("Garden: the quince tree flowers mid April, prune it in February.", "When should the quince be cut?"),
        ("Car: winter tyres are stored at Müller's garage, shelf 14.", "Where are the winter tyres kept?"),
        ("Book idea: a lighthouse keeper who writes letters to ships.", "What was the idea about the lighthouse?"),
        ("Meeting with the architect: window frames in larch, not oak.", "Which wood did the architect choose for the windows?"),
        ("Server: nightly backup to rsync.net, keys in the safe, cron at 03:20.", "At what time does the backup run?"),
        ("Health: vitamin D 2000 IU from October to March.", "What dose of vitamin D do I take?"),
        ("Gift ideas for Jo: fountain pen, wool scarf, ticket for the aquarium.", "What could I give Jo as a present?"),
        ("Insurance number 48-221-907, call +49 351 99 12 for damage.", "What is my insurance number?"),
        ("Chess: against the Caro-Kann play the advance variation with h4.", "What do I play against the Caro-Kann?"),
        ("Hike from Krün to the Soiernhaus takes four hours, water at the spring.", "How long is the walk to the Soiernhaus?"),
        ("Thesis: reviewer two wants the ablation without pretraining.", "Which experiment does the second reviewer ask for?"),
        ("Kids: swimming lessons start on 5 May, bring the yellow card.", "What do the children need for swimming?"),
        ("Paint for the hallway is RAL 9010, half a bucket left in the cellar.", "What colour is the hallway painted in?"),
        ("Neighbour's spare key hangs behind the red coat.", "Where is the spare key of the neighbours?"),
        ("Piano tuner Herr Abel charges 110 euros, comes twice a year.", "What does tuning the piano cost?"),
        ("Wine: the 2019 Silvaner from Franconia was better than the Riesling.", "Which wine did I like better?"),
        ("Router config: VLAN 30 for the cameras, no internet.", "Which VLAN are the cameras on?"),
        ("Tax: home office 210 days in 2025, keep the list.", "How many home office days did I have in 2025?"),
    )  # fmt: skip
    out.sessions = [out.add([Said("otto", text)], (question, 0)) for text, question in things]
    subjects = (
        "Shopping",
        "Dream",
        "Weather",
        "Reading",
        "Walk",
        "Call with Mia",
        "Ideas",
        "Garden",
        "Car",
        "Server",
        "Kids",
        "Health",
    )
    bits = ("bought apples and soap", "cloudy with a little wind", "nothing new", "read twenty pages", "by the river, an hour", "talked about holidays",
            "sorted the shelf", "repaired the lamp", "slept badly", "watched the birds", "tidied the desk", "cooked soup")  # fmt: skip
    out.sessions += [
        [Said("otto", f"{pick.choice(subjects)}: {pick.choice(bits)}, {pick.choice(bits)} ({number}).")] for number in range(160)
    ]  # fmt: skip
    pick.shuffle(out.sessions)
    return out


def every() -> Iterator[Set]:
    yield from (coding(), assistant(), group(), tongues(), notes())
