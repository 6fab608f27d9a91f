#!/usr/bin/env python3
"""machine_code.py - what nvcc made of kernels/cuda, looked at where there is no GPU.

    tests/machine_code.py                    compiles every kernels/cuda/*.cu, for each of ARCHITECTURES, with FLAGS
    tests/machine_code.py build/release/cuda all of a build's objects, as they are linked
    tests/machine_code.py FILE ...           these .cu, .o or .cubin (nvcc -cubin -arch=sm_90 ...) files only

The disassembler is NVIDIA's own nvdisasm: that of the PATH, of the toolkit, or the pinned one of PyPI, put into build/. No
kernel but those of ALLOWED may have a stack frame or touch local memory (LDL, STL: spilled registers, arrays indexed at run
time). DEMANDS says which must read their weights sixteen bytes at a time, to registers or to shared memory, and use the tensor
cores. From compute capability 9.0 on every kernel but those of ALONE must wait for the one before it (ACQBULK) before it touches
memory, weights apart. Before that, if there is nvcc, the script judges kernels made for the purpose, nine of which offend: a check
that lets those pass is worth nothing.

Prints one table (shared: bytes known when compiled, on sm_90 with the 1024 that the system keeps for itself; less: loads
of one or two bytes), then a sentence for each offence. Exit status: 0 none, 1 offences, 2 called wrongly, 77 there is no nvcc
(or no nvdisasm to be had), so nothing was looked at.
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
FLAGS = ["-std=c++20", "-O3", "--fmad=false", "-I", HERE]  # as CMakeLists.txt has them

# Kernels that are there for speed: (what their names begin with, instruction they must have or None, where they stream
# weights to: IN_REGISTERS, IN_SHARED memory or None). The name is without namespace. In all of kernels/cuda each row must
# fit a kernel, so that no demand is lost when something is renamed.
IN_REGISTERS, IN_SHARED = "registers", "shared memory"
DEMANDS = [
    (r"skinny", "HMMA.16816.F32.BF16", IN_REGISTERS),
    (r"wide_", "HMMA.16816.F32.BF16", IN_SHARED),
    (r"mma_kernel", "HMMA.16816.F32.BF16", None),
]

# Kernels that may use local memory: (what their names begin with, bytes of stack frame at most, why). A row that is not
# needed any more is an offence.
ALLOWED = [
    (r"angles_kernel", 32, "cosf and sinf index the words of 2 / pi at run time, for angles of 105615 and more"),
    (r"pack_(numbers|scales)", 32, "index a few words at run time, once for each weight, when a model is opened"),
]

# Kernels that no other overlaps: launched with LAUNCH, not QUEUE.
ALONE = r"pack_(numbers|scales)"

NVDISASM = "nvidia-cuda-nvdisasm==13.5.37"  # reads what every nvcc up to 13.5 makes
NVDISASM_HASHES = [
    "d3fdbdd49fa53e2e4aacd3db8259d052bd2b049ececdcb69e92e083c6728e7ca",  # x86_64
    "a3a8248074edb9fba63b74c38a5416b712a91ab09e70b8ab37186c3d293fc605",  # aarch64
]

PLANTED = r"""
#include "kernels/cuda/device.h"
using namespace DEVICE_SPACE;

