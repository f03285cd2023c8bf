"""Words of each language: those that hold sentences together and those that carry their subject."""

# Code: (function words, content words), most frequent first.
WORDS = {
    "en": (
        "the of and to a in that is for it with as was on be by at this have from or are but not they which an had",
        "time life case fact lot business friend member minute others war girl foot nation use heart police "
        "relationship season paper center need image product movie kitchen forest stone give bring let speak send "
        "drive seen left heard fallen working turning high important late free easy difficult wrong significant",
    ),
    "de": (
        "die der und in zu den das nicht von sie ist des sich mit dem dass er es ein ich auf so eine auch als an",
        "Zeit Tag Haus Hand Straße Nacht Wort Gesellschaft Preis Verein Vater Tür Berg Mehl Sonne Herbst Beispiel "
        "Erfahrung Bürger machen lassen stehen bringen lesen brauchen setzen entsprechen gewinnen gesehen geblieben "
        "gut jung weit leicht deutlich frei ganze neuen öffentlichen heute vielleicht trotzdem",
    ),
    "fr": (
        "de la le et les des en un une du que est pour qui dans a par plus pas au sur ne se ce il sont avec son ou",
        "temps jour maison eau fois problème nombre entreprise école exemple état président mère porte montagne "
        "farine soleil soir route voix esprit l'histoire l'état dire pouvoir donner rester laisser écrire vivre "
        "devenir répondre vu petit vieux premier international important général grande dernière beaucoup peut-être",
    ),
    "es": (
        "de la que el en y a los se del las un por con no una su para es al lo como más o pero sus le ha me si sin",
        "año hombre ciudad problema historia dinero lengua resultado economía miembro hermana jardín bosque pan "
        "invierno tarde calle luz cabeza grupo educación atención sociedad ver venir poner llevar entender seguir "
        "empezar entrar dicho llegado grande viejo primero nacional económico necesario solo última mucho hoy",
    ),
    "pl": (
        "w i na z się do nie to jest że o jak po od za przez co ale czy tym dla są tego przy już był tylko jego może",
        "czas życie kraj ręka chwila rząd pieniądze język wynik polityka dyrektor matka przyjaciel rzeka wieś chleb "
        "zima rano miesiąc pociąg serce grupa uniwersytet możliwość widzieć przyjść postawić wierzyć pisać wyjść "
        "pokazać został wiedział powstał mały młody pierwszy narodowy ważny potrzebny sam dobra dużo czasem zawsze",
    ),
    "ru": (
        "и в не на я что он с как это по но они мы она из у за вы так же от для о его к до было бы был а все то ее",
        "время день город часть история цена слово проект государство директор мать дверь мост мельница дождь осень "
        "ночь дорога взгляд право население решение область видеть прийти говорить просить писать выйти показать "
        "имел пришел жил большой старый высокий европейский важный нужный новая русская иногда всегда поэтому самый",
    ),
    "ar": (
        "في من على إلى أن عن التي الذي مع هذا هذه كان لا ما بعد كل قد بين أو كما لم قبل ذلك حيث عند هو هي كانت حتى",
        "الوقت الحياة البيت الماء المكان الحرب السعر الكتاب الفكرة البحث السياسة المدير الأب الأخت الحديقة الجبل "
        "الطاحونة المطر الصيف الصباح الشهر السيارة الجسم الحق المستوى المعلومات امرأة بيت شهر وزارة يقول يريد يجد "
        "يبقى يفهم يقرأ قال عرف أخذ وضع ترك قرأ بدأ دخل جديد شاب أول وطني مهم ممكن صغيرة دولية مهمة دائما غدا",
    ),
    "ko": (
        "그 이 저 것 수 등 및 더 또 그리고 그러나 하지만 때문에 위해 대한 대해 있는 있다 없는 없다 한다 하는 하고",
        "시간이 사람들이 하루가 나라의 물을 장소에서 전쟁이 시장에서 학교에 언어의 사업을 국가의 경제가 회원이 "
        "어머니가 문을 강을 숲에 밀가루를 해가 가을이 저녁에는 거리를 기차를 목소리로 권리를 수준이 대학교에서 "
        "가능성이 갔다 왔다 주었다 썼다 살았다 시작했다 생각한다 중요하다 새로운 젊은 높은 한국의 사회적인 어려운",
    ),
    "ja": (
        "の は を に が と で も た な て から まで より へ や という です ます した ている これ それ その この ある",
        "時間 世界 家族 仕事 部分 歴史 会社 価格 言葉 例 研究 経済 会員 兄弟 扉 川 森 小麦粉 雨 夏 朝 夜 自動車 声 "
        "頭 団体 社会 決定 東京 機械 音楽 作る 見る 取る 残る 書く 生きる 始める 示す 思う 行った 知った 書いた "
        "始めた 使った 大きな 良い 長い 高い 国際的な 経済的な 簡単な 必要な 時々 ほとんど 多く システム ニュース",
    ),
    "zh": (
        "的 了 在 是 和 有 不 这 也 就 都 而 及 与 对 为 以 于 从 到 被 把 将 还 又 很 更 最 但 因为 所以 如果 可以",
        "时间 世界 今天 城市 水 地方 战争 公司 学校 语言 例子 研究 经济 成员 母亲 朋友 花园 桥 村庄 面粉 下雨 夏天 "
        "春天 夜里 月 道路 光 心 数量 水平 社会 决定 北京 机器 照片 文化 去 知道 找到 留下 写 活 失去 表示 使用 提高 "
        "大 新 年轻 短 第一 公共 困难 一般 总是 有时 几乎 许多 技术 系统 数据 教育 资源 作用 影响 组织 报道 情况",
    ),
    "th": (
        "ที่ และ ใน ของ เป็น ได้ ไม่ มี ให้ ว่า จะ การ ความ กับ จาก นี้ ไป มา แต่ ก็ หรือ โดย ยัง อยู่ แล้ว เมื่อ",
        "เวลา โลก วันนี้ ประเทศ งาน ส่วน ปัญหา สงคราม บริษัท ราคา หนังสือ ความคิด โครงการ วิจัย เศรษฐกิจ ประธาน พ่อ "
        "พี่น้อง ประตู สวน สะพาน ป่า โรงสี ขนมปัง พระอาทิตย์ ฤดูร้อน เย็น สัปดาห์ ถนน รถไฟ เสียง สิทธิ กลุ่ม ประชากร "
        "มหาวิทยาลัย ตัดสินใจ เห็น เอา รอ อ่าน ออก จบ คิด รู้สึก เล็ก ดี ยาว สูง สุดท้าย ยาก จำเป็น ท้องถิ่น",
    ),
}

# Comma and full stop where they are not the English ones.
POINTS = {"ar": ("،", "."), "ja": ("、", "。"), "zh": ("，", "。"), "th": (" ", " ")}
# Languages that put no spaces between words: there sets of word 5-grams mean nothing.
UNSPACED = frozenset(("ja", "zh", "th"))
