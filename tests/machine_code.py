#!/usr/bin/env python3
"""machine_code.py - checks the machine code that nvcc generates for kernels/cuda, without a GPU.

    tests/machine_code.py                    compiles every kernels/cuda/*.cu for each of ARCHITECTURES, with FLAGS
    tests/machine_code.py build/release/cuda checks all objects of a build, as they are linked
    tests/machine_code.py FILE ...           checks these .cu, .o or .cubin (nvcc -cubin -arch=sm_90 ...) files only

The disassembler is NVIDIA's nvdisasm: from the PATH, from the toolkit, or the pinned version from PyPI, installed into build/. No
kernel except those of ALLOWED may have a stack frame or use local memory (LDL, STL: spilled registers, arrays indexed at run time).
REQUIREMENTS lists the kernels that must load their weights sixteen bytes at a time, to registers or to shared memory, and use the
tensor cores, FORBIDDEN what some kernels may not contain, LARGEST how long the code of some may be. From compute capability 9.0 every
kernel except those of ALONE must wait for the previous kernel (ACQBULK) before it accesses memory other than weights, and those that
load weights must have some in flight during that wait. If there is nvcc, the script first checks kernels written for the purpose,
fifteen of which contain a seeded fault, to show that it detects them.

Prints one table (shared: static bytes, on sm_90 including the 1024 reserved by the system; narrow: loads of one or two bytes), then a
sentence for each violation. Exit status: 0 none, 1 violations, 2 wrong usage, 77 no nvcc (or no nvdisasm), so nothing was
checked.
"""
import collections
import concurrent.futures
import glob
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ARCHITECTURES = ["sm_80", "sm_90"]
FLAGS = ["-std=c++20", "-O3", "--fmad=false", "-I", HERE]  # as in cmake/cuda.cmake

# Fast kernels: (prefix of the name, required instruction or None, where weights are streamed to: IN_REGISTERS, IN_SHARED memory,
# there IN_BULK, or None). Names are without namespace. When all of kernels/cuda is checked, each row must match a kernel, so that no requirement is
# lost by a rename.
# ALL_BEFORE: to registers, all of them before the wait. The keys and values of earlier passes are attention's weights.
IN_REGISTERS, IN_SHARED, IN_BULK, ALL_BEFORE = "registers", "shared memory", "shared memory, by bulk copies", "registers, all of them"
REQUIREMENTS = [
    (r"small_kernel", "HMMA.16816.F32.BF16", IN_REGISTERS),
    (r"grouped_kernel", "HMMA.16816.F32.BF16", IN_REGISTERS),
    (r"ring_kernel", "HMMA.16816.F32.BF16", IN_BULK),
    (r"large_kernel", "HMMA.16816.F32.BF16", IN_SHARED),
    (r"mma_kernel", "HMMA.16816.F32.BF16", IN_SHARED),
    (r"rmsnorm_kernel<[24], true>", None, ALL_BEFORE),
    (r"join_kernel<true>", None, ALL_BEFORE),
]

# Instructions that a kernel may not contain: (prefix of its name, pattern, reason).
FORBIDDEN = [
    (r"select_kernel", r"ATOMS\.CAS", "a loop for each addition to shared memory, which words of 32 bits do not need"),
]

# Kernels that run once between others, so that each run loads their code: (prefix of the name, maximum number of bytes).
LARGEST = [
    (r"(rejection|traversal)_kernel", 80 << 10),
    (r"select_kernel", 72 << 10),
]

# Kernels that may use local memory: (prefix of the name, maximum stack frame in bytes, reason). An unused row is a violation.
ALLOWED = [
    (r"angles_kernel", 32, "cosf and sinf index the words of 2 / pi at run time, for angles of 105615 and more"),
    (r"(grouped|small)_kernel", 8, "a form or two store one address once and read it once, to have four blocks on a multiprocessor"),
    (r"ring_kernel", 8, "one form keeps the number of the group there, which it reads once in a group"),
    (r"pack_(numbers|scales)", 32, "index a few words at run time, once per weight, when a model is opened"),
]