__global__ void skinny_right(float *out, const uint4 *w, const uint32_t *x, int k)
{
    float d[4] = {};
    in_turn();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = load_weights(w + i);
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void skinny_by_words(float *out, const uint32_t *w, const uint32_t *x, int k)
{
    float d[4] = {};
    in_turn();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint32_t a[4] = { w[4 * i], w[4 * i + 1], w[4 * i + 2], w[4 * i + 3] };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void skinny_half_by_words(float *out, const uint4 *w, const uint32_t *x, int k)
{
    float d[4] = {};
    in_turn();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = load_weights(w + 2 * i);
        uint32_t low, high;
        asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0,%1}, [%2];" : "=r"(low), "=r"(high) : "l"(w + 2 * i + 1));
        const uint32_t a[4] = { v.x ^ v.z, v.y ^ v.w, low, high };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void skinny_without_tensor_cores(float *out, const uint4 *w, const float *x, int k)
{
    float d = 0;
    in_turn();
    for (int i = threadIdx.x; i < k; i += 32) {
        const uint4 v = load_weights(w + i);
        d += (float)v.x * x[i] + (float)v.y + (float)v.z + (float)v.w;
    }
    out[threadIdx.x] = d;
}

__global__ void wide_right(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    float d[4] = {};
    in_turn();
    for (int i = 0; i < k; i++) {
        copy_ahead(&ring[i % 2][threadIdx.x], w + 32 * i + threadIdx.x);
        close_copies();
        wait_for_copies<1>();
        const uint4 v = ring[(i + 1) % 2][threadIdx.x];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void wide_half_by_words(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    float d[4] = {};
    in_turn();
    for (int i = 0; i < k; i++) {
        copy_ahead(&ring[0][threadIdx.x], w + 32 * i + threadIdx.x);
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;"
                     :: "r"((uint32_t)__cvta_generic_to_shared(&ring[1][threadIdx.x])), "l"(w + i) : "memory");
        close_copies();
        wait_for_copies<0>();
        const uint4 v = ring[0][threadIdx.x], u = ring[1][threadIdx.x];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], u.x);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void wide_by_registers(float *out, const uint4 *w, const uint32_t *x, int k)
{
    __shared__ uint4 ring[2][32];
    float d[4] = {};
    in_turn();
    for (int i = 0; i < k; i++) {
        ring[i % 2][threadIdx.x] = load_weights(w + 32 * i + threadIdx.x);
        __syncthreads();
        const uint4 v = ring[i % 2][threadIdx.x ^ 1];
        const uint32_t a[4] = { v.x, v.y, v.z, v.w };
        mma_bf16(d, a, x[i], x[i + 1]);
    }
    out[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}

__global__ void __launch_bounds__(1024, 2) spilling(float *out, const float *x, int k)
{
    float d[96];
    in_turn();
#pragma unroll
    for (int j = 0; j < 96; j++)
        d[j] = x[j * 32 + threadIdx.x];
    for (int i = 0; i < k; i++)
#pragma unroll
        for (int j = 0; j < 96; j++)
            d[j] = d[j] * d[(j + 7) % 96] + x[i];
#pragma unroll
    for (int j = 0; j < 96; j++)
        out[j * 32 + threadIdx.x] = d[j];
}

__global__ void stacked(float *out, const int *at, int k)
{
    float d[16] = {};
    in_turn();
    for (int i = 0; i < k; i++)
        d[at[i] & 15] += 1;
    out[threadIdx.x] = d[at[threadIdx.x] & 15];
}

__global__ void hasty(float *out, const float *x)
{
    const float early = x[threadIdx.x];
    in_turn();
    out[threadIdx.x] = early;
}

__global__ void never_waiting(float *out, const float *x)
{
    out[threadIdx.x] = x[threadIdx.x];
}
"""
PLANTED_DEMANDS = [(r"skinny", "HMMA.16816.F32.BF16", IN_REGISTERS), (r"wide_", "HMMA.16816.F32.BF16", IN_SHARED)]
PLANTED_OFFENCES = {  # kernel: words of what must be said of it
    "skinny_right": [],
    "skinny_by_words": ["none that passes the first cache by"],
    "skinny_half_by_words": ["found narrower ones"],
    "skinny_without_tensor_cores": ["expected HMMA"],
    "wide_right": [],
    "wide_half_by_words": ["found others"],
    "wide_by_registers": ["expected weights by copies"],
    "spilling": ["expected no local memory"],
    "stacked": ["expected no local memory"],
    "hasty": ["before it waits for the kernel before it"],
    "never_waiting": ["expected it to wait"],
}


class Refused(Exception):
    """What the world did: a sentence, and the exit status that goes with it."""

    def __init__(self, sentence, status=1):
        super().__init__(sentence)
        self.status = status


class Kernel:
    def __init__(self, source, arch, mangled):
        self.source, self.arch, self.mangled = source, arch, mangled
        self.name = mangled
        self.registers = self.frame = self.shared = 0
        self.early = None  # those of its opcodes that stand before it waits for the kernel before it; None: it does not
        self.opcodes = collections.Counter()  # "LDG.E.NA.LTC256B.128.CONSTANT"

    def count(self, *words):
        """Instructions whose first word is one of these."""
        return sum(n for op, n in self.opcodes.items() if op.split(".")[0] in words)

    def loads(self, bits):
        """Loads from global memory of so many bits a lane, those on their way to shared memory (cp.async) included."""
        return sum(n for op, n in self.opcodes.items() if op.split(".")[0] in ("LDG", "LDGSTS") and width_of(op) == bits)

    def weight_loads(self):
        """Those that pass the first cache by: device.h's load_weights, cp.async.cg. {opcode: count}"""
        return {op: n for op, n in self.opcodes.items()
                if op.startswith("LDG.") and ".NA" in op or op.startswith("LDGSTS.") and ".BYPASS" in op}

    def copies(self):
        """Loads to shared memory: device.h's copy_ahead. {opcode: count}"""
        return {op: n for op, n in self.opcodes.items() if op.split(".")[0] == "LDGSTS"}


MATRIX = ("HMMA", "IMMA", "QMMA", "HGMMA", "IGMMA", "QGMMA")


def width_of(opcode):
    words = opcode.split(".")
    for bits in (256, 128, 64):
        if str(bits) in words:
            return bits
    return 16 if "U16" in words or "S16" in words else 8 if "U8" in words or "S8" in words else 32


# ---- tools


def called(words):
    done = subprocess.run(words, capture_output=True, text=True, errors="replace")
    if done.returncode != 0:
        said = (done.stderr + done.stdout).strip() or f"exit status {done.returncode}"
        raise Refused(f"{' '.join(words)}: {said}")
    return done.stdout


def find_nvcc():
    """None: there is none."""
    return shutil.which(os.environ.get("CUDACXX", "nvcc")) or shutil.which("/usr/local/cuda/bin/nvcc")


def find_nvdisasm():
    return shutil.which("nvdisasm") or shutil.which("/usr/local/cuda/bin/nvdisasm") or pinned_nvdisasm()


def pinned_nvdisasm():
    """NVDISASM in build/, installed when it is not there yet. The wheel has the program as nvidia/cu13/bin/nvdisasm."""
    to = os.path.join(HERE, "build", NVDISASM.replace("==", "-"))
    pattern = os.path.join(to, "nvidia", "*", "bin", "nvdisasm")
    if not glob.glob(pattern):
        os.makedirs(os.path.dirname(to), exist_ok=True)
        part = tempfile.mkdtemp(dir=os.path.dirname(to), prefix="nvdisasm-part-")
        try:
            wanted = os.path.join(part, "requirements.txt")
            with open(wanted, "w") as f:
                f.write(NVDISASM + "".join(f" --hash=sha256:{h}" for h in NVDISASM_HASHES) + "\n")
            called([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps",
                    "--only-binary=:all:", "--require-hashes", "--target", part, "-r", wanted])
            shutil.rmtree(to, ignore_errors=True)
            os.rename(part, to)
        except (Refused, OSError) as e:
            if not glob.glob(pattern):  # another run may have been quicker
                last = str(e).splitlines()[-1]
                raise Refused(f"expected nvdisasm on the PATH, in /usr/local/cuda/bin or as {NVDISASM} from PyPI, found none "
                              f"({last}): nothing was looked at", 77) from e
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return glob.glob(pattern)[0]


def compile_source(nvcc, source, arch, to):
    cubin = os.path.join(to, f"{os.path.basename(source)}.{arch}.cubin")
    called([nvcc, "-cubin", f"-arch={arch}", *FLAGS, "-Werror", "all-warnings", "-o", cubin, source])
    return cubin


def demangled(names):
    """Without parameters, result and namespaces of ours; as they are where there is no c++filt."""
    filt = shutil.which("c++filt") or shutil.which("cu++filt")
    if filt is None or not names:
        return names
    out = subprocess.run([filt], input="\n".join(names) + "\n", capture_output=True, text=True).stdout.splitlines()
    return [short_name(s) for s in out] if len(out) == len(names) else names


def short_name(s):
    s = re.sub(r"\(anonymous namespace\)::|\bcuda_device::|\((?:[a-z_]+::)*[a-z_]+\)(?=-?\d)", "", s)  # (enum form)3: 3
    depth = 0
    for i, c in enumerate(s):  # up to the parameters, which begin at the first parenthesis outside of < >
        depth += (c == "<") - (c == ">")
        if c == "(" and depth == 0:
            s = s[:i]
            break
    depth = 0
    for i in range(len(s) - 1, -1, -1):  # from behind the last space outside of < >: a result
        depth += (s[i] == ">") - (s[i] == "<")
        if s[i] == " " and depth == 0:
            return s[i + 1:]
    return s


# ---- what a cubin says


MAGIC, FOR_GPU = b"\x7fELF\x02\x01", 190


def sections(b):
    """(name, offset, size) of a cubin's."""
    at, = struct.unpack_from("<Q", b, 0x28)
    _, n, names = struct.unpack_from("<HHH", b, 0x3A)
    headers = [struct.unpack_from("<IIQQQQIIQQ", b, at + 64 * i) for i in range(n)]
    strings = headers[names][4]
    for h in headers:
        start = strings + h[0]
        yield b[start:b.index(b"\0", start)].decode(), h[4], h[5]


def attributes(b, at, size):
    """Of a .nv.info section: (attribute, bytes). Format 4 has a size of its own, the others a value in its place."""
    end = at + size
    while at + 4 <= end:
        form, attribute, n = struct.unpack_from("<BBH", b, at)
        at += 4
        if form == 4:
            yield attribute, b[at:at + n]
            at += n


REGISTERS, FRAME = 0x2F, 0x11  # EIATTR_REGCOUNT, EIATTR_FRAME_SIZE: (symbol, value)


def read_resources(b, found, kernels):
    """Registers, frame and shared memory of these kernels {mangled: Kernel}."""
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
        if ".nv.shared." + name in where:
            k.shared = where[".nv.shared." + name][1]
    missing = [name for name, k in kernels.items() if k.registers == 0]
    if missing:
        raise Refused(f"expected the number of registers of {missing[0]} in .nv.info, found none")


INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.a-z]*)")
SECTION = re.compile(r'^\s*\.section\s+\.text\.([^,\s]+)')
TARGET = re.compile(r"^\s*\.target\s+(sm_\w+)")


def cubins_of(path):
    """Machine code in an object file of nvcc's, or a cubin: the ELF files for a GPU that are in it. PTX is passed over."""
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
        raise Refused(f"{path}: expected machine code for GPUs (uncompressed, as nvcc leaves it), found none", 2)
    return found


def read_cubin(nvdisasm, b, path, source):
    """Kernels, and functions that are called and not inlined. path: somewhere to put it."""
    with open(path, "wb") as f:
        f.write(b)
    found = list(sections(b))
    arch, kernels, now = "?", {}, None
    for line in called([nvdisasm, "-c", path]).splitlines():
        if m := TARGET.match(line):
            arch = m[1]
        elif m := SECTION.match(line):
            now = kernels.setdefault(m[1], Kernel(source, arch, m[1]))
        elif now is not None and (m := INSTRUCTION.match(line)):
            if m[1] == "ACQBULK" and now.early is None:
                now.early = now.opcodes.copy()
            now.opcodes[m[1]] += 1
    empty = [name for name, k in kernels.items() if not k.opcodes]
    if empty:
        raise Refused(f"expected instructions of {empty[0]} from {nvdisasm}, found none that this script can read")
    read_resources(b, found, kernels)
    for k, name in zip(kernels.values(), demangled(list(kernels))):
        k.name = name
    return list(kernels.values())


# ---- the verdict


def offences_of(k, demands):
    local = k.count("LDL", "STL")
    if (local or k.frame) and not any(re.match(name, k.name) and k.frame <= most for name, most, _ in ALLOWED):
        yield f"expected no local memory, found {local} instructions that use it (LDL, STL) and a stack frame of {k.frame} bytes"
    for name, instruction, streams in demands:
        if not re.match(name, k.name):
            continue
        if instruction and not k.opcodes[instruction]:
            other = ", ".join(op for op in k.opcodes if op.split(".")[0] in MATRIX) or "no matrix instruction"
            yield f"expected {instruction}, found {other}"
        weights, copies = k.weight_loads(), k.copies()
        if streams == IN_REGISTERS and not weights:
            yield (f"expected weights by loads of 16 bytes, found {k.loads(128)} such loads and none that passes the first "
                   "cache by (load_weights)")
        narrow = {op: n for op, n in weights.items() if width_of(op) != 128}
        if streams == IN_REGISTERS and narrow:
            yield ("expected weights by loads of 16 bytes, found narrower ones: " +
                   ", ".join(f"{op} {n} times" for op, n in sorted(narrow.items())))
        if streams == IN_SHARED and not copies:
            yield "expected weights by copies of 16 bytes to shared memory (copy_ahead), found none"
        other = {op: n for op, n in copies.items() if width_of(op) != 128 or ".BYPASS" not in op}
        if streams == IN_SHARED and other:
            yield ("expected copies of 16 bytes that pass the first cache by, found others: " +
                   ", ".join(f"{op} {n} times" for op, n in sorted(other.items())))


TOUCHES = re.compile(r"LDG|LD\b|ST\b|STG|ATOM|RED|LDGSTS|UBLK|UTMA")  # memory that other kernels may have written


def haste_of(k):
    """Offences against the order of kernels, on GPUs where one may begin before the one before it has ended."""
    if int(re.sub(r"\D", "", k.arch)) < 90 or re.match(ALONE, k.name):
        return
    if k.early is None:
        yield "expected it to wait for the kernel before it (ACQBULK: wait_for_previous), found nothing of the kind"
        return
    streams = any(s and re.match(name, k.name) for name, _, s in DEMANDS)
    early = [op for op in k.early if TOUCHES.match(op) and not (streams and op.split(".")[0] == "LDG")]
    if early:
        yield f"expected no memory to be touched before it waits for the kernel before it, found {', '.join(sorted(early))}"


def unmet(kernels):
    for name, _, _ in ALLOWED:
        if not any(re.match(name, k.name) and k.count("LDL", "STL") for k in kernels):
            yield f"expected a kernel that uses local memory and whose name begins with \"{name}\" (ALLOWED), found none"
    for name, _, _ in DEMANDS:
        if not any(re.match(name, k.name) for k in kernels):
            yield f"expected a kernel whose name begins with \"{name}\" (DEMANDS), found none"


def table(kernels):
    head = ["kernel", "arch", "registers", "shared", "spills", "HMMA", "LDG.128", "LDG.64", "LDG.32", "less"]
    rows = [[f"{k.source.split('.')[0]}: {k.name}", k.arch, k.registers, k.shared, k.count("LDL", "STL"), k.count(*MATRIX),
             k.loads(128), k.loads(64), k.loads(32), k.loads(16) + k.loads(8)] for k in kernels]
    wide = [max(len(str(r[i])) for r in [head] + rows) for i in range(len(head))]
    for r in [head] + rows:
        print("  ".join(str(c).ljust(w) if i < 2 else str(c).rjust(w) for i, (c, w) in enumerate(zip(r, wide))).rstrip())


def looked_at(nvcc, nvdisasm, files, to):
    """(kernels, refusals), sources for every architecture; by as many processes as there are processors."""
    def one(job):
        number, path, arch = job
        try:
            compiled = compile_source(nvcc, path, arch, to) if arch else path
            scratch = os.path.join(to, f"{number}.looked-at")
            return [k for b in cubins_of(compiled) for k in read_cubin(nvdisasm, b, scratch, os.path.basename(path))], []
        except Refused as e:
            return [], [str(e)]

    jobs = [(f, a) for f in files for a in (ARCHITECTURES if f.endswith(".cu") else [None])]
    jobs = sorted(jobs, key=lambda j: -os.path.getsize(j[0]))  # the longest first
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        found = list(pool.map(one, [(i, f, a) for i, (f, a) in enumerate(jobs)]))
    return [k for kernels, _ in found for k in kernels], [r for _, refused in found for r in refused]


def check_planted(nvcc, nvdisasm, to):
    source = os.path.join(to, "planted.cu")
    with open(source, "w") as f:
        f.write(PLANTED)
    kernels, refused = looked_at(nvcc, nvdisasm, [source], to)
    for r in refused:
        raise Refused(r)
    for k in kernels:
        said = list(offences_of(k, PLANTED_DEMANDS)) + list(haste_of(k))
        expected = PLANTED_OFFENCES[k.name] if k.arch != "sm_80" or k.name not in ("hasty", "never_waiting") else []
        if len(said) != len(expected) or any(words not in s for words, s in zip(expected, said)):
            raise Refused(f"planted kernel {k.name}, {k.arch}: expected to say {expected or 'nothing'} of it, found "
                          f"{said or 'nothing'}: this script no longer sees what it is for")
    if len(kernels) != len(ARCHITECTURES) * len(PLANTED_OFFENCES):
        raise Refused(f"expected {len(PLANTED_OFFENCES)} planted kernels for each architecture, found {len(kernels)} in all")


def files_of(arguments):
    """(files, whether they are all there is)"""
    if not arguments:
        return sorted(glob.glob(os.path.join(HERE, "kernels", "cuda", "*.cu"))), True
    if len(arguments) == 1 and not os.path.splitext(arguments[0])[1]:
        files = sorted(glob.glob(os.path.join(arguments[0], "*.o")))
        if not files:
            raise Refused(f"{arguments[0]}: expected objects that nvcc made, found none: nothing was looked at", 77)
        return files, True
    for f in arguments:
        if not f.endswith((".cu", ".cubin", ".o")) or not os.path.isfile(f):
            raise Refused(f"{f}: expected a .cu, .o or .cubin file, found {'another thing' if os.path.exists(f) else 'none'}", 2)
    return arguments, False


def main(arguments):
    files, whole = files_of(arguments)
    nvcc = find_nvcc()
    if nvcc is None and any(f.endswith(".cu") for f in files):
        raise Refused("expected nvcc on the PATH, in CUDACXX or in /usr/local/cuda/bin, found none: nothing was compiled, "
                      "nothing looked at", 77)
    nvdisasm = find_nvdisasm()
    with tempfile.TemporaryDirectory(prefix="machine-code-") as to:
        if nvcc is not None:
            check_planted(nvcc, nvdisasm, to)
        kernels, said = looked_at(nvcc, nvdisasm, files, to)
    kernels.sort(key=lambda k: (k.source, k.arch, k.name))
    table(kernels)
    said += [f"{k.source.split('.')[0]}: {k.name}, {k.arch}: {o}" for k in kernels for o in [*offences_of(k, DEMANDS), *haste_of(k)]]
    if whole:
        said += unmet(kernels)
    for s in said:
        print(s)
    print(f"machine code: {len(kernels)} kernels, " + (f"{len(said)} offences" if said else "no offence"))
    return 1 if said else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except Refused as e:
        print(f"machine_code.py: {e}", file=sys.stderr)
        sys.exit(e.status)
