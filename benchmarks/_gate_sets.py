"""What a gate is tried on: small memories in six languages, questions they answer, and prompts that ask nothing of them.

The prompts are what people ask an assistant all day (general knowledge, code, chores); none of them is about the notes.
All of it was made up for this purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Memory:
    """Notes of one person, (question, number of the note that answers it) pairs, and prompts about other things."""

    notes: tuple[str, ...]
    questions: tuple[tuple[str, int], ...]
    unrelated: tuple[str, ...]


@dataclass(frozen=True)
class First:
    """What a new person says first: their name, and short notes with the questions each of them answers."""

    language: str
    name: str
    notes: tuple[tuple[str, tuple[str, ...]], ...]


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.strip().splitlines())


def _asked(text: str) -> tuple[tuple[str, int], ...]:
    return tuple((line, number) for number, line in enumerate(_lines(text)))


EVERY: Mapping[str, Memory] = {
    "en": Memory(
        _lines("""
        I moved to Leipzig in January.
        My daughter is allergic to peanuts.
        We deploy with make ship on Tuesdays.
        I drive a blue Skoda.
        My dentist appointment is on Friday at three.
        Our cat is called Mimi.
        I hate raisins in cake.
        The wifi password is on the fridge.
        My brother works as a nurse in Ghent.
        I started learning the cello last autumn.
        The staging database runs on port 5433.
        We are going to Norway in July with the tent.
        """),
        _asked("""
        Which city did I move to?
        What is my daughter allergic to?
        How do we deploy?
        What car do I drive?
        When is my dentist appointment?
        What is our cat called?
        What do I hate in cake?
        Where is the wifi password?
        What does my brother work as?
        Which instrument am I learning?
        Which port does the staging database use?
        Where are we going in July?
        """),
        _lines("""
        Write a function that reverses a linked list
        What is the capital of Australia?
        Explain how photosynthesis works
        Translate good morning into Spanish
        What is the weather like tomorrow?
        How many planets are there?
        Fix the type error in this TypeScript file
        Who won the world cup in 2014?
        Give me a recipe for pancakes
        Summarise the French revolution
        What is the difference between TCP and UDP?
        Make this paragraph sound friendlier
        How tall is the Eiffel tower?
        Refactor this class to use composition
        Why is the sky blue?
        Convert 30 miles to kilometres
        Suggest a name for a coffee shop
        What does the git rebase command do?
        Who wrote War and Peace?
        Explain the offside rule
        Draft an email to my landlord about the heating
        How do vaccines work?
        Add unit tests for the parser module
        What is the boiling point of ethanol?
        Play some jazz
        What are the symptoms of the flu?
        Is a tomato a fruit?
        Sort these numbers in descending order
        How do I centre a div?
        What is the plot of Hamlet?
        Set a timer for ten minutes
        Which country has the largest population?
        How does a combustion engine work?
        Write a haiku about the sea
        """),
    ),
    "de": Memory(
        _lines("""
        Ich bin im Januar nach Leipzig gezogen.
        Meine Tochter ist allergisch gegen Erdnüsse.
        Wir deployen dienstags mit make ship.
        Ich fahre einen blauen Skoda.
        Mein Zahnarzttermin ist am Freitag um drei.
        Unsere Katze heißt Mimi.
        Ich hasse Rosinen im Kuchen.
        Das WLAN-Passwort hängt am Kühlschrank.
        Mein Bruder arbeitet als Krankenpfleger in Gent.
        Ich habe im Herbst angefangen, Cello zu lernen.
        Die Testdatenbank läuft auf Port 5433.
        Im Juli fahren wir mit dem Zelt nach Norwegen.
        """),
        _asked("""
        Wohin bin ich im Januar gezogen?
        Wogegen ist meine Tochter allergisch?
        Wie deployen wir?
        Welchen Skoda fahre ich?
        Wann ist mein Zahnarzttermin?
        Wie heißt unsere Katze?
        Was hasse ich im Kuchen?
        Wo hängt das WLAN-Passwort?
        Als was arbeitet mein Bruder?
        Wann habe ich mit dem Cello angefangen?
        Auf welchem Port läuft die Testdatenbank?
        Wohin fahren wir im Juli mit dem Zelt?
        """),
        _lines("""
        Schreibe eine Funktion, die eine verkettete Liste umkehrt
        Was ist die Hauptstadt von Australien?
        Erkläre mir die Photosynthese
        Übersetze guten Morgen ins Spanische
        Wie wird das Wetter morgen?
        Wie viele Planeten gibt es?
        Behebe den Typfehler in dieser Datei
        Wer hat die Weltmeisterschaft 2014 gewonnen?
        Gib mir ein Rezept für Pfannkuchen
        Fasse die Französische Revolution zusammen
        Was ist der Unterschied zwischen TCP und UDP?
        Formuliere diesen Absatz freundlicher
        Wie hoch ist der Eiffelturm?
        Baue diese Klasse auf Komposition um
        Warum ist der Himmel blau?
        Rechne 30 Meilen in Kilometer um
        Schlag einen Namen für ein Café vor
        Was macht der Befehl git rebase?
        Wer schrieb Krieg und Frieden?
        Erkläre die Abseitsregel
        Entwirf eine E-Mail an den Vermieter wegen der Heizung
        Wie wirken Impfungen?
        Füge Tests für den Parser hinzu
        Wo liegt der Siedepunkt von Ethanol?
        Spiel etwas Jazz
        Welche Symptome hat eine Grippe?
        Ist die Tomate eine Frucht?
        Sortiere diese Zahlen absteigend
        Wie zentriere ich ein Element?
        Worum geht es in Hamlet?
        Stell einen Wecker auf zehn Minuten
        Welches Land hat die meisten Einwohner?
        Wie funktioniert ein Verbrennungsmotor?
        Schreibe ein Gedicht über das Meer
        """),
    ),
    "fr": Memory(
        _lines("""
        J'ai déménagé à Lyon en janvier.
        Ma fille est allergique aux cacahuètes.
        Nous déployons le mardi avec make ship.
        Je conduis une Skoda bleue.
        Mon rendez-vous chez le dentiste est vendredi à trois heures.
        Notre chat s'appelle Mimi.
        Je déteste les raisins secs dans les gâteaux.
        Le mot de passe du wifi est sur le frigo.
        Mon frère travaille comme infirmier à Gand.
        J'ai commencé le violoncelle cet automne.
        La base de test tourne sur le port 5433.
        En juillet nous partons en Norvège avec la tente.
        """),
        _asked("""
        Où ai-je déménagé en janvier ?
        À quoi ma fille est-elle allergique ?
        Comment déployons-nous ?
        Quelle Skoda je conduis ?
        Quand est mon rendez-vous chez le dentiste ?
        Comment s'appelle notre chat ?
        Qu'est-ce que je déteste dans les gâteaux ?
        Où est le mot de passe du wifi ?
        Mon frère travaille comme quoi ?
        Quand ai-je commencé le violoncelle ?
        Sur quel port tourne la base de test ?
        Où partons-nous en juillet avec la tente ?
        """),
        _lines("""
        Écris une fonction qui inverse une liste chaînée
        Quelle est la capitale de l'Australie ?
        Explique la photosynthèse
        Traduis bonjour en espagnol
        Quel temps fera-t-il demain ?
        Combien de planètes y a-t-il ?
        Corrige l'erreur de type dans ce fichier
        Qui a gagné la coupe du monde en 2014 ?
        Donne-moi une recette de crêpes
        Résume la Révolution française
        Quelle est la différence entre TCP et UDP ?
        Rends ce paragraphe plus aimable
        Quelle est la hauteur de la tour Eiffel ?
        Réécris cette classe avec de la composition
        Pourquoi le ciel est-il bleu ?
        Convertis 30 miles en kilomètres
        Propose un nom pour un café
        Que fait la commande git rebase ?
        Qui a écrit Guerre et Paix ?
        Explique la règle du hors-jeu
        Rédige un courriel au propriétaire à propos du chauffage
        Comment fonctionnent les vaccins ?
        Ajoute des tests pour l'analyseur
        Quel est le point d'ébullition de l'éthanol ?
        Mets un peu de jazz
        Quels sont les symptômes de la grippe ?
        La tomate est-elle un fruit ?
        Trie ces nombres par ordre décroissant
        Comment centrer un élément ?
        De quoi parle Hamlet ?
        Règle un minuteur sur dix minutes
        Quel pays a la plus grande population ?
        Comment marche un moteur à combustion ?
        Écris un poème sur la mer
        """),
    ),
    "ru": Memory(
        _lines("""
        Я переехал в Казань в январе.
        У моей дочери аллергия на арахис.
        Мы выкатываем по вторникам командой make ship.
        Я езжу на синей Шкоде.
        Приём у стоматолога в пятницу в три.
        Нашу кошку зовут Мими.
        Я ненавижу изюм в пирогах.
        Пароль от вайфая висит на холодильнике.
        Мой брат работает медбратом в Генте.
        Осенью я начал учиться играть на виолончели.
        Тестовая база работает на порту 5433.
        В июле мы едем с палаткой в Норвегию.
        """),
        _asked("""
        Куда я переехал в январе?
        На что у моей дочери аллергия?
        Какой командой мы выкатываем?
        На какой Шкоде я езжу?
        Когда приём у стоматолога?
        Как зовут нашу кошку?
        Что я ненавижу в пирогах?
        Где висит пароль от вайфая?
        Кем работает мой брат?
        Когда я начал играть на виолончели?
        На каком порту работает тестовая база?
        Куда мы едем с палаткой в июле?
        """),
        _lines("""
        Напиши функцию, которая переворачивает связный список
        Какая столица Австралии?
        Объясни, как работает фотосинтез
        Переведи доброе утро на испанский
        Какая погода будет завтра?
        Сколько планет существует?
        Исправь ошибку типов в этом файле
        Кто выиграл чемпионат мира в 2014?
        Дай рецепт блинов
        Кратко расскажи о французской революции
        В чём разница между TCP и UDP?
        Сделай этот абзац дружелюбнее
        Какова высота Эйфелевой башни?
        Перепиши этот класс через композицию
        Почему небо голубое?
        Переведи 30 миль в километры
        Придумай название для кофейни
        Что делает команда git rebase?
        Кто написал Войну и мир?
        Объясни правило офсайда
        Составь письмо хозяину квартиры об отоплении
        Как действуют прививки?
        Добавь тесты для разбора
        Какая температура кипения этанола?
        Включи джаз
        Какие симптомы у гриппа?
        Помидор это фрукт?
        Отсортируй эти числа по убыванию
        Как отцентрировать элемент?
        О чём Гамлет?
        Поставь таймер на десять минут
        В какой стране больше всего населения?
        Как устроен двигатель внутреннего сгорания?
        Напиши стихи о море
        """),
    ),
    "zh": Memory(
        _lines("""
        我一月搬到了成都。
        我女儿对花生过敏。
        我们每周二用make ship部署。
        我开一辆蓝色的斯柯达。
        我的牙医预约在周五三点。
        我家的猫叫咪咪。
        我讨厌蛋糕里的葡萄干。
        无线网密码贴在冰箱上。
        我哥哥在根特当护士。
        我去年秋天开始学大提琴。
        测试数据库用的是5433端口。
        七月我们带帐篷去挪威。
        """),
        _asked("""
        我一月搬到哪里了？
        我女儿对什么过敏？
        我们用什么部署？
        我开什么颜色的斯柯达？
        牙医预约是什么时候？
        我家的猫叫什么？
        我讨厌蛋糕里的什么？
        无线网密码贴在哪里？
        我哥哥当什么？
        我什么时候开始学大提琴？
        测试数据库用哪个端口？
        七月我们带帐篷去哪里？
        """),
        _lines("""
        写一个反转链表的函数
        澳大利亚的首都是哪里？
        解释光合作用的原理
        把早上好翻译成西班牙语
        明天天气怎么样？
        太阳系有多少颗行星？
        修复这个文件里的类型错误
        2014年世界杯谁赢了？
        给我一个煎饼的食谱
        总结一下法国大革命
        TCP和UDP有什么区别？
        把这段话改得更友好
        埃菲尔铁塔有多高？
        用组合重构这个类
        为什么天空是蓝色的？
        把30英里换算成公里
        给咖啡店起个名字
        git rebase命令是做什么的？
        战争与和平是谁写的？
        解释越位规则
        写一封邮件给房东谈暖气
        疫苗是怎么起作用的？
        给解析器加上单元测试
        乙醇的沸点是多少？
        放一点爵士乐
        流感有哪些症状？
        番茄是水果吗？
        把这些数字从大到小排序
        怎么让元素居中？
        哈姆雷特讲的是什么？
        设一个十分钟的闹钟
        哪个国家人口最多？
        内燃机是怎么工作的？
        写一首关于大海的诗
        """),
    ),
    "ja": Memory(
        _lines("""
        一月に札幌へ引っ越しました。
        娘はピーナッツアレルギーです。
        毎週火曜日にmake shipでデプロイします。
        青いシュコダに乗っています。
        歯医者の予約は金曜日の三時です。
        うちの猫の名前はミミです。
        ケーキのレーズンが嫌いです。
        無線のパスワードは冷蔵庫に貼ってあります。
        兄はゲントで看護師をしています。
        去年の秋にチェロを習い始めました。
        テスト用データベースはポート5433で動いています。
        七月にテントを持ってノルウェーへ行きます。
        """),
        _asked("""
        一月にどこへ引っ越しましたか？
        娘は何のアレルギーですか？
        どうやってデプロイしますか？
        どんなシュコダに乗っていますか？
        歯医者の予約はいつですか？
        うちの猫の名前は何ですか？
        ケーキの何が嫌いですか？
        無線のパスワードはどこに貼ってありますか？
        兄はゲントで何をしていますか？
        いつチェロを習い始めましたか？
        データベースのポートは何番ですか？
        七月にテントを持ってどこへ行きますか？
        """),
        _lines("""
        連結リストを逆順にする関数を書いて
        オーストラリアの首都はどこですか？
        光合成の仕組みを説明してください
        おはようをスペイン語に翻訳して
        明日の天気はどうですか？
        惑星はいくつありますか？
        このファイルの型エラーを直して
        2014年のワールドカップは誰が勝ちましたか？
        パンケーキのレシピを教えて
        フランス革命を要約して
        TCPとUDPの違いは何ですか？
        この段落をもっと親しみやすくして
        エッフェル塔の高さはどれくらいですか？
        このクラスを合成で書き直して
        空はなぜ青いのですか？
        30マイルをキロメートルに換算して
        喫茶店の店名を考えて
        git rebaseコマンドは何をしますか？
        戦争と平和を書いたのは誰ですか？
        オフサイドのルールを説明して
        暖房について大家さんにメールを書いて
        ワクチンはどう働きますか？
        パーサーの単体テストを追加して
        エタノールの沸点は何度ですか？
        ジャズをかけて
        インフルエンザの症状は何ですか？
        トマトは果物ですか？
        これらの数字を降順に並べて
        要素を中央に揃えるには？
        ハムレットのあらすじは？
        十分のタイマーをかけて
        人口が一番多い国はどこですか？
        内燃機関の仕組みは？
        海についての俳句を書いて
        """),
    ),
}


def _first(language: str, name: str, text: str) -> First:
    """One note a line, with what it answers behind bars."""
    parts = [line.split(" | ") for line in _lines(text)]
    return First(language, name, tuple((note, tuple(asked)) for note, *asked in parts))


# The first minutes of a memory: a handful of notes, asked for in other words than they were said in.
FIRST: tuple[First, ...] = (
    _first(
        "en",
        "Alice",
        """
        I moved to Lisbon last Friday | where does Alice live | which city did Alice move to | where did Alice move | where do I live?
        I work as a nurse at the children's hospital. | What does Alice do for a living? | where do I work? | what is my job
        My dog is called Rufus and he is four. | What is the name of Alice's dog? | what pet does Alice have | how old is Rufus?
        I'm allergic to shellfish. | What can't Alice eat? | do I have any allergies? | which food should I avoid
        I prefer tea over coffee. | What does Alice like to drink? | what should I order for Alice at the café
        My sister Joan is getting married in June. | When is Joan's wedding? | who is getting married? | what happens in June
        I play the violin in an amateur orchestra. | Which instrument does Alice play? | what are my hobbies?
        My car broke down yesterday, it's an old Volvo. | What car does Alice drive? | what happened to my car?
        We use PostgreSQL 16 in production, and SQLite in the tests. | Which database do we run in production? | what do the tests use for storage
        My flight to Boston leaves on Tuesday at 7:40. | When do I fly to Boston? | what time is Alice's plane
        The spare key is under the blue flowerpot. | Where is the spare key? | how do I get into the house without my key
        I have two kids, Ben and Maya. | What are the names of Alice's children? | how many children does Alice have
        I'm reading The Name of the Rose at the moment. | Which book is Alice reading? | what am I reading
        Please always answer me in British English. | How should replies to Alice be written? | which spelling do I want
        My boss is called Henrik, he sits in Oslo. | Who is Alice's manager? | where does Henrik work
        I failed my driving test again. | Did Alice pass the driving exam? | how did my driving test go
        """,
    ),
    _first(
        "en",
        "Tom",
        """
        I just bought a house in Leeds with my wife. | where does Tom live | is Tom married? | which town did I buy a house in
        I teach chemistry at a secondary school. | What is Tom's profession? | which subject do I teach
        We adopted a black cat from the shelter, she's called Pixel. | Does Tom have pets? | what is the name of my cat
        I can't drink milk, I'm lactose intolerant. | What should Tom not drink? | can I have dairy?
        I run ten kilometres every Sunday. | How does Tom stay fit? | what do I do on Sundays?
        My brother Luke moved to New Zealand two years ago. | Where is Luke? | where does Tom's brother live
        Our team meets every Wednesday at ten in room 4. | When is the team meeting? | where do we meet
        I'd rather get short answers without bullet points. | How does Tom like answers? | should replies to me be long?
        The build fails on Windows because of path separators. | Why is the Windows build broken? | what goes wrong on Windows
        I lost my passport in Madrid. | What did Tom lose? | where did I lose my passport
        My daughter starts school in September. | When does Tom's daughter go to school? | what is new for my child this autumn
        I'm learning Japanese with an app. | Which language is Tom learning? | what am I studying
        The API key rotates on the first of each month. | When is the API key changed? | how often do we rotate the key
        My favourite film is Spirited Away. | What movie does Tom like best? | which film do I love
        I had knee surgery in March and still can't run. | What operation did Tom have? | why can't I run
        My landlord is Mrs Okafor, her number is on the fridge. | Who does Tom rent from? | who is my landlord
        """,
    ),
    _first(
        "de",
        "Jonas",
        """
        Ich bin letzten Freitag nach Bremen gezogen. | Wohin ist Jonas gezogen? | In welche Stadt bin ich gezogen? | Wo wohnt Jonas?
        Ich arbeite als Lehrer an einer Grundschule. | Als was arbeitet Jonas? | Was ist mein Beruf?
        Mein Hund heißt Balu. | Wie heißt der Hund von Jonas? | Wie heißt mein Hund?
        Ich vertrage keine Nüsse. | Was verträgt Jonas nicht? | Welche Lebensmittel soll ich meiden?
        Unsere Sitzung ist jeden Montag um neun. | Wann ist unsere Sitzung? | Was ist montags?
        Der Ersatzschlüssel liegt unter der Matte. | Wo liegt der Ersatzschlüssel? | Wo finde ich den Schlüssel?
        Meine Schwester heiratet im Juni. | Wer heiratet im Juni? | Wann heiratet meine Schwester?
        Ich trinke lieber Tee als Kaffee. | Was trinkt Jonas lieber? | Mag ich Kaffee?
        """,
    ),
    _first(
        "fr",
        "Claire",
        """
        J'ai déménagé à Nantes vendredi dernier. | Où Claire a-t-elle déménagé ? | Où est-ce que j'habite ?
        Je travaille comme infirmière à l'hôpital. | Où travaille Claire ? | Quel est mon métier ?
        Mon chien s'appelle Biscotte. | Comment s'appelle mon chien ? | Quel est le nom du chien de Claire ?
        Je suis allergique aux fruits de mer. | À quoi Claire est-elle allergique ? | Qu'est-ce que je ne dois pas manger ?
        La réunion d'équipe a lieu le mardi à dix heures. | Quand a lieu la réunion d'équipe ? | Que fait-on le mardi ?
        La clé de secours est sous le pot de fleurs. | Où est la clé de secours ? | Où se trouve la clé ?
        Ma sœur se marie en juin. | Quand se marie ma sœur ? | Qui se marie en juin ?
        Je préfère le thé au café. | Que préfère Claire boire ? | Est-ce que je préfère le thé ?
        """,
    ),
    _first(
        "zh",
        "小林",
        """
        我上周五搬到了杭州。 | 小林搬到哪里了？ | 我搬到哪个城市了？ | 我住在哪里？
        我在一家儿童医院当护士。 | 小林在哪里工作？ | 我的工作是什么？ | 我在哪家医院？
        我的狗叫旺财。 | 小林的狗叫什么？ | 我的狗叫什么名字？
        我对海鲜过敏。 | 小林对什么过敏？ | 我不能吃什么？
        每周三上午十点开团队会议。 | 团队会议什么时候开？ | 周三有什么安排？
        备用钥匙在花盆下面。 | 备用钥匙在哪里？ | 钥匙放在哪儿？
        我妹妹六月结婚。 | 妹妹什么时候结婚？ | 谁六月结婚？
        我喜欢喝茶，不喜欢咖啡。 | 小林喜欢喝什么？ | 我喜欢咖啡吗？
        """,
    ),
    _first(
        "ru",
        "Анна",
        """
        В прошлую пятницу я переехала в Казань. | Куда переехала Анна? | В какой город я переехала?
        Я работаю медсестрой в детской больнице. | Где работает Анна? | Кем я работаю?
        Мою собаку зовут Рекс. | Как зовут мою собаку? | Как зовут собаку Анны?
        У меня аллергия на морепродукты. | На что у Анны аллергия? | Какая у меня аллергия?
        Собрание команды каждую среду в десять. | Когда собрание команды? | Что у нас в среду?
        Запасной ключ лежит под ковриком. | Где лежит запасной ключ? | Где ключ?
        Моя сестра выходит замуж в июне. | Когда сестра выходит замуж? | Кто выходит замуж?
        Я больше люблю чай, чем кофе. | Что больше любит Анна, чай или кофе? | Люблю ли я кофе?
        """,
    ),
    _first(
        "ja",
        "健太",
        """
        先週の金曜日に福岡へ引っ越しました。 | 健太はどこに引っ越しましたか？ | 私はどの街に引っ越しましたか？
        小児病院で看護師として働いています。 | 健太はどこで働いていますか？ | 私の仕事は何ですか？
        犬の名前はポチです。 | 犬の名前は何ですか？ | 健太の犬の名前は？
        えびアレルギーがあります。 | 何のアレルギーがありますか？ | 健太は何のアレルギーですか？
        チーム会議は毎週水曜日の十時です。 | チーム会議はいつですか？ | 水曜日に何がありますか？
        予備の鍵は植木鉢の下にあります。 | 予備の鍵はどこですか？ | 鍵はどこにありますか？
        妹は六月に結婚します。 | 妹はいつ結婚しますか？ | 誰が六月に結婚しますか？
        コーヒーより紅茶が好きです。 | 健太は何が好きですか？ | 紅茶とコーヒーのどちらが好きですか？
        """,
    ),
)
