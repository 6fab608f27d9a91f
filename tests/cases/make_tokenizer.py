#!/usr/bin/env python3
"""tokenizer_smollm2.jsonl: texts and the ids Hugging Face `tokenizers` gives them.

    make_tokenizer.py MODEL.gguf OUT.jsonl

The tokenizer is built from the GGUF file's own tokens and merges: byte-level BPE, every digit split off
first, then the GPT-2 pattern; control and user-defined tokens are matched in the raw text.  It has no
unknown token, as the published tokenizer has none: a byte the vocabulary lacks yields nothing (21 bytes
are missing there, so text with them does not survive a round trip).
"""
import json
import random
import sys
import unicodedata

from gguf import GGUFReader
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

SEED = 20240611


def byte_chars():
    """The byte -> character map of byte-level BPE."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    chars = {b: chr(b) for b in own}
    for b in range(256):
        if b not in chars:
            chars[b] = chr(256 + len(chars) - len(own))
    return chars


def from_gguf(path):
    fields = GGUFReader(path).fields
    tokens = fields["tokenizer.ggml.tokens"].contents()
    types = fields["tokenizer.ggml.token_type"].contents()
    merges = []
    for line in fields["tokenizer.ggml.merges"].contents():
        cut = line.index(" ", 1)
        merges.append((line[:cut], line[cut + 1:]))
    vocab = {token: i for i, token in enumerate(tokens)}
    assert len(vocab) == len(tokens)
    tok = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tok.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    tok.decoder = decoders.ByteLevel()
    special = [t for t, kind in zip(tokens, types) if kind in (3, 4)]
    tok.add_special_tokens([AddedToken(t, normalized=False, special=True) for t in special])
    assert tok.get_vocab_size() == len(tokens)
    missing = {b for b, c in byte_chars().items() if c not in vocab}
    return tok, special, missing


ENGLISH = """The quick brown fox jumps over the lazy dog.
It was the best of times, it was the worst of times.
I can't believe it's not butter; they'd've said so, wouldn't they?
WE'LL SEE WHAT THEY'VE DONE, AND IT'S FINE. I'M SURE YOU'RE RIGHT, HE'D SAY.
'Tis the season o' rock 'n' roll, y'all.
She said, "Don't do that!" -- and then (of course) she did it anyway...
In 1969, 600 million people watched Apollo 11; 12 people have walked on the Moon.
Please e-mail john.doe+test@example.co.uk or visit https://www.example.com/a/b?c=d&e=%20f#g.
The price is $3.50 (about 2.99 EUR), i.e. 17% off!!!
Dr. Smith's co-workers' well-being isn't the N.H.S.'s concern.
Speculative decoding drafts several tokens cheaply and verifies them in one pass of the target model.
Water boils at 100 degrees Celsius (212 degrees Fahrenheit) at 1 atm.
Call me on +1 (555) 010-9999 between 09:00 and 17:30, Mon-Fri.
antidisestablishmentarianism floccinaucinihilipilification
ThisIsCamelCase this_is_snake_case THIS-IS-KEBAB-CASE thisIsMIXEDCase2Go
What is the capital of France? The capital of France is Paris.
To be, or not to be: that is the question.
Once upon a time there was a little girl who lived in a small village near the forest.
Translate the following sentence to German: "Good morning, how are you?"
Write a short poem about the sea.
A man, a plan, a canal: Panama!
e.g., etc., vs., i.e., a.m., p.m., No. 5, St. Mary's
1st 2nd 3rd 4th 21st 32nd 43rd 100th
H2O CO2 C6H12O6 x^2 + y^2 = z^2
He'S she'LL I'M they'RE we'VE I'D don'T ain'T
's 't 're 've 'm 'll 'd 'x 'S 'T 'RE 'VE 'M 'LL 'D
it\u2019s they\u2019ll don\u2019t we\u2019ve \u201cquoted\u201d \u2018single\u2019
word's's 'll'll ''s '''t a'sb 's1 1's 'tis 'reborn 'vendor 'dog 'mmm
Total: 1,234,567.89 (one million two hundred thirty-four thousand)
3.14159265358979323846264338327950288419716939937510
The year 2000 problem; the 1990s; 24/7; 9/11; 1/2 cup; 20/20 vision.
2024-06-11T12:34:56.789Z 192.168.0.1 ::1 fe80::1%eth0 00:1a:2b:3c:4d:5e
   leading spaces
Yes/No; and/or; either/or; his/her; km/h; w/o
!!! ??? ... ,,, ;;; ::: --- === +++ *** ### @@@ $$$ %%% ^^^ &&& ((( ))) [[[ ]]] {{{ }}} <<< >>> ||| \\\\\\ /// ~~~ ``` \"\"\" '''
?!?!?! ,.,. -_-_ :-) ;-P :'( <3 </3 ^_^ o_O (╯°□°)╯︵ ┻━┻ ¯\\_(ツ)_/¯
Temperature: -5°C ± 0.5; area: 12 m²; volume: 3 m³; angle 45°; £5 €6 ¥7 ₹8 ₿9
naïve café résumé façade coöperate Zoë Brontë El Niño jalapeño piñata über Straße
""".split("\n")[:-1]

PARAGRAPHS = [
    "  two  spaces  between  words  ",
    "trailing spaces   ",
    "Roses are red,\nViolets are blue,\nSugar is sweet,\nAnd so are you.",
    "# Heading\n\n* item one\n* item two\n    * nested\n\n1. first\n2. second\n\n> quote\n\n```\ncode\n```\n",
    "| a | b |\n|---|---|\n| 1 | 2 |\n",
    "Dear Sir or Madam,\r\n\r\nThank you for your letter.\r\n\r\nYours faithfully,\r\nA. Person\r\n",
    "First paragraph.\n\nSecond paragraph.\n\n\nThird paragraph.\n\n\n\n\nFourth.",
    "\ttabbed\tcolumns\there",
    "mixed \t tabs \t and \n newlines \r\n and \r returns",
]

CODE = [
    '#include <stdio.h>\n\nint main(int argc, char **argv)\n{\n\tprintf("hello, %s: %d\\n", argv[0], argc);\n\treturn 0;\n}\n',
    "static inline uint64_t rotl(const uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }",
    "for (size_t i = 0; i < n; i++)\n    if (p[i] != '\\0' && *q++ == 0xFFu) goto out;\n",
    "#define MAX(a, b) ((a) > (b) ? (a) : (b)) /* careful */\n",
    "struct node { struct node *next; void (*fn)(int, ...); unsigned x : 3; };",
    "def fib(n):\n    a, b = 0, 1\n    while a < n:\n        print(a, end=' ')\n        a, b = b, a+b\n    print()\n",
    "import numpy as np\nx = np.zeros((3, 4), dtype=np.float32)[..., None]\nassert x.shape == (3, 4, 1), f\"{x.shape!r}\"\n",
    "@dataclass(frozen=True)\nclass Point:\n    x: float = 0.0\n    y: float = 1e-5\n\n    def __repr__(self) -> str:\n        return f'Point({self.x}, {self.y})'\n",
    "if __name__ == \"__main__\":\n\tsys.exit(main(sys.argv[1:]))\n",
    "fn main() {\n    let v: Vec<u32> = (0..10).filter(|x| x % 2 == 0).collect();\n    println!(\"{:?}\", v);\n}\n",
    "impl<'a, T: 'a + Clone> Iterator for Foo<'a, T> { type Item = &'a T; }",
    "package main\n\nimport \"fmt\"\n\nfunc main() {\n\tch := make(chan int, 1)\n\tgo func() { ch <- 42 }()\n\tfmt.Println(<-ch)\n}\n",
    "const f = async (x) => { await fetch(`/api/${x}?q=1`); return x ?? null; };\n",
    "document.querySelectorAll('.a > b').forEach(e => e.style.color = '#ff00aa');",
    "interface A<T extends object = {}> { readonly [k: string]: T | undefined; }",
    "<!DOCTYPE html>\n<html lang=\"en\">\n  <head><title>Hi &amp; bye</title></head>\n  <body class='x'><br/></body>\n</html>\n",
    "body { margin: 0 auto; font: 12px/1.5 \"Helvetica Neue\", sans-serif; } /* x */ a:hover::after { content: \"\\201C\"; }",
    "SELECT a.id, COUNT(*) AS n FROM t1 a LEFT JOIN t2 b ON a.id = b.a_id WHERE b.x IS NOT NULL GROUP BY 1 HAVING n > 10;",
    "#!/bin/bash\nset -euo pipefail\nfor f in *.txt; do [ -f \"$f\" ] && wc -l < \"$f\" | sed -E 's/^ +//' >> out.log 2>&1; done\n",
    "all: main.o\n\t$(CC) $(CFLAGS) -o $@ $^ -lm\n\n.PHONY: clean\nclean:\n\trm -f *.o\n",
    "{\"name\": \"x\", \"list\": [1, 2.5e-3, -7, true, null], \"nested\": {\"a\\u00e9\": \"\\n\"}}",
    "name: build\non: [push]\njobs:\n  test:\n    runs-on: ubuntu-22.04\n    steps:\n      - run: make -j4 check\n",
    "[package]\nname = \"x\"\nversion = \"0.1.0\"\n\n[dependencies]\nserde = { version = \"1\", features = [\"derive\"] }\n",
    "public static void main(String[] args) throws Exception { System.out.println(List.of(1, 2, 3)); }",
    "main :: IO ()\nmain = mapM_ print $ takeWhile (< 100) [x * x | x <- [1 ..], odd x]\n",
    "(defun fact (n) (if (<= n 1) 1 (* n (fact (- n 1)))))",
    "let rec map f = function [] -> [] | x :: xs -> f x :: map f xs;;",
    "\\begin{equation}\n  \\int_0^\\infty e^{-x^2}\\,dx = \\frac{\\sqrt{\\pi}}{2}\n\\end{equation}\n",
    "__global__ void add(float *a, const float *b, int n) { int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) a[i] += b[i]; }",
    "mov eax, [ebx+4*ecx-8] ; load\njne .L3\nxor %rax,%rax\nvfmadd231ps %zmm0, %zmm1, %zmm2\n",
    "diff --git a/x.c b/x.c\n@@ -1,4 +1,5 @@\n int x;\n-int y = 1;\n+int y = 2;\n+int z;\n",
    "commit 3f2a9c0d1e4b5a69788776655443322110ffeedd\nAuthor: A <a@b.c>\n\n    Fix #123: off-by-one (closes GH-9)\n",
    "$x = array('a' => 1, \"b\" => $y['c']); echo \"{$x['a']}\\n\"; ?>\n",
    "puts [1,2,3].map { |x| x**2 }.inject(:+) unless @done; $stderr << :sym\n",
    "x <- c(1, 2, NA); y <- x[!is.na(x)] %>% mean(na.rm = TRUE)\n",
    "my %h = (a => 1); $s =~ s/\\s+$//g; print \"$_\\n\" for sort keys %h;\n",
    "        deeply\n            indented\n                lines\n\t\t\twith\n\t    \tmixed\n",
    "int\tx\t=\t0x1F;\t\t// trailing\t\n\n\n\n\treturn;\n",
    "\\d+(?:\\.\\d+)?([eE][+-]?\\d+)? ^[a-z0-9_-]{3,16}$ (?<!x)(?=y)",
    "C:\\Users\\name\\Documents\\file (1).txt /usr/local/lib/libfoo.so.1.2.3 ~/.bashrc ../a/./b//c",
    "sk_test_4eC39HqLyjWDarjtT1zdP7dc  MD5: d41d8cd98f00b204e9800998ecf8427e  aGVsbG8gd29ybGQ=",
    "0b1010 0o755 0xDEADBEEF 1_000_000 1e10 .5f 6.02e+23L 1u << 31",
]

# One or two sentences in many languages and scripts (most: article 1 of the Universal Declaration).
LANGUAGES = """Tous les êtres humains naissent libres et égaux en dignité et en droits. L'œuvre d'Éric, où ça ?
Alle Menschen sind frei und gleich an Würde und Rechten geboren. Größe, Äpfel, ẞ.
Todos los seres humanos nacen libres e iguales en dignidad y derechos. ¿Qué? ¡Sí, mañana!
Todos os seres humanos nascem livres e iguais em dignidade e em direitos. Não há pão; coração.
Tutti gli esseri umani nascono liberi ed eguali in dignità e diritti. Perché no? C'è.
Alle mensen worden vrij en gelijk in waardigheid en rechten geboren. 's Avonds, 't is zo.
Alla människor är födda fria och lika i värde och rättigheter. Åäö.
Alle mennesker er født frie og lige i værdighed og rettigheder. Ærø, Ålborg.
Kaikki ihmiset syntyvät vapaina ja tasavertaisina arvoltaan ja oikeuksiltaan. Hääyöaie.
Hver maður er borinn frjáls og jafn öðrum að virðingu og réttindum. Þórður Ægisson.
Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw. Zażółć gęślą jaźń.
Všichni lidé rodí se svobodní a sobě rovní co do důstojnosti a práv. Příliš žluťoučký kůň.
Všetci ľudia sa rodia slobodní a sebe rovní. Ĺ, ŕ, ô.
Minden emberi lény szabadon születik és egyenlő méltósága és joga van. Árvíztűrő tükörfúrógép.
Toate ființele umane se nasc libere și egale în demnitate și în drepturi. Țăran, școală.
Sva ljudska bića rađaju se slobodna i jednaka u dostojanstvu i pravima. Čćžšđ ǆ ǉ ǌ.
Të gjithë njerëzit lindin të lirë dhe të barabartë në dinjitet dhe në të drejta.
Visi žmonės gimsta laisvi ir lygūs savo orumu ir teisėmis. Ąčęėįšųūž.
Visi cilvēki piedzimst brīvi un vienlīdzīgi savā pašcieņā un tiesībās. Ķģļņ.
Kõik inimesed sünnivad vabadena ja võrdsetena oma väärikuselt ja õigustelt.
Bütün insanlar hür, haysiyet ve haklar bakımından eşit doğarlar. İstanbul, ığdır.
Bütün insanlar ləyaqət və hüquqlarına görə azad bərabər doğulurlar. Əə.
Saoláitear na daoine uile saor agus comhionann i ndínit agus i gcearta. ḃċḋḟġṁṗṡṫ
Genir pawb yn rhydd ac yn gydradd â'i gilydd mewn urddas a hawliau. Ŵŷ.
Gizon-emakume guztiak aske jaiotzen dira, duintasun eta eskubide berberak dituztela.
Tots els éssers humans neixen lliures i iguals en dignitat i en drets. Col·legi, l'illa.
Il-bnedmin kollha jitwieldu ħielsa u ugwali fid-dinjità u d-drittijiet. Ġħż.
Mọi con người sinh ra đều được tự do và bình đẳng về nhân phẩm và quyền lợi. Ưu tiên, đường.
Semua manusia dilahirkan merdeka dan mempunyai martabat dan hak-hak yang sama.
Lahat ng mga tao'y isinilang na malaya at pantay-pantay sa karangalan at mga karapatan.
Watu wote wamezaliwa huru, hadhi na haki zao ni sawa.
Gbogbo ènìyàn ni a bí ní òmìnira; iyì àti ẹ̀tọ́ kọ̀ọ̀kan sì dọ́gba.
Su dukka 'yan-adam, ana haifuwarsu ne duka 'yantattu. Ƙ, ɗ, ɓ.
Bonke abantu bazalwa bekhululekile belingana ngesithunzi nangamalungelo.
Ua hānau kūʻokoʻa ʻia nā kānaka apau loa. ʻOkina: ʻ
Ĉiuj homoj estas denaske liberaj kaj egalaj laŭ digno kaj rajtoj. Eĥoŝanĝo ĉiuĵaŭde.
Все люди рождаются свободными и равными в своём достоинстве и правах. Съешь ещё этих булок.
Всі люди народжуються вільними і рівними у своїй гідності та правах. Їжак, ґанок, об'єкт.
Усе людзі нараджаюцца свабоднымі і роўнымі ў сваёй годнасці і правах.
Всички хора се раждат свободни и равни по достойнство и права.
Сва људска бића рађају се слободна и једнака у достојанству и правима. Ђћџљњ.
Барлық адамдар тумысынан азат және қадір-қасиеті мен құқықтары тең. Әңғүұқөһ.
Хүн бүр төрж мэндлэхэд эрх чөлөөтэй, адилхан нэр төртэй байдаг. Ѵѳѣ҂҈
Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια και τα δικαιώματα. ΐΰ
Ἄνδρα μοι ἔννεπε, μοῦσα, πολύτροπον, ὃς μάλα πολλὰ πλάγχθη. ᾧ ᾳ ῥ
Բոլոր մարդիկ ծնվում են ազատ ու հավասար իրենց արժանապատվությամբ ու իրավունքներով։
ყველა ადამიანი იბადება თავისუფალი და თანასწორი თავისი ღირსებითა და უფლებებით. ᲐᲑᲒ
يولد جميع الناس أحرارًا متساوين في الكرامة والحقوق. مُحَمَّدٌ ٱلْقُرْآن ـــ؟
تمام افراد بشر آزاد به دنیا می‌آیند و از لحاظ حیثیت و حقوق با هم برابرند. ۱۲۳۴
تمام انسان آزاد اور حقوق و عزت کے اعتبار سے برابر پیدا ہوئے ہیں۔ ٹڈڑے
כל בני האדם נולדו בני חורין ושווים בערכם ובזכויותיהם. בְּרֵאשִׁית בָּרָא צה״ל
אַלע מענטשן זײַנען געבוירן פֿרײַ און גלײַך אין כּבֿוד און רעכט.
ܟܠ ܒܪܢܫܐ ܒܪܝܠܗ ܚܐܪܐ ܘܒܪܒܪ ܓܘ ܐܝܩܪܐ ܘܙܕܩܐ
ހުރިހާ އިންސާނުން ވެސް އުފަންވަނީ މިނިވަންކަމުގައި
सभी मनुष्यों को गौरव और अधिकारों के मामले में जन्मजात स्वतन्त्रता प्राप्त है। क्षत्रिय १२३
सर्व मनुष्यजात जन्मतःच स्वतंत्र आहे व सर्वजणांना समान प्रतिष्ठा व समान अधिकार आहेत.
समस्त मानव स्वभावतः स्वतन्त्राः एव जायन्ते ॥ ॐ ॥
সমস্ত মানুষ স্বাধীনভাবে সমান মর্যাদা এবং অধিকার নিয়ে জন্মগ্রহণ করে। ৪৫৬
ਸਾਰਾ ਮਨੁੱਖੀ ਪਰਿਵਾਰ ਆਪਣੀ ਮਹਿਮਾ, ਸ਼ਾਨ ਅਤੇ ਹੱਕਾਂ ਦੇ ਪੱਖੋਂ ਜਨਮ ਤੋਂ ਹੀ ਆਜ਼ਾਦ ਹੈ।
પ્રતિષ્ઠા અને અધિકારોની દૃષ્ટિએ સર્વ માનવો જન્મથી સ્વતંત્ર અને સમાન હોય છે.
ସବୁ ମନୁଷ୍ୟ ଜନ୍ମକାଳରୁ ସ୍ୱାଧୀନ। ସେମାନଙ୍କର ମର୍ଯ୍ୟାଦା ଓ ଅଧିକାର ସମାନ।
மனிதப் பிறிவியினர் சகலரும் சுதந்திரமாகவே பிறக்கின்றனர். ௧௨௩ ஸ்ரீ
ప్రతిపత్తిస్వత్వముల విషయమున మానవులెల్లరును జన్మతః స్వతంత్రులును సమానులును నగుదురు.
ಎಲ್ಲಾ ಮಾನವರೂ ಸ್ವತಂತ್ರರಾಗಿಯೇ ಜನಿಸಿದ್ದಾರೆ. ೧೨೩
മനുഷ്യരെല്ലാവരും തുല്യാവകാശങ്ങളോടും അന്തസ്സോടും സ്വാതന്ത്ര്യത്തോടുംകൂടി ജനിച്ചിട്ടുള്ളവരാണ്‌. ൧൨
සියලු මනුෂ්‍යයෝ නිදහස්ව උපත ලබා ඇත. ශ්‍රී ලංකාව
มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ ๑๒๓ ๆ ฯลฯ น้ำ
ມະນຸດທຸກຄົນເກີດມາມີກຽດສັກສີ, ສິດທິ, ເສລີພາບ. ໑໒
လူတိုင်းသည် တူညီ လွတ်လပ်သော ဂုဏ်သိက္ခာဖြင့် လည်းကောင်း မွေးဖွားလာသူများ ဖြစ်သည်။ ၁၂၃
មនុស្សទាំងអស់ កើតមកមានសេរីភាព និងសមភាព ក្នុងផ្នែកសេចក្ដីថ្លៃថ្នូរ។ ១២៣
འགྲོ་བ་མིའི་རིགས་རྒྱུད་ཡོངས་ལ་སྐྱེས་ཙམ་ཉིད་ནས། ༡༢༣ ༼ ༽
人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。
人人生而自由，在尊嚴和權利上一律平等。臺灣「引號」《書名》、頓號……破折號——
すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。ＡＢＣ１２３　全角
カタカナとひらがなとｶﾀｶﾅﾞ。東京タワーは333mです。〜ヶ々〆ー
모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다. 3월 1일, ㄱㄴㄷ ㅋㅋㅋ
ꆈꌠꉙ ꊿꂷꃅꄿꐨꐥ，ꌅꅍꀂꏽꐯꒈꃅꐥꌐ。
የሰው ልጅ ሁሉ ሲወለድ ነፃና በክብርና በመብትም እኩልነት ያለው ነው። ፩፪፫ ፲
ᎠᏂᎦᏔᎲᏍᎩ ᏂᎦᏓ ᎠᏂᏴᏫ ᏂᎨᎫᏓᎸᎾ ꭰꭱꭲ
ᐃᓄᓕᒫᑦ ᐊᓂᖅᑎᕆᔪᓕᒫᑦ ᐃᓅᓚᐅᕐᒪᑕ ᐃᓱᒪᕐᓱᕐᖢᑎᒃ
ᠬᠦᠮᠦᠨ ᠪᠦᠷ ᠲᠥᠷᠥᠵᠦ ᠮᠡᠨᠳᠡᠯᠡᠬᠦ ᠠᠮᠢᠨ᠎ᠠ ᠪᠠᠢᠢᠭᠤᠯᠤᠯᠲᠠ
ⵉⵎⴷⴰⵏⴻⵏ, ⴰⴽⴽⴻⵏ ⵎⴰ ⵍⵍⴰⵏ ⵜⵜⵍⴰⵍⵏ ⴷ ⵉⵍⴻⵍⵍⵉⵢⵏ
ᚠᛇᚻ᛫ᛒᛦᚦ᛫ᚠᚱᚩᚠᚢᚱ᛫ᚠᛁᚱᚪ᛫ᚷᛖᚻᚹᛦᛚᚳᚢᛗ ᛮᛯ
𐌰𐌻𐌻𐌰𐌹 𐌼𐌰𐌽𐌽𐌰 𐍆𐍂𐌴𐌹𐌰𐌹 𐍁𐍊
𓀀𓁐𓂀 𒀀𒁀𒐀 𐎠𐎡 𐤀𐤁 𐏑
𝓗𝓮𝓵𝓵𝓸 𝕎𝕠𝕣𝕝𝕕 𝟙𝟚𝟛 𝛼𝛽𝛾 𝐀𝐁 𝟎𝟗
""".split("\n")[:-1]

EMOJI = ["😀", "😀😃😄", "👍🏽", "👩‍💻", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇫🇷🇩🇪", "🇺🇳 🇪🇺", "🏴󠁧󠁢󠁳󠁣󠁴󠁿", "❤️", "❤", "☺️ ☹", "1️⃣2️⃣#️⃣*️⃣", "🤷🏿‍♀️",
         "I ❤️ NY 🗽!", "👩🏻‍🤝‍👨🏿", "✅ done ❌ failed ⚠️", "🎉🎉🎉", "🚀 to the 🌕", "a😀b", " 😀", "😀 ", "😀\n", "🧑🏾‍🚀", "⌚⏰",
         "🄰🅰️🆎", "㊗️㊙️", "™️ © ®", "🫠🫡🫶", "🥹", "👁️‍🗨️", "\U0001F1E6", "\u200D", "\uFE0F", "\U0001F3FD"]

# Every kind of digit and number: Nd, Nl, No.
DIGITS = ["0", "00", "007", "12", " 12", "12 ", "a1", "1a", "a 12", "a12b", "1 2 3", "1  2", "1.5", "-1", "$100", "10%", "1,000", "1e5",
          "x2y3z4", "3.14.15", "2024", "12:34", "٠١٢٣", "۰۱۲۳", "०१२३", "০১২", "๐๑๒", "０１２", "𝟘𝟙𝟚", "²³¹", "m²", "x⁰⁴", "₀₁₂", "H₂O",
          "½ ¼ ¾", "1½", "⅓⅔", "⅐", "Ⅰ Ⅱ Ⅲ Ⅳ", "ⅰⅱ", "ↀↁↂↃↄ", "①②③", "⑴⒈", "⓪", "❶➀➊", "〇〡〢〣", "㈠㊀", "㉑㊿", "㆒㆓", "一二三", "፩፪", "༳", "௰", "൰",
          "৴", "৹", "౸", "ᛮ", "𐅀𐄇", "𐏑", "𒐀", "𐌠", "𝍠", "𞥐𞥑", "🄀🄁", "🯰🯱", "𐹠", "ꛦ", "ꣀꣁ", "꧐", "᠐᠑", "᧐᧚", "႐", "០៰", "⳽", "𐡘",
          "a²b", " ²", " ½", "²²", "a½", "½a", " ½a", "1²", "²1", "5⅞ inches", "№ 5", "Ⅷ. Kapitel", "Henry Ⅷ", "x₁+x₂", "10⁻³", "a1b2c3d4",
          "1234567890" * 3, " 1 2 3 ", "\n1\n2\n", "1\t2", "0x1F", "1’000", "1\u00a0000", "1\u202f000", "１２３ＡＢＣ", "𑁦𑁒", "𑇡", "𖩠𖭐𖭛", "𞣇", "𐴰",
          "߀߁", "꤀꩐꯰", "᥆᪀᪐᭐᮰᱀᱐", "𑓐𑙐𑛀𑜰𑣠𑱐𑵐", "𞋰𞅀"]

SPACES = [" ", "  ", "   ", "    ", " " * 5, " " * 8, " " * 16, " " * 33, " " * 100, "\t", "\t\t", "\t\t\t\t", "\n", "\n\n", "\n\n\n", "\n" * 9,
          "\r", "\r\n", "\r\n\r\n", "\n\r", " \n", "\n ", " \n ", "  \n  ", "\t\n", "\n\t", " \t", "\t ", " a", "  a", "   a", "a ", "a  ", "a b",
          "a  b", "a   b", "a\nb", "a\n\nb", "a \nb", "a\n b", "a \n b", "a\tb", "a\t\tb", "a \tb", "a\t b", "a\r\nb", "a\rb", "\ta", "\t\ta", "\n\na",
          " .", "  .", "   .", ". ", ".  ", ".\n", ".\n\n", " .\n", "\n.", "\n .", "  1", " 1", "1  ", "\n1", "\t1", " \u00e9", "  \u00e9", " '", "  's",
          " 's", "a 's", "a  's", "'s ", "'s's", "\u00a0", "\u00a0\u00a0", "a\u00a0b", " \u00a0", "\u00a0 ", "\u00a0a", " \u00a0a", "\u00a0 a", "\u00a0.",
          "\u00a01", "\u3000", "\u3000\u3000a", "a\u3000b", "\u3000 a", "\u2028", "a\u2028b", "\u2029", "\u2028\u2028x", "\u0085", "a\u0085b", "\u000b",
          "\u000c", "a\u000bb\u000cc", "\u1680", "a\u1680b", "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a", "a\u2009b", "\u202f",
          "a\u202fb", "\u205f", "\u205f\u205fa", "\u180e", "a\u180eb", "a \u180e b", "\u180e\u180e", " \u180ex", "a \u180ex", "  \u180ea", "\u180e.", ". \u180e.", " \u0085x", "\u180e1", "\u200b", "a\u200bb", " \u200b ", "\u200c\u200d", "a\u200cb", "\u2060",
          "\ufeff", "\ufeffHello", "a\ufeff b", "\u00ad", "co\u00adop", "\u200e\u200f", "\u202a\u202e\u202c", "\u2066x\u2069", "\u061c", "\u034f", "\u115f\u1160", "\u3164",
          "\uffa0", "\u2800", "\u001c", "a\u001cb", " \u001c ", "\u001d\u001e\u001f", "a\u001fb"]

MARKS = ["e\u0301", "cafe\u0301", "a\u0301b", " \u0301", "\u0301", "\u0301\u0301", "\u0301a", "a\u0308\u0301", "o\u0302\u0323", "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d\u034f\u0334\u0319\u0324\u031e",
         "n\u0303o", "\u0928\u093f", "\u0e19\u0e49\u0e33", "\u05e9\u05c1", "\u0644\u064e\u0651", "1\u0301", "1\u20e3", ".\u0301", " a\u0301 ", "'s\u0301", "x\u20d7", "a\u20dd",
         "\u1100\u1161\u11a8", "\uac00\u11a8", "\u212b \u2126 \u212a", "\ufb01 \ufb03", "\u01c5", "\u00aa\u00ba", "\u02b0\u02bc", "\u0149", "k\u0338", "\u0f71\u0f72",
         "\u0958", "\u0915\u093c", "\ud55c\uae00 \u1112\u1161\u11ab", "\uf900\uf901", "\U0002f800", "\u1e9b\u0323", "\u0344", "\u0387", "\u1fbe"]

CONTROL = ["\u0001", "\u0002", "\u0003", "\u0004", "\u0005", "\u0006", "\u0007", "\u0008", "\u000e", "\u000f", "\u0010", "\u0011", "\u0012", "\u0013", "\u0014", "\u0015", "\u0016",
           "\u0017", "\u0018", "\u0019", "\u001a", "\u001b", "\u007f", "\u0080", "\u0090", "\u009f", "\u001b[31mred\u001b[0m", "a\u0001b", "a\u0004b", "the\u0004re",
           "ing\u0006ing", " \u0004the", "t\u0004he", "hel\u0013lo wor\u0014ld", "\u0004\u0004", "a\u001db\u0016c", "\u0001\u0002\u0003", " \u0001 ", "\u0007.\u0007", "\u007f\u007f",
           "x\u0080y", "\u0091quoted\u0092", "\n\u0004\n", " \u0004 ", "\u0004 \u0004", "'\u0004s", "1\u00042", ".\u0004.", "-\u0004-", "=\u0006==", "!\u0016!!", " \u001d(", "\"\u0013,", "\u0004...",
           ".\U00040000.", "\U00040000", "-\U00080000\u0004-", "\u0001\u0004\u0002"]

PRIVATE = ["\ue000", "\uf8ff", "a\ue000b", "\U000f0000", "\U0010fffd", "x\U0010fffdy", "\ufffd", "\ufffd\ufffd", "\ufffc", "\U000e0001", "\U000e0100", "a\U000e0101", "\U00040000",
           "\U000e0020", "\U00100000\U00100001", "\ufdd0", "\uffff", "\U0001ffff", "\U00050000", "\U000b1234", "a\U00040000b", "th\U00040000e"]

LONG = ["a" * 100, "ab" * 80, "A" * 64, "e" * 257, "x" * 300, "0" * 64, "-" * 80, "=" * 100, "." * 50, "*" * 33, "_" * 40, "#" * 17, "/" * 25, "!" * 200, " a" * 60, "ha" * 50,
        "the" * 60, "é" * 40, "中" * 40, "😀" * 12, "\n" * 64, "\t" * 40, "\r\n" * 20, " \n" * 20, "a " * 50, "1 " * 20, "Pneumonoultramicroscopicsilicovolcanoconiosis",
        "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft", "Llanfairpwllgwyngyllgogerychwyrndrobwllllantysiliogogoch",
        "thequickbrownfoxjumpsoverthelazydog" * 4, "ATGCGATACGCTTGA" * 12, "aHR0cHM6Ly9leGFtcGxlLmNvbS9hL2I/Yz1kJmU9ZiNn" * 3, "internationalization" * 6,
        "๐" * 20, "กขคงจ" * 12, "'s" * 30, "''" * 20, "\"" * 30, "()" * 30, "{}[]" * 20, "<|" * 20, "|>" * 20, "abcdefghijklmnopqrstuvwxyz" * 3]

# Where one character of each of these stretches is taken (first, last, and seeded ones in between).
BLOCKS = """0020-007E 00A0-00FF 0100-017F 0180-024F 0250-02AF 02B0-02FF 0300-036F 0370-03FF 0400-04FF 0500-052F 0531-058F 0591-05F4 0600-06FF 0700-074F
0750-077F 0780-07B1 07C0-07FA 0800-083E 0840-085E 08A0-08B4 0900-097F 0980-09FE 0A01-0A76 0A81-0AFF 0B01-0B77 0B82-0BFA 0C00-0C7F 0C80-0CF2 0D00-0D7F
0D81-0DF4 0E01-0E5B 0E81-0EDF 0F00-0FDA 1000-109F 10A0-10FF 1100-11FF 1200-139F 13A0-13FD 1400-167F 1680-169C 16A0-16F8 1700-1714 1720-1736
1780-17F9 1800-18AA 1900-194F 1950-1974 1980-19DF 1A00-1A1F 1A20-1AAD 1B00-1B7C 1B80-1BBF 1BC0-1BFF 1C00-1C4F 1C50-1C7F 1C90-1CBF 1CD0-1CF9 1D00-1DBF 1E00-1EFF
1F00-1FFE 2010-2027 2030-205E 2070-209C 20A0-20BF 20D0-20F0 2100-214F 2150-218B 2190-21FF 2200-22FF 2300-23FF 2400-2426 2440-244A 2460-24FF 2500-257F 2580-259F
25A0-25FF 2600-26FF 2700-27BF 27C0-27EF 27F0-27FF 2800-28FF 2900-297F 2980-29FF 2A00-2AFF 2B00-2BFF 2C00-2C5E 2C60-2C7F 2C80-2CFF 2D00-2D2D 2D30-2D7F 2D80-2DDE
2DE0-2DFF 2E00-2E4F 2E80-2EF3 2F00-2FD5 2FF0-2FFB 3001-303F 3041-309F 30A0-30FF 3105-312F 3131-318E 3190-319F 31A0-31BA 31C0-31E3 31F0-31FF 3200-32FE 3300-33FF
3400-4DB5 4DC0-4DFF 4E00-9FEF A000-A4C6 A4D0-A4FF A500-A62B A640-A69F A6A0-A6F7 A700-A71F A722-A7BF A800-A82B A830-A839 A840-A877 A880-A8D9 A8E0-A8FF A900-A92F
A930-A953 A960-A97C A980-A9DF A9E0-A9FE AA00-AA5F AA60-AA7F AA80-AADF AAE0-AAF6 AB01-AB2E AB30-AB67 AB70-ABBF ABC0-ABF9 AC00-D7A3 D7B0-D7FB E000-F8FF F900-FAD9
FB00-FB17 FB1D-FB4F FB50-FDFD FE00-FE19 FE20-FE2F FE30-FE4F FE50-FE6B FE70-FEFC FF01-FFEE 10000-100FA 10100-1018E 101D0-101FD 10280-1029C 102A0-102FB 10300-1031F
10330-1034A 10350-1037A 10380-1039F 103A0-103D5 10400-1044F 10450-104FB 10530-1056F 10600-10767 10800-10855 10857-1089F 108E0-1091F 10920-1095F 10980-109FF
10A00-10A58 10A60-10A9F 10AC0-10AFF 10B00-10B7F 10C00-10C48 10C80-10CFF 10E60-10E7E 11000-1106F 11080-110C1 110D0-110F9 11100-11143 11150-11176 11180-111DF
11200-1123E 112B0-112F9 11300-11374 11400-1145E 11480-114D9 11580-115DD 11600-11659 11680-116C9 11700-1173F 118A0-118FF 11A00-11A47 11AC0-11AF8 11C00-11C6C
12000-12399 12400-12474 13000-1342E 14400-14646 16800-16A38 16A40-16A6F 16AD0-16AF5 16B00-16B8F 16F00-16F9F 17000-187EC 1B000-1B11E 1BC00-1BC9F 1D000-1D0F5
1D100-1D1E8 1D200-1D245 1D300-1D371 1D400-1D7FF 1D800-1DAAF 1E000-1E02A 1E800-1E8D6 1E900-1E95F 1EC71-1ECB4 1EE00-1EEF1 1F000-1F02B 1F030-1F093 1F0A0-1F0F5
1F100-1F1AC 1F1E6-1F202 1F210-1F251 1F300-1F5FF 1F600-1F64F 1F650-1F67F 1F680-1F6FA 1F700-1F773 1F780-1F7D8 1F800-1F8AD 1F900-1F9FF 1FA60-1FA6D 20000-2A6D6
2A700-2B734 2B740-2B81D 2B820-2CEA1 2CEB0-2EBE0 2F800-2FA1D E0100-E01EF F0000-FFFFD 100000-10FFFD""".split()


def assigned(c):
    """In Unicode 14 or before (so that no library here can know less): not the newer characters."""
    return unicodedata.category(c) not in ("Cn", "Cs")


def singles(rng):
    out = []
    for block in BLOCKS:
        first, last = (int(x, 16) for x in block.split("-"))
        n = min(last - first - 1, 5 if last < 0x3400 else 3)
        for cp in sorted({first, last, *rng.sample(range(first + 1, last), n)}):
            c = chr(cp)
            if assigned(c):
                out.append(rng.choice([c, c, c, " " + c, c + "1", "a" + c, c + "a", c + c, c + " ", "." + c, " " + c + "'s"]))
    return out


def special_texts(special):
    out = list(special)
    out += ["a" + t + "b" for t in special[:6]]
    out += [" " + t + " " for t in special[:3]] + [t + t for t in special[:4]]
    out += ["<|im_start|>user\nhi<|im_end|>", "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n<|im_start|>user\n"
            "What is 12 + 30?<|im_end|>\n<|im_start|>assistant\n", "<|im_start|>", "<|im_start|", "<|im_start", "<|im_", "<|", "<", "|>", "im_start|>", "<|im_start|>>",
            "<<|im_start|>", "<|<|im_start|>|>", "<|im_start|><|im_end|>", "<|im_start|>\n<|im_end|>\n", "<|IM_START|>", "<|im_start |>", "< |im_start|>", "<|im_sta\u200brt|>",
            "<|im_end|>\n<|im_start|>assistant\n", "Hello<|endoftext|>World", "<|endoftext|> ", " <|endoftext|>", "\n<|endoftext|>\n", "<|endoftext|>1<|endoftext|>",
            "'<|im_end|>s", "1<|im_end|>2", "caf\u00e9<|im_end|>\u0301", "<repo_name>a/b<file_sep>x.py\nprint(1)<|endoftext|>", "<filename>x.c<gh_stars>100-1000\nint x;",
            "<reponame>", "<repo_name", "<reponame><repo_name>", "<issue_start>username_0: bug<issue_comment>username_1: no<issue_closed>", "<jupyter_start><jupyter_text>x<jupyter_code>y"
            "<jupyter_output><empty_output><jupyter_script>", "<issue_star><issue_start>", "a<|im_end|", "<|im_end|>\u4e2d\u6587<|im_start|>\u65e5\u672c", "<empty_output><empty_outpu",
            "   <|im_start|>   ", "\t<|im_end|>\t", "<|endoftext|><|im_start|><|im_end|><repo_name><reponame><file_sep><filename>", "<|begin_of_text|>", "<s>", "</s>", "<unk>", "[INST]",
            "<|eot_id|>", "<pad>", "<mask>", "\u0120hello", "\u010a", "\u0120", "a\u0120b\u010ac", "\u0100\u0143", "\u2581hello", "<0x0A>", "\\n", "Ġthe", "ĊĊ"]
    for role in ("system", "user", "assistant"):
        for body in ("", " ", "x", "Tell me a joke.", "1\n2\n3", "```python\nprint('hi')\n```", "\u4f60\u597d", "<|im_start|>", "\n\n"):
            out.append(f"<|im_start|>{role}\n{body}<|im_end|>\n")
    return out


def mixtures(rng, n, pieces, low, high):
    return ["".join(rng.choice(pieces) for _ in range(rng.randint(low, high))) for _ in range(n)]


def texts(special):
    rng = random.Random(SEED)
    out = [""] + ENGLISH + PARAGRAPHS + CODE + LANGUAGES + EMOJI + DIGITS + SPACES + MARKS + CONTROL + PRIVATE + LONG + special_texts(special)
    out += [chr(c) for c in range(1, 128)]
    out += singles(rng)
    words = sorted({w for line in ENGLISH + LANGUAGES[:8] for w in line.split()})
    blanks = [" ", " ", "  ", "   ", "\n", "\n\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\u0085", "\u2003", "\u200b"]
    marks = list("!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~") + ["...", "--", "''", "\u2026", "\u2014", "\u00bf", "\u3002", "\uff0c"]
    letters = list("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ") + list("éüñßøāčğłőřşțżабвгдежзαβγδεאבגאلعمहिन्दीไทย中文字日本語한국어")
    clitics = ["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'T", "'LL", "'RE", "'", "\u2019s", "'\u017f"]
    numbers = ["0", "1", "42", "2024", "3.14", "1,000", "\u00b2", "\u00bd", "\u0663", "\u0967", "\u2167", "\uff11", "\u2460", "\u3007"]
    odd = ["\u0301", "\u0308", "\u200d", "\ufe0f", "😀", "👍🏽", "🇫🇷", "\ue000", "\U00020000", "\u0001", "\u0004", "\u001b", "\U000f0000", "\u00ad"]
    out += mixtures(rng, 170, blanks + ["a", "1", "."], 2, 9)
    out += mixtures(rng, 120, words + blanks[:4], 3, 9)
    out += mixtures(rng, 90, letters, 2, 12)
    out += mixtures(rng, 80, marks + [" "], 2, 9)
    out += mixtures(rng, 90, clitics + [" ", "a", "I", "1", "\n", "don"], 2, 7)
    out += mixtures(rng, 90, numbers + [" ", "a", ".", "-", "\n"], 2, 8)
    out += mixtures(rng, 60, odd + [" ", "a", "1", "."], 2, 7)
    out += mixtures(rng, 70, special + ["<|", "|>", "im_start", "<", ">", " ", "\n", "a", "1"], 2, 6)
    out += mixtures(rng, 200, words + blanks + marks + letters + clitics + numbers + odd + special[:3], 4, 16)
    for _ in range(60):          # any assigned characters at all
        line = ""
        while len(line) < 6:
            c = chr(rng.choice([rng.randrange(0x80, 0x800), rng.randrange(0x800, 0x10000), rng.randrange(0x10000, 0x20000)]))
            line += c if assigned(c) else ""
        out.append(line)
    for line in rng.sample(CODE + ENGLISH + PARAGRAPHS, 50):   # cut anywhere
        a = rng.randrange(len(line) // 2)
        out.append(line[a:a + rng.randint(3, 60)])
    lines = [line for line in ENGLISH + PARAGRAPHS + LANGUAGES + CODE if len(line) < 160]
    for _ in range(12):          # longer documents
        out.append(rng.choice(["\n", "\n\n", " ", "\r\n"]).join(rng.sample(lines, 6)))
    return list(dict.fromkeys(out))


def main(gguf, path):
    assert unicodedata.unidata_version == "14.0.0", "run with Python 3.11: the choice of characters depends on it"
    tok, special, missing = from_gguf(gguf)
    lossy = 0
    with open(path, "w", encoding="ascii", newline="\n") as out:
        lines = texts(special)
        for text in lines:
            raw = text.encode("utf-8")
            assert 0 not in raw
            ids = tok.encode(text, add_special_tokens=False).ids
            if missing & set(raw):
                lossy += 1
                kept = bytes(b for b in raw if b not in missing).decode("utf-8", "replace")
                assert tok.decode(ids, skip_special_tokens=False) == kept, text
            else:
                assert tok.decode(ids, skip_special_tokens=False) == text, text
            out.write(json.dumps({"text": text, "ids": ids}, ensure_ascii=True, separators=(",", ":")) + "\n")
    print(f"{path}: {len(lines)} texts, {lossy} of them with bytes that have no token: "
          + " ".join(f"{b:02x}" for b in sorted(missing)))


if __name__ == "__main__":
    main(*sys.argv[1:])
