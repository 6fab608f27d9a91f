"""strings.py - texts to compare tokenizers on: every script, emoji, spaces, control characters, code, marks, long words. Seeded."""
import random
import unicodedata

BLOCKS = [(0x20, 0x7E), (0xA0, 0xFF), (0x100, 0x24F), (0x250, 0x36F), (0x370, 0x3FF), (0x400, 0x52F), (0x530, 0x58F), (0x590, 0x5FF), (0x600, 0x6FF),
          (0x700, 0x74F), (0x900, 0x97F), (0x980, 0x9FF), (0xA00, 0xA7F), (0xB80, 0xBFF), (0xC00, 0xC7F), (0xD00, 0xD7F), (0xE00, 0xE7F), (0xE80, 0xEFF),
          (0xF00, 0xFFF), (0x1000, 0x109F), (0x10A0, 0x10FF), (0x1100, 0x11FF), (0x1200, 0x137F), (0x13A0, 0x13FF), (0x1780, 0x17FF), (0x1800, 0x18AF),
          (0x1E00, 0x1EFF), (0x1F00, 0x1FFF), (0x2000, 0x206F), (0x2070, 0x209F), (0x20A0, 0x20CF), (0x2100, 0x214F), (0x2190, 0x21FF), (0x2200, 0x22FF),
          (0x2460, 0x24FF), (0x2500, 0x257F), (0x2600, 0x26FF), (0x2E80, 0x2EFF), (0x3000, 0x303F), (0x3040, 0x309F), (0x30A0, 0x30FF), (0x3100, 0x312F),
          (0x4E00, 0x9FFF), (0xA000, 0xA48F), (0xAC00, 0xD7A3), (0xF900, 0xFAFF), (0xFB00, 0xFB4F), (0xFE30, 0xFE4F), (0xFF00, 0xFFEF), (0x10000, 0x1007F),
          (0x10400, 0x1044F), (0x1D400, 0x1D7FF), (0x1F300, 0x1F64F), (0x1F680, 0x1F6FF), (0x1F900, 0x1F9FF), (0x20000, 0x2A6DF)]
WORDS = ("the of and to in is that for it was on are as with his they at be this from I have or by one had not but what all were when we there can an "
         "your which their said if do will each about how up out them then she many some so these would other into has more her two like him see time "
         "could no make than first been its who now people my made over did down only way find use may water long little very after words called just "
         "where most know get through back much go good new write our me man too any day same right look think also around another came come work three "
         "I'm don't we'll it's THEY'RE You'd O'Brien naïve café Straße Größe Übung señor œuvre Ça π≈3.14159 x² H₂O ½ 1,234,567.89 2024-01-31 12:34:56 "
         "user@example.com https://example.org/a?b=c&d=e#f foo_bar fooBar __init__ std::vector<int> a->b x+=1; /* no */ // yes {\"k\": [1, 2]} <br/> "
         "Привет мир Καλημέρα κόσμε שלום עולם مرحبا بالعالم नमस्ते दुनिया こんにちは 世界 你好，世界。 안녕하세요 สวัสดี Xin chào Ấn Độ").split(" ")
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u2009", "\u200b", "\ufeff", "\u2028", "\u0085", " \n ", "    "]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "☕", "🧑🏿‍🚀", "1️⃣", "©", "™", "…", "—", "▁", "▁▁", "Ġ", "Ċ", "<0x0A>", "<unk>", "<s>", "</s>", "[INST]"]


def character(r):
    while True:
        a, b = r.choice(BLOCKS)
        c = chr(r.randint(a, b))
        if unicodedata.category(c) not in ("Cs", "Cn"):
            return c


def text(r):
    kind, out = r.random(), []
    for _ in range(r.randint(1, 24)):
        x = r.random()
        if kind < 0.45:
            out.append(r.choice(WORDS) if x < 0.9 else r.choice(EMOJI))
            out.append(" " if r.random() < 0.85 else r.choice(SPACES))
        elif kind < 0.6:
            a, b = r.choice(BLOCKS)
            out += [chr(c) for c in (r.randint(a, b) for _ in range(r.randint(1, 6))) if unicodedata.category(chr(c)) not in ("Cs", "Cn")]
            out.append(r.choice(["", " ", r.choice(SPACES)]))
        elif kind < 0.75:
            out.append(character(r))
        elif kind < 0.85:
            out.append(r.choice(SPACES) if x < 0.6 else r.choice(WORDS))
        elif kind < 0.93:
            out.append(r.choice(EMOJI) if x < 0.6 else chr(r.randint(1, 31)) if x < 0.7 else character(r))
        else:
            out.append("".join(r.choice("0123456789.,-+ ") for _ in range(r.randint(1, 9))))
    return "".join(out)


def texts(n, seed=1):
    r = random.Random(seed)
    fixed = ["", " ", "  ", "   ", "\n", "\t", " a", "a ", "  a  b  ", "a" * 300, "aaaaaaa bbbb" * 20, "▁", " ▁", "\x7f", "e\u0301", "\u0301", "İı ﬁ ﬃ Ⅷ ㎏"]
    return fixed + [text(r) for _ in range(n - len(fixed))]


def long_text(n=100000, seed=2):
    """Without a space: words, digits and characters of many scripts end to end."""
    r, out, size = random.Random(seed), [], 0
    while size < n:
        w = r.choice(WORDS) if r.random() < 0.8 else character(r)
        out.append(w)
        size += len(w.encode())
    return "".join("".join(out).split())