# Kernels that are empty below compute capability 9.0, where they are never launched.
FROM_90 = r"ring_kernel"

# Kernels launched with LAUNCH, not QUEUE, which do not overlap with others.
ALONE = r"pack_(numbers|scales)"

NVDISASM = os.path.join(HERE, "requirements", "nvdisasm.txt")

SEEDED_REQUIREMENTS = [(r"small_", "HMMA.16816.F32.BF16", IN_REGISTERS), (r"large_", "HMMA.16816.F32.BF16", IN_SHARED),
                       (r"ring_", "HMMA.16816.F32.BF16", IN_BULK)]
SEEDED_VIOLATIONS = {  # kernel: parts of the expected messages
    "small_correct": [],
    "small_waiting_first": ["in flight during the wait"],
    "small_by_words": ["none that bypasses L1", "in flight during the wait"],
    "small_half_by_words": ["found narrower ones"],
    "small_without_tensor_cores": ["expected HMMA"],
    "large_correct": [],
    "large_waiting_first": ["in flight during the wait"],
    "large_half_by_words": ["found others"],
    "large_by_registers": ["expected weights by copies", "in flight during the wait"],
    "ring_kernel_correct": [],
    "ring_kernel_waiting_first": ["in flight during the wait"],
    "ring_kernel_by_registers": ["expected weights by bulk copies", "in flight during the wait"],
    "spilling": ["expected no local memory"],
    "stacked": ["expected no local memory"],
    "reads_before_waiting": ["before the wait for the previous kernel"],
    "select_kernel": ["expected no ATOMS.CAS"],
    "traversal_kernel": ["bytes of machine code"],
    "never_waiting": ["expected a wait for the previous kernel"],
}


class Failed(Exception):
    """An error message, and the exit status for it."""

    def __init__(self, sentence, status=1):
        super().__init__(sentence)
        self.status = status


class Kernel:
    def __init__(self, source, arch, mangled):
        self.source, self.arch, self.mangled = source, arch, mangled
        self.name = mangled
        self.registers = self.frame = self.shared = self.bytes = 0
        self.early = None  # opcodes before the wait for the previous kernel; None: it does not wait
        self.opcodes = collections.Counter()  # "LDG.E.NA.LTC256B.128.CONSTANT"

    def count(self, *words):
        """Number of instructions whose first word is one of these."""
        return sum(n for op, n in self.opcodes.items() if op.split(".")[0] in words)

    def loads(self, bits):
        """Number of loads from global memory of `bits` bits per lane, cp.async included."""
        return sum(n for op, n in self.opcodes.items() if op.split(".")[0] in ("LDG", "LDGSTS") and width_of(op) == bits)

    def weight_loads(self):
        """Loads that bypass L1: load_weights of device.h, cp.async.cg. {opcode: count}"""
        return {op: n for op, n in self.opcodes.items()
                if op.startswith("LDG.") and ".NA" in op or op.startswith("LDGSTS.") and ".BYPASS" in op}

    def copies(self):
        """Copies to shared memory: copy_async of device.h. {opcode: count}"""
        return {op: n for op, n in self.opcodes.items() if op.split(".")[0] == "LDGSTS"}


TO_REGISTERS = (IN_REGISTERS, ALL_BEFORE)
MATRIX = ("HMMA", "IMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA")


def width_of(opcode):
    words = opcode.split(".")
    for bits in (256, 128, 64):
        if str(bits) in words:
            return bits
    return 16 if "U16" in words or "S16" in words else 8 if "U8" in words or "S8" in words else 32


# ---- tools


def run(words):
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        message = (done.stderr + done.stdout).strip() or f"exit status {done.returncode}"
        raise Failed(f"{' '.join(words)}: {message}")
    return done.stdout


def find_nvcc():
    """Returns None if there is none."""
    return shutil.which(os.environ.get("CUDACXX", "nvcc")) or shutil.which("/usr/local/cuda/bin/nvcc")


