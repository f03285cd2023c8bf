"""Words of each language: those that hold sentences together and those that carry their subject, most frequent first.

Real words only; `text.py` makes up the rest of the vocabulary from the letters of these.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Words:
    """`function` and `content` are written with spaces between the words; `joiner` is what the language puts there."""

    function: str
    content: str
    joiner: str = " "
    comma: str = ","
    stop: str = "."


WORDS = {
    "en": Words(
        "the of and to a in that is for it with as was on be by at this have from or are but not they which an "
        "had his her we you their one all there been if more when who will would can no what so up out about into "
        "than them some could its only other then these two may first any like over such our after also most "
        "before where much through between because how each while should under never still those both might again "
        "without",
        "time people year way day man world life hand part child place work week case point government company "
        "number group problem fact water room mother area money story month lot right study book eye job word "
        "business issue side kind head house service friend father power hour game line end member law car city "
        "community name president team minute idea body information back parent face others level office door "
        "health person art war history party result change morning reason research girl guy moment air teacher "
        "force education foot boy age policy music market sense nation plan college interest death experience "
        "effect use class control field development role effort rate heart drug show leader light voice wife "
        "police mind price report decision son view relationship town road arm difference value building action "
        "season society tax director position player record paper space ground form event official matter center "
        "couple site project activity star table need court oil situation cost industry figure street image phone "
        "data picture practice piece land product doctor wall patient worker news test movie north love letter "
        "river summer window garden kitchen bridge village mountain weather letter station harbour forest machine "
        "engine wheel farmer bread flour stone make take come see know get give find think tell become leave feel "
        "put bring begin keep hold write stand hear let mean set meet run pay sit speak lie lead read grow lose "
        "fall send build understand draw break spend cut rise drive buy wear choose made taken came seen knew "
        "given found thought told became left felt brought began kept held written stood heard met paid spoken "
        "led grown lost fallen sent built understood drawn broken looking working talking walking waiting making "
        "living moving turning following playing helping good new old great high small large young different long "
        "little important public bad able early human local late hard major better economic strong possible whole "
        "free military true federal international full special easy clear recent certain personal open red "
        "difficult available likely short single medical current wrong private past foreign fine common poor "
        "natural significant similar hot dead central happy serious ready simple often usually quickly slowly "
        "already perhaps almost together however always sometimes really probably",
    ),
    "de": Words(
        "die der und in zu den das nicht von sie ist des sich mit dem dass er es ein ich auf so eine auch als an "
        "nach wie im für man aber aus durch wenn nur war noch werden bei hat wir was wird sein einen welche sind "
        "oder zur um haben einer mir über ihm diese einem ihr uns da zum kann doch vor dieser mich ihn du hatte "
        "seine mehr am denn nun unter sehr selbst schon hier bis habe ihre dann ihnen seiner alle wieder meine "
        "gegen vom ganz wo muss",
        "Zeit Jahr Mensch Leben Tag Mann Frau Kind Welt Haus Land Stadt Arbeit Frage Hand Auge Wasser Weg Straße "
        "Ende Teil Abend Morgen Nacht Woche Monat Schule Buch Wort Sprache Geschichte Grund Recht Gesellschaft "
        "Regierung Unternehmen Markt Preis Geld Wirtschaft Entwicklung Gemeinde Verein Mitglied Freund Familie "
        "Mutter Vater Bruder Schwester Zimmer Tür Fenster Garten Fluss Brücke Berg Wald Dorf Mühle Müller Mehl "
        "Brot Korn Wetter Regen Sonne Winter Sommer Frühling Herbst Maschine Forschung Wissenschaft Ergebnis "
        "Beispiel Möglichkeit Entscheidung Veränderung Bedeutung Erfahrung Verbindung Zeitung Nachricht Bürger "
        "Behörde Prüfung Größe Höhe machen gehen kommen sehen wissen lassen geben finden denken sagen stehen "
        "bleiben liegen nehmen bringen halten führen sprechen schreiben lesen arbeiten beginnen zeigen spielen "
        "brauchen folgen lernen verstehen setzen bekommen erzählen versuchen erklären entsprechen schließen "
        "gehören treffen erreichen gewinnen verlieren gemacht gegangen gekommen gesehen gesagt gefunden geworden "
        "geblieben genommen gebracht gehalten geschrieben gut groß klein neu alt jung lang kurz hoch weit stark "
        "schwach schön schwer leicht richtig falsch wichtig möglich deutlich einfach früh spät offen frei ruhig "
        "warm kalt ganze letzten ersten großen kleinen neuen alten deutschen anderen verschiedene öffentlichen "
        "politischen wirtschaftlichen immer heute gestern morgen oft manchmal vielleicht natürlich jedoch deshalb "
        "außerdem trotzdem bereits ungefähr während zwischen",
    ),
    "fr": Words(
        "de la le et les des en un une du que est pour qui dans a par plus pas au sur ne se ce il sont la avec "
        "son ou aux ses mais comme on tout nous sa été cette elle fait leur deux si être même ces sans ils peut "
        "entre aussi était très où dont ont encore après autres vous je bien avait leurs quand depuis contre sous "
        "moins donc cela d'une qu'il n'est c'est l'on d'un s'est jusqu'à lorsque toujours ainsi notre avant chez "
        "car alors",
        "temps année homme femme jour vie monde pays ville maison enfant travail main eau question chose heure "
        "point fois moment place partie groupe problème cas raison droit nombre histoire guerre gouvernement "
        "société entreprise marché prix argent école livre mot langue idée exemple projet résultat recherche "
        "service état politique économie développement président directeur membre famille père mère frère sœur "
        "ami porte fenêtre jardin rivière pont montagne forêt village moulin meunier farine pain blé pluie soleil "
        "hiver été automne printemps matin soir nuit semaine mois rue route voiture train lumière voix regard "
        "corps cœur tête esprit l'eau l'homme l'année l'histoire l'école l'entreprise l'enfant d'abord l'état "
        "l'idée d'autres qu'elle faire dire aller voir savoir pouvoir vouloir venir prendre trouver donner parler "
        "mettre passer rester tenir porter demander croire laisser rendre entendre comprendre attendre écrire "
        "lire ouvrir suivre vivre sortir perdre commencer finir devenir montrer chercher arriver entrer répondre "
        "reçu pris mis vu dit venu parti grand petit nouveau bon beau vieux jeune long court haut premier dernier "
        "français européen national international public social économique important difficile simple possible "
        "nécessaire général local certain seul grande petite nouvelle bonne première dernière française "
        "européenne publique sociale beaucoup souvent parfois jamais peut-être maintenant aujourd'hui hier demain "
        "cependant notamment déjà presque ensemble",
    ),
    "es": Words(
        "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha me si "
        "sin sobre este ya entre cuando todo esta ser son dos también fue había era muy años hasta desde está mi "
        "porque qué sólo han yo hay vez puede todos así nos ni parte tiene él uno donde bien tiempo mismo ese "
        "ahora cada e otro después te otros aunque esa eso hace otra gobierno tan durante siempre día tanto ella",
        "año tiempo vida mundo casa día hombre mujer niño país ciudad trabajo agua mano parte lugar problema "
        "momento forma caso historia guerra gobierno empresa mercado precio dinero escuela libro palabra lengua "
        "idea ejemplo proyecto resultado investigación servicio estado política economía desarrollo presidente "
        "director miembro familia padre madre hermano hermana amigo puerta ventana jardín río puente montaña "
        "bosque pueblo molino molinero harina pan trigo lluvia sol invierno verano otoño primavera mañana tarde "
        "noche semana mes calle camino coche tren luz voz mirada cuerpo corazón cabeza razón derecho número grupo "
        "nivel población región información educación situación relación acción atención decisión opinión "
        "producción sociedad universidad hacer decir ir ver saber poder querer venir tomar encontrar dar hablar "
        "poner pasar quedar tener llevar pedir creer dejar entender esperar escribir leer abrir seguir vivir "
        "salir perder empezar terminar llegar mostrar buscar entrar responder recibir hecho dicho visto puesto "
        "tomado llegado pasado dado hablado escrito grande pequeño nuevo bueno viejo joven largo corto alto "
        "primero último español europeo nacional internacional público social económico importante difícil simple "
        "posible necesario general local cierto solo pequeña nueva buena primera última española europea pública "
        "mucho poco nunca quizá hoy ayer además todavía entonces mientras según casi juntos algunos muchas señor "
        "años allí aquí también",
    ),
    "pl": Words(
        "w i na z się do nie to jest że o jak po od za przez co ale czy tym dla są tego przy już był tylko jego "
        "może oraz jej ich ze była było być tak które który która go także lub pod bardzo nad jako aby gdy ma we "
        "jeszcze kiedy można więc bez również między ja my on ona oni mnie nas sobie ten ta te tej gdzie ponieważ "
        "jednak",
        "czas rok człowiek życie dzień świat dom kraj miasto praca woda ręka część miejsce problem chwila sprawa "
        "historia wojna rząd firma rynek cena pieniądze szkoła książka słowo język myśl przykład projekt wynik "
        "badanie usługa państwo polityka gospodarka rozwój prezydent dyrektor członek rodzina ojciec matka brat "
        "siostra przyjaciel drzwi okno ogród rzeka most góra las wieś młyn młynarz mąka chleb zboże deszcz słońce "
        "zima lato jesień wiosna rano wieczór noc tydzień miesiąc ulica droga samochód pociąg światło głos ciało "
        "serce głowa prawo liczba grupa poziom ludność społeczeństwo uniwersytet informacja decyzja możliwość "
        "robić mówić iść widzieć wiedzieć móc chcieć przyjść wziąć znaleźć dać postawić zostać trzymać prosić "
        "wierzyć zostawić rozumieć czekać pisać czytać otworzyć żyć wyjść stracić zacząć skończyć pokazać szukać "
        "powiedział zrobił został miał mógł chciał wiedział przyszedł znalazł napisał powstał otrzymał duży mały "
        "nowy dobry stary młody długi krótki wysoki pierwszy ostatni polski europejski narodowy publiczny "
        "społeczny gospodarczy ważny trudny prosty możliwy potrzebny ogólny miejscowy pewny sam wielka mała nowa "
        "dobra pierwsza ostatnia polska dużo mało nigdy często czasem dzisiaj wczoraj jutro zawsze prawie razem "
        "później",
    ),
    "ru": Words(
        "и в не на я что он с как это по но они мы она из у за вы так же от для о его к до было бы был а все то "
        "ее если когда только или еще уже их ни чем при этого была чтобы этом том без себя где есть мне нет кто "
        "под того может ли быть после потом через один два более также который которые между перед очень можно "
        "надо даже тоже",
        "время год человек жизнь день мир дом страна город работа вода рука часть место вопрос дело история война "
        "правительство компания рынок цена деньги школа книга слово язык мысль пример проект результат "
        "исследование служба государство политика экономика развитие президент директор член семья отец мать брат "
        "сестра друг дверь окно сад река мост гора лес деревня мельница мельник мука хлеб зерно дождь солнце зима "
        "лето осень весна утро вечер ночь неделя месяц улица дорога машина поезд свет голос взгляд тело сердце "
        "голова право число группа уровень население общество университет информация решение возможность система "
        "процесс область форма сделать сказать идти видеть знать мочь хотеть прийти взять найти дать говорить "
        "поставить остаться держать просить верить оставить понимать ждать писать читать открыть жить выйти "
        "потерять начать кончить показать сказал сделал стал имел мог хотел знал пришел нашел написал получил "
        "работал жил стоял смотрел говорил большой маленький новый хороший старый молодой длинный короткий "
        "высокий первый последний русский российский европейский национальный общественный экономический важный "
        "трудный простой возможный нужный общий местный большая новая хорошая первая последняя русская много мало "
        "никогда часто иногда сегодня вчера завтра всегда почти вместе однако поэтому несколько каждый другой "
        "самый такой весь свой наш",
    ),
    "ar": Words(
        "في من على إلى أن عن التي الذي مع هذا هذه كان لا ما بعد كل قد بين أو كما لم قبل ذلك حيث عند هو هي كانت "
        "حتى إن ثم لكن منذ أي غير بها فيها له لها به خلال تم أكثر بعض يكون نحو عليه فيه أيضا وقد إذا ليس لدى هناك "
        "وكان وهو وهي ولم الى مثل دون تحت فوق حول ضد وفي ومن وعلى",
        "الوقت السنة الناس الحياة اليوم العالم البيت البلاد المدينة العمل الماء اليد الجزء المكان السؤال التاريخ "
        "الحرب الحكومة الشركة السوق السعر المال المدرسة الكتاب الكلمة اللغة الفكرة المثال المشروع النتيجة البحث "
        "الخدمة الدولة السياسة الاقتصاد التنمية الرئيس المدير العضو الأسرة الأب الأم الأخ الأخت الصديق الباب "
        "النافذة الحديقة النهر الجسر الجبل الغابة القرية الطاحونة الدقيق الخبز القمح المطر الشمس الشتاء الصيف "
        "الخريف الربيع الصباح المساء الليل الأسبوع الشهر الشارع الطريق السيارة القطار الضوء الصوت الجسم القلب "
        "الرأس الحق العدد المجموعة المستوى السكان المجتمع الجامعة المعلومات القرار رجل امرأة طفل كتاب بيت مدينة "
        "عام يوم شهر عمل مجلس وزارة مركز يعمل يقول يذهب يرى يعرف يريد يأتي يأخذ يجد يعطي يتحدث يضع يبقى يطلب يترك "
        "يفهم ينتظر يكتب يقرأ يفتح يعيش يخرج قال ذهب رأى عرف أراد جاء أخذ وجد أعطى تحدث وضع بقي طلب ترك فهم كتب "
        "قرأ فتح عاش خرج بدأ انتهى وصل دخل أصبح كبير صغير جديد جيد قديم شاب طويل قصير أول آخر عربي دولي وطني عام "
        "اجتماعي اقتصادي مهم صعب بسيط ممكن ضروري محلي كبيرة صغيرة جديدة عربية دولية وطنية عامة مهمة كثير قليل "
        "أبدا دائما أحيانا أمس غدا الآن معا تقريبا",
        comma="،",
    ),
    "ko": Words(
        "그 이 저 것 수 등 및 더 또 그리고 그러나 하지만 때문에 위해 대한 대해 있는 있다 없는 없다 한다 하는 하고 "
        "했다 된다 되는 같은 이런 그런 모든 여러 다른 매우 아주 가장 다시 함께 이미 아직 지금 우리 나는 그는 "
        "그녀는 우리는 통해 따라 많은 어떤",
        "시간이 사람은 사람들이 년에 삶을 하루가 세계의 집에서 나라의 도시에 일을 물을 손으로 부분이 장소에서 "
        "문제는 역사를 전쟁이 정부는 회사가 시장에서 가격이 돈을 학교에 책을 말을 언어의 생각을 예를 사업을 "
        "결과를 연구는 국가의 정치와 경제가 발전을 대통령은 회원이 가족과 아버지는 어머니가 형제는 친구와 문을 "
        "창문을 정원에 강을 다리를 산에서 숲에 마을의 방앗간에서 밀가루를 빵을 비가 해가 겨울에는 여름에 가을이 "
        "봄에 아침에 저녁에는 밤에 주말에 거리를 길을 자동차가 기차를 빛이 목소리로 마음을 머리를 권리를 수를 "
        "단체의 수준이 인구가 사회의 대학교에서 정보를 결정을 가능성이 만들었다 말했다 갔다 보았다 알았다 왔다 "
        "잡았다 찾았다 주었다 남았다 기다렸다 썼다 읽었다 열었다 살았다 나왔다 잃었다 시작했다 끝났다 보여준다 "
        "생각한다 필요하다 중요하다 크다 작은 새로운 좋은 오래된 젊은 긴 짧은 높은 첫 마지막 한국의 국제적인 "
        "공공의 사회적인 경제적인 중요한 어려운 간단한 가능한 필요한 일반적인 지역의 항상 자주 가끔 오늘 어제 "
        "내일 거의 조금 많이",
    ),
    "ja": Words(
        "の は を に が と で も た な て から まで より へ や という です ます した ている これ それ その この "
        "ある いる こと もの ため よう など また しかし そして だけ ので では には として について による "
        "において でも とも さらに すべて とても",
        "時間 人々 世界 生活 今日 家族 国家 都市 仕事 水道 部分 場所 問題 歴史 戦争 政府 会社 市場 価格 学校 本 "
        "言葉 言語 考え 例 計画 結果 研究 政治 経済 発展 大統領 会員 父 母 兄弟 友達 扉 窓 庭 川 橋 山 森 村 水車 "
        "小麦粉 パン 雨 太陽 冬 夏 秋 春 朝 夕方 夜 週末 道 自動車 電車 光 声 心 頭 権利 数 団体 水準 人口 社会 "
        "大学 情報 決定 可能性 東京 日本 地域 機械 新聞 写真 音楽 文化 作る 言う 行く 見る 知る 来る 取る "
        "見つける 与える 残る 待つ 書く 読む 開く 生きる 出る 失う 始める 終わる 示す 考える 使う 思う 作った "
        "言った 行った 見た 知った 来た 取った 書いた 読んだ 開いた 始めた 終わった 考えた 使った 思った 大きな "
        "小さな 新しい 良い 古い 若い 長い 短い 高い 最初の 最後の 国際的な 公共の 社会的な 経済的な 重要な "
        "難しい 簡単な 可能な 必要な 一般的な いつも 時々 昨日 明日 ほとんど 少し 多く コンピュータ サービス "
        "システム プロジェクト データ ニュース ページ ユーザー",
        joiner="",
        comma="、",
        stop="。",
    ),
    "zh": Words(
        "的 了 在 是 和 有 不 这 也 就 都 而 及 与 对 为 以 于 从 到 被 把 将 还 又 很 更 最 但 因为 所以 如果 "
        "可以 我们 他们 这个 一个 没有 已经 其中 以及 由于 通过 进行 之后 之前 可能 应该 他 她 它 中 上 下 后 着 "
        "过 地 得 等 并 或",
        "时间 人民 世界 生活 今天 家庭 国家 城市 工作 水 部分 地方 问题 历史 战争 政府 公司 市场 价格 学校 书 "
        "语言 思想 例子 计划 结果 研究 政治 经济 发展 总统 成员 父亲 母亲 兄弟 朋友 门 窗户 花园 河 桥 山 森林 "
        "村庄 磨坊 面粉 面包 下雨 太阳 冬天 夏天 秋天 春天 早上 晚上 夜里 星期 月 街道 道路 汽车 火车 光 声音 心 "
        "头 权利 数量 团体 水平 人口 社会 大学 信息 决定 可能性 北京 中国 地区 机器 新闻 照片 音乐 文化 做 说 去 "
        "看 知道 来 拿 找到 给 留下 等待 写 读 打开 活 出来 失去 开始 结束 表示 认为 使用 觉得 提高 增加 建立 大 "
        "小 新 好 老 年轻 长 短 高 第一 最后 国际 公共 重要 困难 简单 必要 一般 当地 总是 经常 有时 昨天 明天 "
        "几乎 一些 许多 企业 管理 技术 服务 系统 项目 数据 用户 网络 教育 环境 资源 方法 关系 作用 条件 影响 活动 "
        "组织 会议 记者 报道 方面 情况 能力 产品",
        joiner="",
        comma="，",
        stop="。",
    ),
    "th": Words(
        "ที่ และ ใน ของ เป็น ได้ ไม่ มี ให้ ว่า จะ การ ความ กับ จาก นี้ ไป มา แต่ ก็ หรือ โดย ยัง อยู่ แล้ว เมื่อ "
        "ถึง อย่าง ต้อง เพื่อ เรา เขา ซึ่ง นั้น คน ทำ ต่อ กว่า มาก ขึ้น ด้วย เพราะ ทั้ง อาจ ตาม ถ้า",
        "เวลา ประชาชน โลก ชีวิต วันนี้ ครอบครัว ประเทศ เมือง งาน น้ำ ส่วน สถานที่ ปัญหา ประวัติศาสตร์ สงคราม "
        "รัฐบาล บริษัท ตลาด ราคา โรงเรียน หนังสือ ภาษา ความคิด ตัวอย่าง โครงการ ผลลัพธ์ วิจัย การเมือง เศรษฐกิจ "
        "พัฒนา ประธาน สมาชิก พ่อ แม่ พี่น้อง เพื่อน ประตู หน้าต่าง สวน แม่น้ำ สะพาน ภูเขา ป่า หมู่บ้าน โรงสี แป้ง "
        "ขนมปัง ฝน พระอาทิตย์ ฤดูหนาว ฤดูร้อน เช้า เย็น กลางคืน สัปดาห์ เดือน ถนน รถยนต์ รถไฟ แสง เสียง หัวใจ "
        "สิทธิ จำนวน กลุ่ม ระดับ ประชากร สังคม มหาวิทยาลัย ข้อมูล ตัดสินใจ พูด เห็น รู้ เอา พบ รอ เขียน อ่าน เปิด "
        "ออก เริ่ม จบ แสดง คิด ใช้ รู้สึก ใหญ่ เล็ก ใหม่ ดี เก่า ยาว สั้น สูง แรก สุดท้าย สำคัญ ยาก ง่าย จำเป็น "
        "ทั่วไป ท้องถิ่น เสมอ บ่อย",
        joiner="",
        comma=" ",
        stop=" ",
    ),
}

# Languages that put spaces between words: only there do sets of word 5-grams mean something.
SPACED = frozenset(code for code, words in WORDS.items() if words.joiner)
