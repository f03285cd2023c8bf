"""Shells of pages: texts that a server or a library wrote for readers without scripts, cookies or a permission.

A text is a shell if nearly all of it is of known sentences. One such sentence makes no shell: an article about
JavaScript, or a notice with "please wait", has others. Sentences are in the languages that are the most frequent in
Common Crawl: English, Russian, German, Japanese, Chinese, Spanish, French, Italian, Portuguese, Dutch, Polish, and
Turkish, Czech, Vietnamese, Korean and Indonesian where they are short.

Each sentence was found in public source code: in the template that it is of, in a translation of that template, or, of
a service whose pages are not public, in programs that recognize the page. The comments name these sources. To add a
sentence, name its source as well.
"""

import re

from gristmill.tasks.extraction.prose import weight

_MAX_WEIGHT = 1500  # a longer text is no shell: the longest of the templates are notes on consent
_MAX_SENTENCE = 400  # characters
# What else may be in a shell: the name of the site, its menu. Characters, and a share of the text.
_MAX_REST, _MAX_REST_SHARE = 60, 0.25
_SHORT_REST = 25  # of a text of a few words

# What switches scripts on, needs them or lacks them, in a sentence with "JavaScript". With translations: Anubis
# (lib/localization/locales/*.json: "Sadly, you must enable JavaScript to get past this challenge."), Matomo
# (plugins/CoreHome/lang/*.json: "JavaScript must be enabled in order for you to use Matomo in standard view."). Of
# create-react-app (cra-template/public/index.html: "You need to enable JavaScript to run this app."), Vue CLI
# (generator/template/public/index.html: "We're sorry but <title> doesn't work properly without JavaScript enabled.
# Please enable it to continue."), Angular CLI (pwa/index.ts: "Please enable JavaScript to continue using this
# application."), Gatsby (default-html.js: "This app works best with JavaScript enabled."), Cloudflare ("Enable
# JavaScript and cookies to continue"), X ("JavaScript is not available. We've detected that JavaScript is disabled in
# this browser."), DataDome ("Please enable JS and disable any ad blocker") and enable-javascript.com ("...
# instructions how to enable JavaScript in your web browser"), and its translations.
_SCRIPTS = re.compile(r"java\s?script|\bjs\b")
_SWITCHED = re.compile(
    # en, de
    r"enabl|activat|turn(?:ed)? on|requir|\bneed|disabled|without|not (?:available|support)|aktivier|"
    r"ein(?:zu)?schalt|"
    # de, fr, es
    r"eingeschaltet|benötig|erforder|deaktiv|ohne|activ|nécessaire|requi|désactiv|habilit|necesari|"
    # pt, it, nl
    r"desactiv|desabilit|desativ|\bativ|necess|abilit|attiv|disattiv|richie|ingeschakeld|inschakel|"
    r"schakel|nodig|vereist|"
    # pl, ru
    r"uitgeschakeld|włącz|wymaga|включ|отключ|"
    r"поддерж|требу|необходим|"
    # zh, ja, ko
    r"启用|啟用|开启|開啟|打开|禁用|支持|支援|"
    r"有効|無効|オン|必要|対応|활성|사용|필요|"
    # tr, cs, vi, id
    r"etkin|gerek|zapn|povol|vyžaduj|bật|aktifkan"
)
# Sentences that follow in the same templates.
_FURTHER = re.compile(
    r"please enable it|^before you continue|(?:klicken|cliqu|clic |clicca|clique|kliknij|"
    r"klik )[^.]{0,20}(?:hier|ici|aquí|qui|aqui|tutaj)|"
    r"merci de l'activer|有効にして|automatique|automatisch|automáticamente|in kürze|несколько секунд|"
    r"безопасност|seguridad en curso|"
    r"this (?:may|might|will) (?:only )?take (?:a few|some) (?:seconds|moments)|"
    r"to view this page|"
    r"enable it to continue|reload (?:the|this) page|try again|"
    r"switch to a supported browser|"
    r"supported browsers|here are the instructions|we(?:'re| are) sorry|sorry for (?:the|"
    r"any) inconvenience|"
    r"(?:enable|activate) cookies|disable any ad ?blocker|whitelist|ad ?blocker|"
    r"laden sie die seite|seite neu|rechargez|recargue|recarregue|обновите страницу|"
    r"再読み込み|刷新|重新加载|重新整理"
)