def find_nvdisasm():
    return shutil.which("nvdisasm") or shutil.which("/usr/local/cuda/bin/nvdisasm") or pinned_nvdisasm()


def pinned_nvdisasm():
    """NVDISASM's package in build/, installed if missing. The wheel contains the program as nvidia/cu13/bin/nvdisasm."""
    with open(NVDISASM) as f:
        package = re.search(r"^[a-z0-9-]+==[0-9.]+", f.read(), re.M).group()
    to = os.path.join(HERE, "build", package.replace("==", "-"))
    pattern = os.path.join(to, "nvidia", "*", "bin", "nvdisasm")
    if not glob.glob(pattern):
        os.makedirs(os.path.dirname(to), exist_ok=True)
        part = tempfile.mkdtemp(dir=os.path.dirname(to), prefix="nvdisasm-part-")
        try:
            run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--target", part, "-r", NVDISASM])
            shutil.rmtree(to, ignore_errors=True)
            os.rename(part, to)
        except (Failed, OSError) as e:
            if not glob.glob(pattern):  # another process may have installed it
                last = str(e).splitlines()[-1]
                raise Failed(f"expected nvdisasm on the PATH, in /usr/local/cuda/bin or as {package} from PyPI, found none "
                              f"({last}): nothing was checked", 77) from e
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return glob.glob(pattern)[0]


def compile_source(nvcc, source, arch, to):
    cubin = os.path.join(to, f"{os.path.basename(source)}.{arch}.cubin")
    run([nvcc, "-cubin", f"-arch={arch}", *FLAGS, "-Werror", "all-warnings", "-o", cubin, source])
    return cubin


def demangled(names):
    """Names without parameters, result and namespace; mangled if there is no c++filt."""
    filt = shutil.which("c++filt") or shutil.which("cu++filt")
    if filt is None or not names:
        return names
    out = subprocess.run([filt], input="\n".join(names) + "\n", capture_output=True, text=True).stdout.splitlines()
    return [short_name(s) for s in out] if len(out) == len(names) else names


def short_name(s):
    s = re.sub(r"\(anonymous namespace\)::|\bcuda_device::|\((?:[a-z_]+::)*[a-z_]+\)(?=-?\d)", "", s)  # (enum form)3: 3
    depth = 0
    for i, c in enumerate(s):  # cut at the parameters: the first parenthesis outside of < >
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            s = s[:i]
            break
    depth = 0
    for i in range(len(s) - 1, -1, -1):  # cut the result: up to the last space outside of < >
        depth += (s[i] == ">") - (s[i] == "<")
        if s[i] == " " and depth == 0:
            return s[i + 1:]
    return s


# ---- reading a cubin


MAGIC, FOR_GPU = b"\x7fELF\x02\x01", 190


def sections(b):
    """(name, offset, size) of the sections of a cubin."""
    at, = struct.unpack_from("<Q", b, 0x28)
    _, n, names = struct.unpack_from("<HHH", b, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", b, at + 64 * i) for i in range(n)]
    strings = headers[names][4]
    for h in headers:
        start = strings + h[0]
        yield b[start:b.index(b"\0", start)].decode(), h[4], h[5]


def attributes(b, at, size):
    """(attribute, bytes) of a .nv.info section. Format 4 stores a size, the others a value in its place."""
    end = at + size
    while at + 4 <= end:
        form, attribute, n = struct.unpack_from("<BBH", b, at)
        at += 4
        if form == 4:
            yield attribute, b[at:at + n]
            at += n


REGISTERS, FRAME = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE: (symbol, value)


def read_resources(b, found, kernels):
    """Sets registers, frame and shared memory of kernels {mangled: Kernel}."""
    where = {name: (at, size) for name, at, size in found}
    symbols, _ = where[".symtab"]
    strings, _ = where[".strtab"]

    def symbol(i):
        start = strings + struct.unpack_from("<I", b, symbols + 24 * i)[0]
        return b[start:b.index(b"\0", start)].decode()

    for attribute, value in attributes(b, *where[".nv.info"]):
        if attribute in (REGISTERS, FRAME):
            i, n = struct.unpack_from("<II", value)
            k = kernels.get(symbol(i))
            if k is not None and attribute == REGISTERS:
                k.registers = n
            elif k is not None:
                k.frame = n
    for name, k in kernels.items():
        k.bytes = where[".text." + name][1]
        if ".nv.shared." + name in where:
            k.shared = where[".nv.shared." + name][1]
    missing = [name for name, k in kernels.items() if k.registers == 0]
    if missing:
        raise Failed(f"expected the number of registers of {missing[0]} in .nv.info, found none")


INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.a-z]*)")
SECTION = re.compile(r'^\s*\.section\s+\.text\.([^,\s]+)')
TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)")


