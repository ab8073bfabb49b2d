"""
Words that a question is asked with rather than about, per language, without apostrophes.

Short on purpose: a word that is dropped cannot be found, a common one that is kept only weighs little.
"""

from __future__ import annotations

LISTS = {
    "en": """
        a about am an and any are arent as at be been being but by can cant could couldnt did didnt do does
        doesnt doing dont for from had has have havent having he her hers him his how i id if im in into is
        isnt it its itself ive just me my of on or our ours shall she should shouldnt so some such than that
        thats the their theirs them then there theres these they theyre this those to too us very was wasnt
        we were werent what whats when where wheres which while who whom whos whose why will with wont would
        wouldnt you your yours youre
    """,
    "pt": """
        a ao aos as com como da das de do dos e é ela elas ele eles em entre era essa esse esta estao estava
        este eu foi há isso isto já mas mais me meu minha na nao não nas nem no nos nós o os ou para pela
        pelo por porque qual quais quando que quem se sem ser seu sua são sobre só também te tem tinha um
        uma umas uns você vocês onde
    """,
    "es": """
        a al como con cual cuál cuales cuando cuándo cómo de del desde donde dónde e el él ella ellas ellos
        en entre era es esa ese eso esta está estas este esto fue ha hay la las le les lo los más mi muy no
        nos o para pero por porque qué que quien quién se ser si sí sin sobre son su sus también te tiene un
        una unas unos y ya yo
    """,
    "fr": """
        à au aux avec ce ces cet cette comme comment dans de des donc dont du elle elles en est et étaient
        était être eux il ils je la le les leur leurs lui ma mais me mes mon même ne nos notre nous on ont
        ou où par pas pour pourquoi quand que quel quelle quels quelles qui quoi sa sans se ses son sont sur
        ta te tes ton tu un une vos votre vous
    """,
    "de": """
        aber als am an auch auf aus bei bin bis bist da damit das dass dem den denn der des dich die dies
        diese dieser dieses dir doch du durch ein eine einem einen einer eines er es euch für hat hatte ich
        ihr im in ist ja kann man mein mich mir mit nach nicht noch nun nur ob oder ohne sein seine sich sie
        sind so über um und uns von vor wann war waren warum was welche welcher welches wem wen wenn wer wie
        wir wird wo wurde zu zum zur
    """,
    "it": """
        a ai al alla alle anche che chi ci come con cosa cui da dal dalla dei del della delle dello di dove
        è e ed era fu gli ha hanno i il in io la le lei lo loro lui ma mi nel nella non o per perché più
        quale quali quando quello questa questo se si sono su sua sul sulla suo ti tra tu un una uno
    """,
    "nl": """
        aan als bij dan dat de der die dit een en er had heb hebben heeft het hij hoe ik in is je kan maar
        me met mijn naar niet nog nu of om ons ook op over te tot uit van voor waar waarom was wat we welke
        wie wordt ze zich zij zijn zou
    """,
    "ru": """
        а без был была были было быть в вам вас весь во вот все всё вы где да даже для до его ее её если
        есть еще ещё же за и из или им их к как какая какие какой какую ко когда который кто ли мне мой мы
        на над надо нас не него нее нет ни них но о об он она они оно от по под почему при про с сам свой
        себя со так такой там те тем то того тоже той только том ты у уже чего чей чем что чтобы эта эти это
        этот я
    """,
    "uk": """
        а або але був була були було бути в вам ви від він вона вони воно все де для до є з за і із й його
        їх її як яка які який коли ми на над не ні о про по при та так там те ти то той тільки у хто це цей
        чи чому що щоб я
    """,
    "pl": """
        a aby ale bo był była było być by co czy dla do gdy gdzie go i ich ile im ja jak jaka jaki jakie je
        jego jej jest jestem kiedy kto która które który ma mi mnie na nad nam nie niż o od on ona one oni
        oraz po pod przez przy są się ta tak tam te tego tej ten to tu w we więc z za ze że
    """,
}