# Whole sentences, by what the shell waits for. A sentence has one of these in it, and is short.
_SENTENCES = {
    # Spinners, each the whole line: DataTables (Plugins/i18n/*.json, `loadingRecords`: "Wird geladen ...",
    # "Chargement...", "読み込み中..."), bootstrap-table (src/locale, `formatLoadingMessage`: "Loading, please wait"),
    # Etherpad (src/locales, `pad.loading`), Altcha (src/i18n: "Please wait."), Anubis, and their translations.
    "loading": r"^(?:(?:(?:now |the )?(?:page |content |app )?(?:is )?loading(?: (?:app(?:lication)?|page|content|"
    r"data|site))?|"
    r"please wait|one moment(?:,? please)?|just a moment|(?:die seite )?wird geladen|seite wird geladen|"
    r"bitte warten|"
    r"einen moment(?: bitte)?|lade(?: daten|n)?|chargement(?: de la page)?(?: en cours)?|(?:merci de|"
    r"veuillez) patienter|"
    r"cargando(?: página)?|(?:por favor,? )?espere(?: un momento)?|por favor|un momento|"
    r"caricamento(?: in corso)?|"
    r"attendere(?: prego)?|(?:a )?carrega(?:ndo|r)|aguarde|even geduld(?: a\.?u\.?b\.?)?|bezig met laden|"
    r"pagina laden|"
    r"(?:ładowanie|wczytywanie)(?: strony)?|proszę czekać|(?:ид[её]т )?загрузка(?: страницы)?|пожалуйста|"
    r"(?:по)?дождите(?:сь)?|(?:正在|页面)?(?:加载|載入|加載|载入)中?|请稍[候等后]|請稍[候等後]|"
    r"(?:ページを)?(?:読み?込み?中|読み込んでいます|ロード中)(?:です)?|"
    r"(?:しばらく|少々)?お待ちください|로딩 ?중|잠시만 기다려 ?주세요|"
    r"yükleniyor|lütfen bekleyin|načítání|čekejte prosím|đang tải|vui lòng đợi|memuat|"
    r"mohon tunggu)[\s.,…。、，！!]*){1,4}$",
    # Interstitials. Cloudflare ("Checking your browser before accessing", "Just a moment...", "Verifying you are human.
    # This may take a few seconds.", "<host> needs to review the security of your connection before proceeding.", "DDoS
    # protection by Cloudflare", "Please allow up to 5 seconds"), and its own translations; PerimeterX ("Press & Hold to
    # confirm you are a human (and not a bot)."), Google's sorry page ("Our systems have detected unusual traffic from
    # your computer network."), Imperva ("Request unsuccessful. Incapsula incident ID"), DDoS-Guard, reCAPTCHA,
    # hCaptcha, AWS WAF ("Let's confirm you are human"), Amazon ("Type the characters you see in this image"), Anubis
    # (lib/localization/locales/*.json: "Making sure you're not a bot!"), Vercel's checkpoint ("We're verifying your
    # browser", "ブラウザを確認しています", "Stiamo verificando il tuo browser"), DDoS-Guard ("Проверка браузера перед
    # переходом на сайт"). FlareSolverr (src/flaresolverr_service.py) and DuckDuckGo's autoconsent know many of them.
    "check": r"checking (?:your|if the site|the) (?:browser|connection)|verif(?:y|ying) (?:that )?you(?:'re|"
    r" are)? (?:a )?human|"
    r"needs to review the security of your connection|ddos protection by|completing the captcha|"
    r"security check|"
    r"(?:we |our systems )?(?:have )?detected unusual (?:traffic|activity)|press (?:&|and) hold|you(?:'re|"
    r" are) not a (?:ro)?bot|"
    r"confirm you are (?:a )?human|incapsula incident|enable javascript and cookies|"
    r"this process is automatic|"
    r"your browser will redirect|please allow up to \d+ seconds|type the characters you see|i(?:'m|"
    r" am) not a robot|"
    r"(?:ihr|dein) browser wird (?:über|ge)prüft|überprüf(?:e|en|ung) (?:ihre[ns]?|ihr) browsers?|"
    r"bestätigen sie,? dass sie (?:ein mensch|kein roboter)|que no es un robot|"
    r"que vous n'êtes pas un robot|"
    r"vérifi(?:cation|ez|ons)[^.]{0,30}(?:navigateur|humain)|(?:comprobando|verificando|"
    r"verifique)[^.]{0,30}(?:navegador|humano)|"
    r"verifi(?:ca|cando)[^.]{0,30}(?:browser|umano|navegador)|"
    r"проверка (?:вашего )?браузера|подтвердите,? что вы (?:человек|не робот)|"
    r"正在检查(?:您的)?浏览器|验证您是(?:否是)?(?:真)?人|確認您是人|"
    r"ブラウザー?を確認|人間であることを確認|ロボットでは|"
    r"controleren (?:van|of) uw browser|of u een mens bent|sprawdzanie przeglądarki|że jesteś człowiekiem",
    # Refusals. Apache ("Forbidden You don't have permission to access / on this server."), Akamai ("Access Denied You
    # don't have permission to access ... Reference #18..."), nginx ("403 Forbidden"), IIS ("You do not have permission
    # to view this directory or page"), Cloudflare 1020 ("Sorry, you have been blocked. You are unable to access"),
    # CloudFront ("The request could not be satisfied. Request blocked."), Drupal ("You are not authorized to access
    # this page." and its translations), Sucuri ("Access Denied - Sucuri Website Firewall"). Apache has its own in 17
    # languages (httpd, docs/error/HTTP_FORBIDDEN.html.var: "Zugriff verweigert!", "Accès interdit!", "アクセス禁止").
    "denied": r"^(?:error )?(?:\d{3} ?[-:.]? ?)?(?:error:? ?)?(?:access (?:to this (?:page|site|website) )?(?:is |"
    r"has been )?(?:denied|forbidden)|forbidden|not authorized|unauthorized)[\s.!]*$|"
    r"(?:do not|don't) have (?:permission|authorization|access) to (?:access|view|see)|"
    r"(?:you are|you're) not (?:authorized|allowed|permitted) to (?:access|view)|you have been blocked|"
    r"you are unable to access|"
    r"why have i been blocked|this website is using a security service to protect itself|"
    r"please include what you were doing when this page|the action you just performed triggered|"
    r"there are several actions that could trigger|"
    r"request could not be satisfied|"
    r"^request blocked|access denied - sucuri|you (?:can|may) email the site owner|"
    r"what can i do to resolve this|"
    r"^(?:zugriff|zugang) (?:verweigert|gesperrt|nicht erlaubt)[\s.!]*$|"
    r"keine (?:zugriffs?)?(?:berechtigung|rechte)|nicht berechtigt, auf|"
    r"^accès (?:refusé|interdit|non autorisé)[\s.!]*$|(?:pas|n'avez pas) (?:autorisé|la permission|"
    r"l'autorisation|les droits)[^.]{0,40}acc|"
    r"^acceso (?:denegado|prohibido|no autorizado)[\s.!]*$|no (?:tiene|tienes|"
    r"está autorizado)[^.]{0,20}(?:permisos?|autorización|acceder)|"
    r"^accesso (?:negato|vietato)[\s.!]*$|non (?:si )?(?:hai|disponi|dispone|ha|sei|"
    r"si è)[^.]{0,20}(?:permess|autorizzat)|"
    r"^acesso (?:negado|proibido)[\s.!]*$|não tem (?:permissão|autorização)|"
    r"^toegang (?:geweigerd|verboden|ontzegd)[\s.!]*$|geen toestemming|niet (?:bevoegd|gemachtigd)|"
    r"^(?:brak dostępu|dostęp zabroniony|odmowa dostępu)[\s.!]*$|nie (?:masz|posiadasz) uprawnień|"
    r"^(?:доступ (?:запрещ[её]н|ограничен)|в доступе отказано)[\s.!]*$|нет (?:прав|доступа)|"
    r"^(?:拒绝访问|访问被拒绝|禁止访问|拒絕存取|存取被拒)[\s.!。！]*$|(?:没有|无)权限?访问|沒有權限|"
    r"^アクセス(?:が)?(?:拒否|禁止)[^。]{0,12}。?$|アクセスする権限が",
    # First pages of servers: nginx ("Welcome to nginx! If you see this page, the nginx web server is successfully
    # installed and working."), Apache ("It works!"), Debian and Ubuntu ("Apache2 Default Page"), IIS, Plesk, cPanel,
    # WordPress ("Briefly unavailable for scheduled maintenance. Check back in a minute.").
    "server": r"^welcome to (?:nginx|openresty|centos|tengine)[\s!.]*$|^it works!?$|"
    r"web server is successfully installed|"
    r"^further configuration is required|^for online documentation and support|"
    r"^commercial support is available|"
    r"^thank you for using nginx|apache2? (?:\w+ )?default page|default web ?site page|"
    r"briefly unavailable for scheduled maintenance|check back in a minute|^(?:iis|apache|"
    r"nginx)(?:/[\d.]+)?[^.]{0,40}$",
    # Redirections: Apache ("The document has moved here."), Google ("Redirecting you to"), WordPress plug-ins.
    "redirect": r"^(?:30\d )?(?:moved permanently|moved temporarily|(?:document|"
    r"object) moved)(?: (?:to )?here)?[\s.]*$|"
    r"^(?:you (?:are|will be) (?:being )?)?(?:automatically )?redirect(?:ing|ed)\b.{0,80}$|"
    r"the document has moved|"
    r"if nothing happens|if you are not (?:automatically )?redirected|(?:browser|page) does(?:n't|"
    r" not) (?:automatically )?redirect|"
    r"^(?:please )?click here(?: to continue| if[^.]*)?[\s.!]*$|"
    r"sie werden (?:automatisch )?(?:weitergeleitet|umgeleitet)|"
    r"falls sie nicht (?:automatisch )?weitergeleitet|"
    r"vous allez être redirig|será (?:redirigid|redirecionad)|sarai reindirizzat|verr(?:ai|"
    r"ete) reindirizzat|u wordt doorgestuurd|zostaniesz przekierowan|"
    r"вы будете перенаправлены|正在跳转|リダイレクト|自動的に移動",
    # Frames, as FrontPage writes noframes ("This page uses frames, but your browser doesn't support them." and its
    # localized releases), SelfHTML's frameset template ("Ihr Browser kann diese Seite leider nicht anzeigen!").
    "frames": r"(?:does(?:n't| not)|can(?:not|'t)|is not able to) (?:support|display|handle) (?:i?frames|them)|"
    r"page uses frames|frames?[- ](?:capable|enabled|compatible) browser|"
    r"verwendet frames|frames[^.]{0,50}nicht|keine frames|"
    r"browser kann diese seite leider nicht anzeigen|"
    r"(?:cadres|frames)[^.]{0,40}(?:ne les|pas)|ne supporte pas (?:les )?frames|"
    r"(?:marcos|frames)[^.]{0,40}no los|no soporta frames|"
    r"utilizza i frame|non (?:supporta|è supportat)[^.]{0,20}(?:frame|browser)|(?:quadros|"
    r"frames)[^.]{0,40}não (?:aceita|suporta)|"
    r"ondersteunt geen frames|nie obsługuje ramek|не поддерживает фрейм|"
    r"フレーム[^。]{0,40}(?:対応|サポート)|不支持框架|不支援框架|使用了框架",
}
# A browser that is too old (browser-update.org, update.npm.full.js: "Your web browser ... is out-of-date"; Matomo,
# lang/*.json, `ExceptionNotSupportedBrowserTitle`; html5-boilerplate, index.html:
# "You are using an outdated browser. Please upgrade your browser to improve your experience and security.").
_SENTENCES["browser"] = (
    r"browser[^.]{0,30} (?:is|appears to be) (?:out[- ]of[- ]date|outdated|not supported|unsupported|"
    r"too old|no longer supported)|"
    r"using an (?:outdated|unsupported|old) browser|(?:update|upgrade) your (?:web )?browser|"
    r"browser (?:ist|wird)[^.]{0,20} (?:veraltet|zu alt|nicht(?: mehr)? unterstützt)|"
    r"navigateur (?:est obsolète|n'est (?:pas|plus) (?:supporté|à jour|compatible))|"
    r"navegador (?:está|es) (?:desactualizado|obsoleto)|браузер устарел|浏览器版本过低"
)
_KINDS = {kind: re.compile(pattern) for kind, pattern in _SENTENCES.items()}

