"""What says otherwise than what is kept, and what only looks like it: one thing and one matter, or two."""

import pytest

from cairn.governed import gate
from cairn.types import Scope, Space
from tests.world import World

OTHERWISE = [
    ("The api server listens on port 8080.", "The api server listens on port 9090 now."),
    ("Use port 8080 for the gateway.", "Use port 9090 for the gateway."),
    ("The build uses Python 3.11 on CI.", "The build uses Python 3.12 on CI."),
    ("Backups run at two every night.", "Backups run at three every night."),
    ("Meeting room 3 has 20 seats.", "Meeting room 3 has 30 seats."),
    ("Database db0 keeps 4 GB of logs.", "Database db0 keeps 8 GB of logs."),
    ("The meeting starts at 10:30.", "The meeting starts at 11:30."),
    ("We deploy with make ship, never on Fridays.", "Deploy on Fridays is allowed now."),
    ("We use tabs in Makefiles.", "We don't use tabs in Makefiles."),
    ("The portal doesn't support paging.", "The portal supports paging."),
    ("I don't eat meat anymore.", "I have started eating meat again."),
    ("API v2 supports paging.", "API v2 does not support paging."),
    ("I live in Lisbon.", "I live in Porto."),
    ("Wir deployen nie freitags in Produktion.", "Wir deployen jetzt freitags in Produktion."),
    ("On ne déploie jamais le vendredi soir.", "On déploie maintenant le vendredi soir."),
    ("The cache keeps a page for 5 minutes.", "The cache keeps a page for 30 seconds, since the bug in May."),
    (
        "The support line is staffed from 7 to 22 o'clock.",
        "The support line is staffed from 6 to 20 o'clock.",
    ),
    ("The frontend builds with Node 18.", "The frontend builds with Node 20 now; the CI image is changed."),
    ("Der Cache hält Seiten 5 Minuten.", "Der Cache hält Seiten 2 Stunden."),
]
TWO_THINGS = [
    ("Database db0 uses Postgres for the orders.", "Database db1 uses Postgres for the orders."),
    ("Database db0 uses Postgres.", "Database db1 does not use Postgres."),
    ("Server alpha-1 listens on port 80.", "Server alpha-2 listens on port 80."),
    ("The steel door 3 stays locked.", "The steel door 4 stays locked."),
    ("Ticket 123 is closed.", "Ticket 124 is not closed."),
    ("Step 1 installs the tools.", "Step 2 installs the tools."),
    ("Version 2.1 supports paging.", "Version 2.2 supports paging."),
    ("API v1 does not support paging.", "API v2 supports paging."),
    ("Python 3.11 is supported on Windows.", "Python 3.12 is supported on Windows."),
    ("In 2023 we built with Jenkins.", "In 2024 we built with Jenkins."),
    ("On 3 May the mail server was down.", "On 4 May the mail server was not down."),
    ("Alice likes green tea.", "Bob does not like green tea."),
    ("Ann never eats raw fish.", "Tom eats raw fish."),
    (
        "The Berlin office on the second floor has 40 desks.",
        "The Paris office on the second floor has 60 desks.",
    ),
    ("The mail server in Berlin does not accept TLS.", "The mail server in Paris accepts TLS."),
    ("Do not edit generated files.", "Edit config files by hand."),
    ("Never deploy on Fridays.", "Deploy on Mondays after the standup."),
    ("The build does not need Docker on Linux.", "The build needs Docker on macOS."),
    ("Use port 8080 for the gateway.", "Never use port 9090 for the gateway."),
    ("Service auth-blue runs on rack 7.", "Service auth-green runs on rack 9."),
    ("Raum 3 hat einen Beamer.", "Raum 4 hat keinen Beamer."),
    ("Le serveur 1 écoute sur le port 80.", "Le serveur 2 écoute sur le port 80."),
    ("The office in Berlin opens at nine.", "The office in Berlin closes at five."),
    ("The hall holds 80 people, in Porto.", "The hall holds 90 people, in Lisbon."),
    ("The ferry to Hvar leaves at 8 and at 14.", "The ferry to Brac leaves at 9 and at 15."),
    ("The night job runs for 20 minutes.", "The backup of the archive runs for 3 hours."),
    ("Room 3 is open from 9 to 17.", "Room 4 is open from 10 to 18."),
]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("matter"))


def told(world, owner, first, then):
    """What `then` is said to contradict, after `first`, in a memory of its own."""
    scope = Scope(Space(), "user", owner)
    kept = world.keeper.remember(first, scope=scope)
    said = world.keeper.remember(then, scope=scope)
    assert kept.accepted and said.accepted and not said.deduped, (
        "two memories, whatever they say of each other"
    )
    return said.contradicts


@pytest.mark.parametrize("way", [1, -1])
def test_another_value_or_a_denial_of_one_thing_is_told(world, way):
    missed = [pair for n, pair in enumerate(OTHERWISE) if not told(world, f"yes{n}{way}", *pair[::way])]
    assert not missed


@pytest.mark.parametrize("way", [1, -1])
def test_what_is_said_of_another_thing_contradicts_nothing(world, way):
    wrong = [pair for n, pair in enumerate(TWO_THINGS) if told(world, f"no{n}{way}", *pair[::way])]
    assert not wrong


def test_a_list_of_like_things_contradicts_nothing_from_the_first(world):
    """Ten databases, each with its own engine: none says otherwise than another."""
    engines = ["Postgres", "MySQL", "SQLite", "DuckDB", "Redis"]
    for n in range(10):
        text = f"Database db{n} uses {engines[n % 5]} with {n + 2} replicas."
        assert world.keeper.remember(text).contradicts == ()
    assert gate.of_one_thing("db0 is slow", "db0 is fast")