def cubins_of(path):
    """The ELF files for GPUs in an object file of nvcc or a cubin. PTX is skipped."""
    with open(path, "rb") as f:
        b = f.read()
    at, found = b.find(MAGIC), []
    while at >= 0:
        if at + 64 <= len(b) and struct.unpack_from("<H", b, at + 18)[0] == FOR_GPU:
            segments, headers = struct.unpack_from("<QQ", b, at + 0x20)
            segment, n_segments, header, n_headers = struct.unpack_from("<HHHH", b, at + 0x36)
            found.append(b[at:at + max(segments + segment * n_segments, headers + header * n_headers)])
        at = b.find(MAGIC, at + 1)
    if not found:
        raise Failed(f"{path}: expected machine code for GPUs (uncompressed, as nvcc writes it), found none", 2)
    return found


def read_cubin(nvdisasm, b, path, source):
    """Kernels, and functions that are not inlined. path: a temporary file."""
    with open(path, "wb") as f:
        f.write(b)
    found = list(sections(b))
    arch, kernels, current = "?", {}, None
    for line in run([nvdisasm, "-c", path]).splitlines():
        if m := TARGET.match(line):
            arch = m[1]
        elif m := SECTION.match(line):
            current = kernels.setdefault(m[1], Kernel(source, arch, m[1]))
        elif current is not None and (m := INSTRUCTION.match(line)):
            if m[1] == "ACQBULK" and current.early is None:
                current.early = current.opcodes.copy()
            current.opcodes[m[1]] += 1
    empty = [name for name, k in kernels.items() if not k.opcodes]
    if empty:
        raise Failed(f"expected instructions of {empty[0]} from {nvdisasm}, found none that this script can parse")
    read_resources(b, found, kernels)
    for k, name in zip(kernels.values(), demangled(list(kernels))):
        k.name = name
    return list(kernels.values())


# ---- violations


def violations_of(k, requirements):
    local = k.count("LDL", "STL")
    if (local or k.frame) and not any(re.match(name, k.name) and k.frame <= max_frame for name, max_frame, _ in ALLOWED):
        yield f"expected no local memory, found {local} instructions that use it (LDL, STL) and a stack frame of {k.frame} bytes"
    for name, most in LARGEST:
        if re.match(name, k.name) and k.bytes > most:
            yield f"expected at most {most} bytes of machine code, found {k.bytes}"
    for name, pattern, reason in FORBIDDEN:
        found = next((op for op in k.opcodes if re.match(name, k.name) and re.match(pattern, op)), None)
        if found:
            yield f"expected no {found}: {reason}"
    for name, instruction, streams in requirements:
        if not re.match(name, k.name):
            continue
        if instruction and not k.opcodes[instruction]:
            other = ", ".join(op for op in k.opcodes if op.split(".")[0] in MATRIX) or "no matrix instruction"
            yield f"expected {instruction}, found {other}"
        weights, copies = k.weight_loads(), k.copies()
        if streams in TO_REGISTERS and not weights:
            yield (f"expected weights by loads of 16 bytes, found {k.loads(128)} such loads and none that bypasses L1 "
                   "(load_weights)")
        narrow = {op: n for op, n in weights.items() if width_of(op) != 128}
        if streams in TO_REGISTERS and narrow:
            yield ("expected weights by loads of 16 bytes, found narrower ones: " +
                   ", ".join(f"{op} {n} times" for op, n in sorted(narrow.items())))
        if streams == IN_SHARED and not copies:
            yield "expected weights by copies of 16 bytes to shared memory (copy_async), found none"
        if streams == IN_BULK and not k.count("UBLKCP"):
            yield "expected weights by bulk copies (copy_bulk), found none"
        other = {op: n for op, n in copies.items() if width_of(op) != 128 or ".BYPASS" not in op}
        if streams == IN_SHARED and other:
            yield ("expected copies of 16 bytes that bypass L1, found others: " +
                   ", ".join(f"{op} {n} times" for op, n in sorted(other.items())))