# Consent: the words of IAB Europe's Transparency and Consent Framework (its texts in each language: "We and our
# partners store and/or access information on a device, such as cookies and process personal data"), of OneTrust,
# Cookiebot, Usercentrics, Didomi and Quantcast Choice, as tarteaucitron.js (lang/*.js), Klaro (src/translations/*.yml)
# and orestbida's CookieConsent write them in most of the languages. A sentence of a wall has three of them, in groups
# that all languages share.
_CONSENT_WORDS = re.compile(
    r"(cookies?|куки|クッキー)|(partner|\bsocios\b|parceiros|партн|合作伙伴|パートナー)|"
    r"(consent|accept|agree|einwillig|zustimm|akzeptier|consenti|accord|accept|consentimiento|acepta|"
    r"acconsent|accett|consentimento|aceita|toestemming|accepteer|zgod|akceptuj|соглас|принима|同意|接受)|"
    r"(personal (?:data|information)|personenbezogen|données (?:personnelles|à caractère)|"
    r"informations personnelles|datos personales|dati personali|dados pessoais|persoonsgegevens|dan(?:e|"
    r"ych) osobow|персональн|个人(?:数据|信息)|個人(?:情報|データ))|"
    r"(device|gerät|terminal|appareil|dispositiv|apparaat|urządzeni|устройств|设备|端末|デバイス)|"
    r"(advert|\bads\b|werbung|anzeigen|publicit|annunci|pubblicit|reklam|advertent|реклам|广告|広告)|"
    r"(privacy|privatsphäre|datenschutz|confidentialit|vie privée|privacidad|privacidade|riservatezza|"
    r"prywatno|конфиденц|隐私|プライバシー)|"
    r"(stor(?:e|age)|speicher|stock|almacen|archiv|armazen|opsla|przechow|хран|存储|保存)|"
    r"(withdraw|legitimate interest|widerruf|berechtigte|retirer|intérêt légitime|retirar|"
    r"interés legítimo|revoc|legittimo|intrekken|wycofa|отозв)|"
    r"(analy[sz]|audience|personali[sz]|personnalis|geolocation|standort|preferenc|browsing|experience|"
    r"our (?:web)?site|traffic)"
)
_COOKIES, _PARTNERS = 1, 2
# The first person of who asks.
_CONSENT_ASKS = re.compile(
    r"\b(?:we|our|us|you|your|wir|unsere?r?|ihre?r?|nous|nos|vous|votre|nosotros|nuestros?|su|noi|nostri|"
    r"tuo|nós|nossos|seu|wij|we|onze|my|nasi|nasze|twoj\w+)\b|"
    r"\b(?:мы|наши?|ваш\w*)\b|我们|我們|您|当社|当サイト"
)
_USES_COOKIES = re.compile(
    r"\b(?:we|(?:our|this|the) (?:web)?sites?) uses? (?:\w+ ){0,3}cookies|utilis\w* (?:des |les |"
    r"ses )?(?:\w+ )?cookies|"
    r"utili[sz]\w* (?:i |os |las )?(?:\w+ )?cookies?|(?:verwende[nt]|nutz(?:en|t)|setz(?:en|"
    r"t)) (?:\w+ ){0,2}cookies|"
    r"gebruik\w* (?:\w+ )?cookies|cookies gebruik|używa\w* (?:plików )?cookie|"
    r"использу\w+ (?:файлы )?(?:cookie|куки)|"
    r"使用\s?cookies?|(?:cookie|クッキー)を使用"
)
# Buttons of walls, each the whole line: those that programs look for which press them (DuckDuckGo's autoconsent,
# rules/ and lib/heuristic-patterns.ts; Consent-O-Matic, rules/*.json), and those of tarteaucitron.js.
_BUTTON = re.compile(
    r"^(?:(?:accept|reject|deny|decline|allow|refuse|agree to)(?: (?:all|cookies|all cookies|and continue|"
    r"& continue|and close|selected|only necessary|non-essential))*|i (?:accept|agree)|agree|"
    r"continue without (?:accepting|consent)|"
    r"(?:manage|more|cookie|privacy|show|change)(?: my)? ?(?:options|settings|preferences|details|choices|"
    r"cookies|purposes)|customi[sz]e|save (?:&|and) exit|learn more|got it|only necessary|"
    r"strictly necessary|"
    r"alle(?:s)? (?:akzeptieren|ablehnen|cookies akzeptieren|annehmen)|akzeptieren|ablehnen|zustimmen|"
    r"einverstanden|einstellungen|mehr (?:optionen|informationen|erfahren)|nur notwendige|speichern|"
    r"(?:tout )?(?:accepter|refuser)(?: (?:et (?:fermer|continuer)|tout))?|tout (?:accepter|refuser)|"
    r"continuer sans accepter|(?:paramétrer|personnaliser)(?: (?:mes choix|les cookies))?|en savoir plus|"
    r"j'accepte|"
    r"(?:aceptar|rechazar)(?: (?:todo|todas|todas las cookies|y continuar|y cerrar|cookies))?|"
    r"configurar(?: cookies)?|más (?:información|opciones)|"
    r"(?:accetta|rifiuta)(?: (?:tutto|tutti|tutti i cookie|e continua|e chiudi))?|"
    r"continua senza accettare|personalizza|gestisci(?: \w+)?|scopri di più|"
    r"(?:aceitar|rejeitar|recusar)(?: (?:tudo|todos|todos os cookies|e fechar|cookies))?|gerenciar \w+|"
    r"saiba mais|"
    r"(?:alles |alle cookies )?(?:accepteren|weigeren|afwijzen)|accepteer (?:alles|alle cookies)|"
    r"instellingen|meer informatie|"
    r"(?:akceptuję?|odrzuć|zaakceptuj)(?: (?:wszystkie|wszystko|i zamknij))?|zgadzam się|"
    r"ustawienia(?: \w+)?|"
    r"(?:принять|отклонить|согласен)(?: (?:все|вс[её] cookies?|и закрыть))?|настройки|подробнее|"
    r"(?:接受|同意|拒绝)(?:全部|所有)?(?:cookie)?|(?:すべて)?(?:に)?(?:許可|同意|拒否)(?:する)?|同意しない|詳細|ok)[\s.!]*$"
)
# What says nothing in any shell: ids of requests, names of the software that answered, marks of ownership.
_MARK = re.compile(
    r"^(?:reference #|ref(?:erence)?(?: id| no)?[ :#]|(?:cloudflare )?ray id|request id|"
    r"(?:your )?ip(?: address)?:|incident id|error (?:code )?\d|event id|support id|https?://\S+$)|"
    r"performance (?:&|and) security by|^(?:nginx|cloudflare|openresty|akamai)(?:/[\d.]+)?$|"
    r"^apache/[\d.]+ .{0,80}server at|generated by cloudfront|^(?:this page (?:was )?)?last (?:updated|"
    r"modified|changed)[^a-z]{0,30}$|^[\W\d_]*$|^home$"
)
_OWNED = re.compile(
    r"^\W{0,3}(?:(?:©|\(c\)|&copy;)|copyrights?\b\W{0,3}(?:©|\(c\)|\d{4}|by ))[^.!?]{0,120}?(?:\W*(?:inc|"
    r"ltd|llc|co|corp|gmbh|s\.a|all rights reserved|\w{1,30}\.(?:com|org|net|\w\w))\W{0,3}){0,3}[.!]?$|"
    r"^all rights reserved\.?$|^alle rechte vorbehalten\.?$|^tous droits réservés\.?$|"
    r"^(?:todos los derechos reservados|reservados todos los derechos)\.?$|^tutti i diritti riservati\.?$|"
    r"^todos os direitos reservados\.?$|^alle rechten voorbehouden\.?$|^wszelkie prawa zastrzeżone\.?$|"
    r"^все права защищены\.?$|^版权所有.{0,20}$|^保留所有权利.{0,5}$"
)
_SPLIT = re.compile(r"\s*\n+\s*|(?<=[.!?…])[\"')\]]*\s+|(?<=[。！？])")
_QUOTES = str.maketrans({"\u2019": "'", "\u2018": "'", "\u201c": '"', "\u201d": '"', "\u00a0": " "})


