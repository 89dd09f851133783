"""Silence: what is unrelated is not injected, in whatever language it is asked, and what answers still is."""

import pytest

import cairn
from cairn import config
from cairn.engines import minilm
from cairn.engines.embedders import MiniLM, _grasped
from cairn.retrieval.fitting import anew_of, beside, doubt_of, ease_of, fits_of, fits_of_kept
from cairn.retrieval.search import read_question
from cairn.types import Scope, Space
from tests.world import NOON, SearchWorld

np = pytest.importorskip("numpy")

# Notes, questions they answer (in their order), and what has nothing to do with them.
MEMORIES = {
    "en": (
        ["My daughter is allergic to peanuts.", "Our cat is called Mimi.", "The wifi password is on the fridge."],
        ["What is my daughter allergic to?", "What is our cat called?", "Where is the wifi password?"],
        ["Write a function that reverses a linked list", "What is the weather like tomorrow?", "Summarise the French revolution"],
    ),
    "de": (
        ["Meine Tochter ist allergisch gegen Erdnüsse.", "Unsere Katze heißt Mimi.", "Das WLAN-Passwort hängt am Kühlschrank."],
        ["Wogegen ist meine Tochter allergisch?", "Wie heißt unsere Katze?", "Wo hängt das WLAN-Passwort?"],
        ["Schreibe eine Funktion, die eine Liste umkehrt", "Wie wird das Wetter morgen?", "Fasse die Französische Revolution zusammen"],
    ),
    "fr": (
        ["Ma fille est allergique à l'arachide.", "Notre chat s'appelle Mimi.", "Le code d'entrée est sur le frigo.", "L'anniversaire d'Odile tombe en juin."],
        ["Qui est allergique aux noix ou à une arachide ?", "Comment s'appelle notre chat ?", "Où est le code pour l'entrée ?", "Quand tombe un anniversaire comme celui d’Odile ?"],
        ["Écris une fonction qui inverse une liste", "Quel temps fera-t-il demain ?", "Résume la Révolution française"],
    ),
    "ru": (
        ["У моей дочери аллергия на арахис.", "Нашу кошку зовут Мими.", "Пароль от вайфая висит на холодильнике."],
        ["На что у моей дочери аллергия?", "Как зовут нашу кошку?", "Где висит пароль от вайфая?"],
        ["Напиши функцию, которая переворачивает список", "Какая погода будет завтра?", "Кратко расскажи о французской революции"],
    ),
    "zh": (
        ["我女儿对花生过敏。", "我家的猫叫咪咪。", "无线网密码贴在冰箱上。"],
        ["我女儿对什么过敏？", "我家的猫叫什么？", "无线网密码在哪里？"],
        ["写一个反转链表的函数", "明天天气怎么样？", "总结一下法国大革命"],
    ),
    "ja": (
        ["娘はピーナッツアレルギーです。", "うちの猫の名前はミミです。", "無線のパスワードは冷蔵庫に貼ってあります。"],
        ["娘は何のアレルギーですか？", "猫の名前は何ですか？", "無線のパスワードはどこですか？"],
        ["リストを逆順にする関数を書いて", "明日の天気はどうですか？", "フランス革命を要約して"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("language", MEMORIES)
def test_unrelated_prompts_get_nothing_and_answerable_ones_their_answer(tmp_path, language):
    """One bar in every language: a model's nearness counts as far as it has words for the question."""
    folder = minilm.installed(config.models_dir())
    if folder is None or minilm.missing_packages():
        pytest.skip("the local model is not installed")
    notes, asked, unrelated = MEMORIES[language]
    world = SearchWorld(tmp_path, MiniLM(folder))
    for day, note in enumerate(notes, 1):
        world.say(f"s{day}", [("alice", note)], day=f"2026-05-0{day}")
    found = [world.ask(query, evidence=3, for_injection=True).evidence for query in asked]
    assert [item[0].text if item else "" for item in found] == notes
    for query in unrelated:
        result = world.ask(query, evidence=3, for_injection=True)
        assert not result.evidence, query
        assert not result.episodes, query
    world.close()


# A memory of one note: what it answers in other words than its own, by the person's name or by "I".
FIRST = {
    "alice": ("I moved to Lisbon last Friday", ["where does Alice live", "which city did Alice move to", "where did Alice move", "Where do I live?"]),
    "tom": ("I can't drink milk, I'm lactose intolerant.", ["What should Tom not drink?", "can I have dairy?", "do I have any intolerances?"]),
    "jonas": ("Ich bin letzten Freitag nach Bremen gezogen.", ["Wohin ist Jonas gezogen?", "In welche Stadt bin ich gezogen?", "Wo wohnt Jonas?"]),
    "lin": ("我对海鲜过敏。", ["我对什么过敏？", "我对海鲜过敏吗？"]),
}  # fmt: skip


@pytest.mark.parametrize("person", FIRST)
def test_the_first_note_of_a_memory_is_told(tmp_path, person):
    """Of one row the best is not good by chance: a new person sees their first note come back, and no junk."""
    folder = minilm.installed(config.models_dir())
    if folder is None or minilm.missing_packages():
        pytest.skip("the local model is not installed")
    note, asked = FIRST[person]
    world = SearchWorld(tmp_path, MiniLM(folder))
    scope = Scope(Space(), "user", person)
    world.say("s", [(person, note)], scope)
    for query in asked:
        found = world.ask(query, user_id=person, evidence=3, for_injection=True).evidence
        assert [item.text for item in found or ()] == [note], query
    for _, _, unrelated in MEMORIES.values():
        for query in unrelated:
            assert not world.ask(query, user_id=person, evidence=3, for_injection=True).evidence, query
    world.close()


def test_what_new_users_asked_first_comes_out_right(tmp_path):
    """One talk with a helper, one note of a person: a courtesy before the answer, a script the model cannot read."""
    folder = minilm.installed(config.models_dir())
    if folder is None or minilm.missing_packages():
        pytest.skip("the local model is not installed")
    world = SearchWorld(tmp_path, MiniLM(folder))
    bakery = "I run a bakery in Ghent and I hate raisins."
    ana = Scope(Space(), "user", "ana")
    world.say("s1", [("ana", "Hi there."), ("assistant", "Nice to meet you, Ana."), ("ana", bakery)], ana, roles={"assistant": "assistant"})  # fmt: skip
    for query in ("what does Ana do for a living", "what food does she dislike", "what do I hate"):
        assert world.ask(query, user_id="ana", evidence=3).evidence[0].text == bakery, query
    wei, note = Scope(Space(), "user", "wei"), "我对花生过敏。"
    world.say("s2", [("wei", note)], wei)
    world.say("s3", [("wei", "ฉันชอบกินข้าวผัด")], wei)
    asked = {"user_id": "wei", "evidence": 3}
    assert world.ask("伟对什么过敏", **asked).evidence[0].text == note
    assert not world.ask("ราคาทองวันนี้", **asked, for_injection=True).evidence
    world.close()


def test_the_bar_falls_with_the_number_of_rows_and_no_lower_for_what_is_asked_all_day():
    """The same row answers more surely among few; questions about nobody here get half of that, many rows nothing."""
    near, covered = np.array([0.3], np.float32), np.array([0.0], np.float32)
    fits = [fits_of(near, covered, ease=ease_of(rows, is_meant=True))[0] for rows in (1, 3, 10, 30, 80, 500)]
    assert fits == sorted(fits, reverse=True) and fits[0] > fits[-1] == fits[-2]
    assert ease_of(1, is_meant=False) == ease_of(1, is_meant=True) / 2
    foreign = fits_of(near, covered, trust=0.5, ease=ease_of(1, is_meant=True))
    assert foreign[0] == pytest.approx(fits_of(near, covered, trust=0.5)[0]), "half a language finds all near"


def test_what_was_said_is_believed_sooner_when_somebody_asks_about_themself():
    """In a memory of some weeks, by meaning and by words; not pairs of characters."""
    covered = np.array([0.3], np.float32)
    for near in (np.array([0.3], np.float32), None):
        assert fits_of(near, covered, anew=anew_of(40))[0] > fits_of(near, covered)[0]
    assert fits_of(None, covered, anew=anew_of(40), has_blanks=False)[0] == fits_of(None, covered)[0]
    assert anew_of(1) == anew_of(500) == 0


def test_one_s_own_words_of_weeks_ago_are_found_by_other_words(tmp_path):
    """Who asks about themself is told what shares a third of the words; whoever asks about anything is not."""
    world = SearchWorld(tmp_path)
    said = [
        f"The {bird} came back to the {place} today"
        for bird in ("heron", "stork", "crane")
        for place in ("pond", "roof")
    ]
    for number, text in enumerate([*said, "Rent is 1140 with heating"]):
        world.say(f"s{number}", [("alice", text)])
    ask = {"user_id": "alice", "evidence": 3, "for_injection": True, "method": "keyword"}
    told = world.ask("which rent do I transfer monthly", **ask).evidence
    assert [one.text for one in told] == ["Rent is 1140 with heating"]
    assert not world.ask("which rent do people transfer monthly", **ask).evidence
    world.close()


def test_work_that_is_for_anyoneed_needs_a_better_fit(tmp_path):
    """ "Write a haiku about the sea" asks nothing of a memory, unless it is about somebody here; by words and by meaning."""
    near, covered = np.array([0.35], np.float32), np.array([0.4], np.float32)
    for known in (near, None):
        assert fits_of(known, covered, is_for_anyone=True)[0] < fits_of(known, covered)[0]
    assert fits_of(np.array([0.8]), np.array([1.0], np.float32), is_for_anyone=True)[0] > 0.9
    world = SearchWorld(tmp_path)
    world.say("s1", [("maria", "The harbour was rough"), ("john", "So was the sea")])
    about = world.index.about(Scope(Space(), "user", "alice"))
    for query, is_for_anyone in (
        ("Write a haiku about the sea", True),
        ("Schreibe ein Gedicht über das Meer", True),
        ("海についての俳句を書いて", True),
        ("Write a letter to Maria", False),
        ("Draft an email to my landlord", False),
        ("Summarise the talk about the harbour", False),
        ("What is the sea like?", False),
        ("Suggest a name for a coffee shop", True),
        ("Give me five ideas for a party", True),
        ("How do I centre a div?", True),
        ("Wie kann ich Ameisen loswerden?", True),
        ("Comment nouer une cravate ?", True),
        ("Как завязать галстук?", True),
        ("怎么打领带？", True),
        ("ネクタイの結び方は？", True),
        ("Why is the sky blue?", True),
        ("How do I take my tea?", False),
        ("How do I like replies to be formatted?", False),
        ("Why did we leave the harbour?", False),
        ("Why is John late?", False),
        ("Tell me what she said about the sea", False),
    ):
        read = read_question(query, about, now=NOON)
        assert read.is_for_anyone is is_for_anyone, query
        assert not (is_for_anyone and read.is_meant), query
    world.close()


def test_a_question_about_nobody_here_in_words_that_nobody_said_needs_a_better_fit():
    """In a large memory something is near to anything: words that were never said here tell what was not meant for it."""
    near, covered = np.array([0.45], np.float32), np.array([0.2], np.float32)
    fits = [fits_of(near, covered, doubt=doubt_of(500, share))[0] for share in (0, 0.5, 1)]
    assert fits[0] > fits[1] > fits[2]
    assert doubt_of(1, 1.0) == 0, "one note holds few words"
    by_words = [fits_of(None, covered, doubt=doubt_of(500, share))[0] for share in (0, 1)]
    assert by_words[0] == by_words[1], "the share of words that are covered says it already"


def test_words_for_whatever_is_meant_do_not_count_as_asked(tmp_path):
    """ "Events held in Shanghai" asks for Shanghai: what answers calls each by its own name. Another city is not told."""
    world = SearchWorld(tmp_path)
    for number, note in enumerate(
        ("读书会的地点是上海。", "招聘会的地点是上海。", "音乐节的地点是成都。"), 1
    ):
        world.say(f"s{number}", [("alice", note)], day=f"2026-05-0{number}")
    asked = {"evidence": 3, "for_injection": True}
    told = world.ask("有几个活动都是在上海举行的呀？", **asked).evidence
    assert {item.text for item in told[:2]} == {"读书会的地点是上海。", "招聘会的地点是上海。"}
    assert not world.ask("有几个活动都是在北京举行的呀？", **asked).evidence
    world.close()


@pytest.mark.parametrize(
    ("note", "query", "plain"),
    [
        (
            "Die Hecke schneidet Herr Moll.",
            "Wer übernimmt künftig die Hecke?",
            "Wer ubernimmt kunftig die Hecke?",
        ),
        ("妈妈在协和医院做手术。", "妈妈医院开刀", "妈妈 医院 开刀"),
        ("Nous partons samedi en Bretagne.", "Où partons-nous ce samedi ?", "Où partons nous ce samedi ?"),
    ],
)
def test_each_word_of_a_question_counts_once(tmp_path, note, query, plain):
    """Not once more for its accents, for the hyphen in it, or for the end of one Chinese word beside the next one's beginning."""
    world = SearchWorld(tmp_path)
    world.say("s1", [("alice", note)])
    world.say("s2", [("alice", "Mimi: 42.")], day="2026-05-02")
    as_said, as_plain = (world.ask(one, evidence=1, method="keyword").evidence[0] for one in (query, plain))
    assert as_said.text == as_plain.text == note
    assert as_said.score == as_plain.score > 0
    world.close()


def test_a_long_prompt_counts_every_word_it_asks(tmp_path):
    """Of a prompt with more words than are looked for, those that nobody here said count as asked, too."""
    world = SearchWorld(tmp_path)
    note = "The harbour crane broke on Tuesday and the pilot waited for the spare rope"
    world.say("s1", [("maria", note)])
    world.say("s2", [("maria", "Lunch was soup")])
    unrelated = " ".join(f"parameter{n} overflowed{n}" for n in range(60))
    asked = {"evidence": 3, "for_injection": True}
    assert not world.ask(f"{unrelated} crane", **asked).evidence
    assert not world.ask(f"{unrelated} crane", **asked).episodes
    told = world.ask(" ".join(["crane pilot rope"] * 60), **asked).evidence
    assert [item.text for item in told] == [note], "the same words over and over are asked once"
    world.close()


def test_a_word_that_is_broken_up_is_not_grasped():
    """Letters count as known only in words that are one piece and not the unknown one."""
    text = "cat katze 猫"
    offsets = [(0, 3), (4, 6), (6, 9), (10, 11)]
    assert _grasped(text, ["cat", "ka", "##tze", "[UNK]"], [0, 1, 1, 2], offsets) == pytest.approx(3 / 9)
    assert _grasped("12 34", ["12", "34"], [0, 1], [(0, 2), (3, 5)]) == 1.0


def test_without_trust_only_words_count():
    """Nearness that is not believed neither lifts nor lowers a row."""
    near, covered = np.array([0.9, 0.0], np.float32), np.array([0.2, 0.6], np.float32)
    assert fits_of(near, covered, trust=0.0).tolist() == pytest.approx(fits_of(None, covered).tolist())
    assert fits_of(near, covered, trust=0.0)[0] < 0.2 < fits_of(near, covered, trust=0.0)[1]
    assert fits_of(near, covered, trust=1.0)[0] > 0.7


def kept(*near, rows=40, **more):
    """How surely governed memories of such cosines answer, where their pieces match accordingly."""
    cosine = np.array(near, np.float32)
    none = np.zeros(len(near), np.float32)
    lacking = np.array(more.pop("lacking", [False] * len(near)))
    return fits_of_kept(cosine, none, none, length=np.full(len(near), 12), rows=rows, lacking=lacking, **more)


def test_a_governed_memory_answers_if_it_stands_out() -> None:
    """The same nearness is enough where everything else is far, and not where others are as near or many are kept."""
    alone, among = kept(0.32, 0.1, 0.05)[0], kept(0.32, 0.31, 0.3)[0]
    assert alone > 0.35 > among
    assert kept(0.32, 0.1, 0.05, rows=400)[0] < alone < kept(0.32, 0.1, 0.05, rows=4)[0]
    assert kept(0.32, 0.1, 0.05, is_for_anyone=True)[0] < alone < kept(0.32, 0.1, 0.05, of_person=True)[0]
    assert kept(0.32, 0.1, 0.05, lacking=[True, False, False])[0] < 0.35, "asked how many, it tells no number"
    best, second, third = kept(0.6, 0.57, 0.2)
    assert second > beside(float(best), 0.35) > third, "two that answer together are told together"
    assert kept(0.7, rows=1)[0] > 0.9, "where only one is kept, it has to be near"
    assert kept(0.05, rows=1)[0] < 0.1


def test_a_governed_memory_without_a_vector_is_found_by_its_words(tmp_path) -> None:
    """What was just kept answers by its words until its vector is there, and a name or number by itself at any time."""
    with cairn.open_blocking(tmp_path, background=False) as memory:
        for text in (
            "The reconnect bug is HAL-881.",
            "Stand-up is at 9:15.",
            "Coffee is in the left drawer.",
        ):
            memory.remember(text)
        for _ in range(2):
            for query in ("HAL-881", "what is HAL-881?"):
                [item] = memory.recall(query).items
                assert "reconnect" in item.text
            memory.sync()