ACCESSES = re.compile(r"LDG\b|LD\b|ST\b|STG|ATOM|RED|LDGSTS|UBLK|UTMA")  # accesses to memory that other kernels may have written


def wait_violations_of(k, requirements):
    """Violations of the order of kernels, on GPUs where a kernel may start before the previous one has ended."""
    if int(re.sub(r"\D", "", k.arch)) < 90 or re.match(ALONE, k.name):
        return
    if k.early is None:
        yield "expected a wait for the previous kernel (ACQBULK: wait_for_previous), found none"
        return
    streams = next((s for name, _, s in requirements if s and re.match(name, k.name)), None)
    weights = {IN_SHARED: "LDGSTS", IN_BULK: "UBLKCP", None: ""}.get(streams, "LDG")
    allowed = ("LDG", weights) if streams else ()
    early = [op for op in k.early if ACCESSES.match(op) and op.split(".")[0] not in allowed]
    if early:
        yield f"expected no memory access before the wait for the previous kernel, found {', '.join(sorted(early))}"
    if streams == ALL_BEFORE and any(k.early[op] != n for op, n in k.weight_loads().items()):
        yield "expected all loads of weights before the wait for the previous kernel, found some behind it"
    if streams and not any(op.split(".")[0] == weights and (streams == IN_BULK or op in k.weight_loads()) for op in k.early):
        yield "expected loads of weights in flight during the wait for the previous kernel (before ACQBULK), found none"


def unmatched(kernels):
    for name, _, _ in ALLOWED:
        if not any(re.match(name, k.name) and k.count("LDL", "STL") for k in kernels):
            yield f"expected a kernel that uses local memory and whose name begins with \"{name}\" (ALLOWED), found none"
    for name, *_ in REQUIREMENTS + FORBIDDEN + LARGEST:
        if not any(re.match(name, k.name) for k in kernels):
            yield f"expected a kernel whose name begins with \"{name}\" (REQUIREMENTS, FORBIDDEN, LARGEST), found none"


def table(kernels):
    head = ["kernel", "arch", "registers", "shared", "spills", "HMMA", "LDG.128", "LDG.64", "LDG.32", "narrow"]
    rows = [[f"{k.source.split('.')[0]}: {k.name}", k.arch, k.registers, k.shared, k.count("LDL", "STL"), k.count(*MATRIX),
             k.loads(128), k.loads(64), k.loads(32), k.loads(16) + k.loads(8)] for k in kernels]
    widths = [max(len(str(r[i])) for r in [head] + rows) for i in range(len(head))]
    for r in [head] + rows:
        print("  ".join(str(c).ljust(w) if i < 2 else str(c).rjust(w) for i, (c, w) in enumerate(zip(r, widths))).rstrip())