def shell(text: str) -> str | None:
    """What kind of shell a text is: javascript, loading, check, denied, server, redirect, frames, browser, consent or
    copyright; None for a document.

    Of a shell at most a quarter, and 60 characters, are other than the known sentences, of a short one 25 characters;
    of a line of copyright nothing is.
    """
    if len(text) > _MAX_WEIGHT or weight(text) > _MAX_WEIGHT:
        return None
    sentences = [each.strip() for each in _SPLIT.split(text.translate(_QUOTES).lower()) if each.strip()]
    weights: dict[str, int] = {}
    rest = 0
    # the longest first: of most documents it is enough
    for sentence in sorted(sentences, key=len, reverse=True):
        kind = _kind(sentence)
        if kind:
            weights[kind] = weights.get(kind, 0) + weight(sentence)
        else:
            rest += weight(sentence)
            if rest > _MAX_REST:
                return None
    marks, buttons = weights.pop("mark", 0), weights.pop("button", 0)
    owned, further = weights.pop("copyright", 0), weights.pop("further", 0)
    if not weights:
        return "copyright" if owned and not rest and not further else None
    kind = max(weights, key=weights.__getitem__)
    if kind == "consent" and not (buttons or any(len(_consent(each)) >= 3 for each in sentences)):
        return None
    known = sum(weights.values()) + marks + buttons + owned + further
    limit = max(_SHORT_REST, min(_MAX_REST, _MAX_REST_SHARE * (known + rest)))
    return kind if rest <= limit else None


def _kind(sentence: str) -> str | None:
    if len(sentence) > _MAX_SENTENCE:
        return None
    if _MARK.search(sentence):
        return "mark"
    if _OWNED.search(sentence):
        return "copyright"
    if _BUTTON.search(sentence):
        return "button"
    if _SCRIPTS.search(sentence) and _SWITCHED.search(sentence):
        return "javascript"
    for kind, pattern in _KINDS.items():
        if pattern.search(sentence):
            return kind
    groups = _consent(sentence)
    if _USES_COOKIES.search(sentence) or len(groups) >= 3 or (len(groups) == 2 and _CONSENT_ASKS.search(sentence)):
        return "consent" if groups & {_COOKIES, _PARTNERS} else "further"
    return "further" if _FURTHER.search(sentence) else None


def _consent(sentence: str) -> set[int]:
    """The groups of words of consent in a sentence."""
    return {int(word.lastindex or 0) for word in _CONSENT_WORDS.finditer(sentence)}