def check_files(nvcc, nvdisasm, files, to):
    """(kernels, errors); sources are compiled for every architecture, as many at a time as there are processors."""
    def one(job):
        number, path, arch = job
        try:
            compiled = compile_source(nvcc, path, arch, to) if arch else path
            scratch = os.path.join(to, f"{number}.cubin")
            return [k for b in cubins_of(compiled) for k in read_cubin(nvdisasm, b, scratch, os.path.basename(path))], []
        except Failed as e:
            return [], [str(e)]

    jobs = [(f, a) for f in files for a in (ARCHITECTURES if f.endswith(".cu") else [None])]
    jobs = sorted(jobs, key=lambda j: -os.path.getsize(j[0]))  # largest first
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(one, [(i, f, a) for i, (f, a) in enumerate(jobs)]))
    return [k for kernels, _ in found for k in kernels], [e for _, errors in found for e in errors]


def check_seeded_faults(nvcc, nvdisasm, to):
    kernels, errors = check_files(nvcc, nvdisasm, [os.path.join(HERE, "tests", "machine_code_faults.cu")], to)
    for e in errors:
        raise Failed(e)
    for k in kernels:
        if k.arch == "sm_80" and re.match(FROM_90, k.name):
            continue
        found = list(violations_of(k, SEEDED_REQUIREMENTS)) + list(wait_violations_of(k, SEEDED_REQUIREMENTS))
        expected = SEEDED_VIOLATIONS[k.name]
        if k.arch == "sm_80":
            expected = [e for e in expected if "wait" not in e]
        if len(found) != len(expected) or any(words not in s for words, s in zip(expected, found)):
            raise Failed(f"seeded fault {k.name}, {k.arch}: expected the messages {expected or 'none'}, found {found or 'none'}: this "
                         "script no longer detects what it is for")
    if len(kernels) != len(ARCHITECTURES) * len(SEEDED_VIOLATIONS):
        raise Failed(f"expected {len(SEEDED_VIOLATIONS)} kernels with seeded faults for each architecture, found {len(kernels)} in total")


def files_of(arguments):
    """(files, whether they are all of kernels/cuda)"""
    if not arguments:
        return sorted(glob.glob(os.path.join(HERE, "kernels", "cuda", "*.cu"))), True
    if len(arguments) == 1 and not os.path.splitext(arguments[0])[1]:
        files = sorted(glob.glob(os.path.join(arguments[0], "*.o")))
        if not files:
            raise Failed(f"{arguments[0]}: expected objects made by nvcc, found none: nothing was checked", 77)
        return files, True
    for f in arguments:
        if not f.endswith((".cu", ".cubin", ".o")) or not os.path.isfile(f):
            raise Failed(f"{f}: expected a .cu, .o or .cubin file, found {'another file' if os.path.exists(f) else 'none'}", 2)
    return arguments, False


def main(arguments):
    files, complete = files_of(arguments)
    nvcc = find_nvcc()
    if nvcc is None and any(f.endswith(".cu") for f in files):
        raise Failed("expected nvcc on the PATH, in CUDACXX or in /usr/local/cuda/bin, found none: nothing was compiled, "
                      "nothing checked", 77)
    nvdisasm = find_nvdisasm()
    with tempfile.TemporaryDirectory(prefix="machine-code-") as to:
        if nvcc is not None:
            check_seeded_faults(nvcc, nvdisasm, to)
        kernels, violations = check_files(nvcc, nvdisasm, files, to)
    kernels = [k for k in kernels if not (re.match(FROM_90, k.name) and int(re.sub(r"\D", "", k.arch)) < 90)]
    kernels.sort(key=lambda k: (k.source, k.arch, k.name))
    table(kernels)
    violations += [f"{k.source.split('.')[0]}: {k.name}, {k.arch}: {v}" for k in kernels for v in [*violations_of(k, REQUIREMENTS), *wait_violations_of(k, REQUIREMENTS)]]
    if complete:
        violations += unmatched(kernels)
    for v in violations:
        print(v)
    print(f"machine code: {len(kernels)} kernels, " + (f"{len(violations)} violations" if violations else "no violation"))
    return 1 if violations else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Failed as e:
        print(f"machine_code.py: {e}", file=sys.stderr)
        sys.exit(e.status)
