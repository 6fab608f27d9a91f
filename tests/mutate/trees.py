"""Build trees for mutants, in build/mutate: copies of the sources with their own build; and which test reaches which line."""
import hashlib
import glob
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
OUT = os.path.join(REPO, "build", "mutate")
FOLDERS = ["verifier", "sampling", "results", "drafters", "engine", "experiments", "commands"]
PLAIN = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O2", "-DCMAKE_CXX_FLAGS=-O2"]


def sh(command, cwd, **more):
    return subprocess.run(command, cwd=cwd, shell=isinstance(command, str), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, **more)


def tracked():
    return [f for f in sh(["git", "ls-files", "--cached", "--others", "--exclude-standard"], REPO).stdout.split("\n") if f and os.path.isfile(os.path.join(REPO, f))]


class Tree:
    def __init__(self, name, options=PLAIN, linked=""):
        self.src = os.path.join(OUT, name)
        self.build = os.path.join(self.src, "build")
        self.options, self.linked, self.started = options, linked, {}
        self.env = dict(os.environ, CCACHE_BASEDIR=self.src, CCACHE_NOHASHDIR="true",
                        GIT_CEILING_DIRECTORIES=OUT)    # no revision: it would change the program with every commit

    def set_up(self):
        """Copies the current sources of the repository and builds everything."""
        wanted = set(tracked())
        for file in wanted:
            to = os.path.join(self.src, file)
            with open(os.path.join(REPO, file), "rb") as f:
                new = f.read()
            if not os.path.exists(to) or open(to, "rb").read() != new:
                os.makedirs(os.path.dirname(to), exist_ok=True)
                with open(to, "wb") as f:
                    f.write(new)
        for top, _, files in os.walk(self.src):
            if not top.startswith(self.build):
                for file in files:
                    if os.path.relpath(os.path.join(top, file), self.src) not in wanted:
                        os.remove(os.path.join(top, file))
        if not os.path.exists(os.path.join(self.build, "build.ninja")):
            only = os.path.join(self.src, "only.o")
            os.makedirs(self.build, exist_ok=True)
            only = os.path.join(self.build, "only.o")
            self.must(["cc", "-c", os.path.join(REPO, "tests/mutate/only.c"), "-o", only])
            lld = "-fuse-ld=lld " if shutil.which("ld.lld") else ""
            launcher = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] * bool(shutil.which("ccache"))
            self.must(["cmake", "-S", self.src, "-B", self.build, "-G", "Ninja", "-DSPECLAB_CUDA=off", *launcher,
                       f"-DCMAKE_EXE_LINKER_FLAGS={lld}{only} {self.linked}", *self.options])
        self.must(["ninja", "-C", self.build])
        self.read()

    def must(self, command):
        done = sh(command, self.src, env=self.env)
        if done.returncode != 0:
            raise SystemExit("mutate: " + shlex.join(command) + "\n" + done.stdout[-4000:])

    def ninja(self, target):
        return sh(["ninja", "-t", "commands", target], self.build).stdout.strip().split("\n")

    def read(self):
        """Reads the commands that compile each source, create each library and link each program."""
        self.compile, self.object, self.link, self.archive = {}, {}, {}, {}
        with open(os.path.join(self.build, "compile_commands.json")) as f:
            for entry in json.load(f):
                words = shlex.split(entry["command"])
                words = words[1:] if words[0].endswith("ccache") else words
                file = os.path.relpath(entry["file"], self.src)
                carried = re.fullmatch(r"build/carried/(.*\.sql)\.c", file)
                file = "results/" + carried[1] if carried else file
                self.compile.setdefault(file, []).append(words + ["-w"])
                self.object.setdefault(file, []).append(os.path.join(self.build, words[words.index("-o") + 1]))
        made = {}
        for file, objects in self.object.items():    # by the library of its folder, or of the folder above that
            folders = file.split("/")[:-1]
            own = re.search(r"CMakeFiles/(\w+)\.dir/", objects[0])
            for library in ([own[1]] if own else []) + folders[:1]:
                path = os.path.join(self.build, f"lib{library}.a")
                if os.path.exists(path):
                    made[library] = made.get(library) or self.ninja(f"lib{library}.a")[-1]
                    self.archive[file] = made[library]
                    break
        for program in self.programs() + ["speclab", "speclab_emulated", "speclab_extended"]:
            self.link[program] = self.ninja(program)[-1]

    def programs(self):
        files = glob.glob("tests/*/test_*.c", root_dir=self.src)
        return sorted(os.path.basename(f)[:-2] for f in files)

    def needs(self, program):
        """The program itself, and the programs that it starts."""
        if program not in self.started:
            with open(os.path.join(self.build, program), "rb") as f:
                text = f.read()
            self.started[program] = [p for p in ("speclab", "speclab_emulated", "speclab_extended")
                                     if os.path.join(self.build, p).encode() + b"\0" in text]
        return [program] + self.started[program]

    def arguments(self, file):
        words, out = self.compile[file][0], []
        for i, w in enumerate(words):
            out += [w] if w.startswith(("-I", "-D", "-std", "-m")) else ["-isystem", words[i + 1]] if w == "-isystem" else []
        return out

    def run(self, program, name, limit, extra=None):
        """Runs a program, or one test of it. Returns the exit status (None: timeout), processor seconds and output."""
        own = os.path.join(self.build, "tmp")
        # No model cache: tests of a real model take minutes, and other tests cover the same code.
        env = dict(self.env, CMOCKA_TEST_ABORT="1", TMPDIR=own, XDG_CACHE_HOME=own, **(extra or {}))
        os.makedirs(own, exist_ok=True)
        if name:
            env["MUTATE_ONLY"] = name

        def limits():
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (int(limit) + 2, int(limit) + 3))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.time()
        with open(os.path.join(self.build, "output"), "w+b") as output:
            p = subprocess.Popen([os.path.join(self.build, program)], cwd=self.build, env=env, stdin=subprocess.DEVNULL,
                                 stdout=output, stderr=subprocess.STDOUT, preexec_fn=limits)
            try:
                status = p.wait(timeout=8 * limit + 30)
            except subprocess.TimeoutExpired:
                status = None
            try:
                os.killpg(p.pid, signal.SIGKILL)    # and remaining children
            except ProcessLookupError:
                pass
            p.wait()
            output.seek(0)
            text = output.read(1 << 20).decode(errors="replace")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        if status in (-signal.SIGXCPU, -signal.SIGKILL):
            status = None
        shutil.rmtree(own, ignore_errors=True)
        return status, max(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 0.2 * (time.time() - start)), text


def digest(*paths):
    h = hashlib.sha256()
    for p in paths:
        with open(p, "rb") as f:
            h.update(f.read())
    return h.hexdigest()


class Reach:
    """Units (a program, or one test of a slow program) with their cost and the lines that they reach."""
    LONG = 1.5

    def __init__(self):
        self.path = os.path.join(OUT, "reach.json")
        self.units = json.load(open(self.path)) if os.path.exists(self.path) else {}
        self.known = json.load(open(self.path + ".known")) if os.path.exists(self.path + ".known") else {}

    def find_out(self, say):
        tree = Tree("coverage", PLAIN + ["-DCMAKE_PROJECT_speclab_INCLUDE=" + os.path.join(REPO, "tests/mutate/coverage.cmake")],
                    "--coverage -Wl,--wrap=_exit")
        say("building with coverage")
        tree.set_up()
        mirror = os.path.join(tree.build, "reached")
        notes = os.path.join(mirror, tree.build.lstrip("/"))
        for top, _, files in os.walk(os.path.join(tree.build, "CMakeFiles")):
            for file in files:
                if file.endswith(".gcno"):
                    link = os.path.join(notes, os.path.relpath(os.path.join(top, file), tree.build))
                    os.makedirs(os.path.dirname(link), exist_ok=True)
                    if not os.path.lexists(link):
                        os.symlink(os.path.join(top, file), link)
        programs = tree.programs()
        for program in set(self.units) - set(programs):
            del self.units[program]
        for i, program in enumerate(programs):
            key = digest(*[os.path.join(tree.build, p) for p in tree.needs(program)])
            if self.units.get(program, {}).get("key") == key and self.units[program]["tests"]:
                continue
            tests, names = {}, []
            status, seconds, text, lines = self.reach(tree, mirror, program, "")
            if status in (0, 77):
                tests[""] = {"seconds": seconds, "lines": lines}
                names = re.findall(r"\[ RUN +\] (\S+)", text)
            if seconds > self.LONG and len(set(names)) > 1 or status not in (0, 77):
                for name in dict.fromkeys(re.findall(r"\[ RUN +\] (\S+)", text)):
                    status, seconds, _, lines = self.reach(tree, mirror, program, name)
                    if status == 0:
                        tests[name] = {"seconds": seconds, "lines": lines}
                if len(tests) > 1:
                    tests.pop("", None)
            say(f"{i + 1}/{len(programs)} {program}: " +
                (", ".join(f"{n or 'all'} {t['seconds']:.1f} s" for n, t in tests.items()) or "FAILS, left out"))
            self.units[program] = {"key": key, "tests": tests}
            with open(self.path + ".part", "w") as f:
                json.dump(self.units, f)
            os.replace(self.path + ".part", self.path)
        self.known = self.lines_of(tree, [os.path.join(top, file) for top, _, files in os.walk(tree.build) for file in files
                                          if file.endswith(".gcno") and not top.startswith(mirror)], reached=False)
        with open(self.path + ".known", "w") as f:
            json.dump(self.known, f)

    @staticmethod
    def lines_of(tree, data, reached):
        lines = {}
        output = subprocess.run(["gcov", "--json-format", "--stdout", *data], cwd=tree.build, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True).stdout if data else ""
        for one in output.split("\n"):
            if not one.startswith("{"):
                continue
            for file in json.loads(one)["files"]:
                path = os.path.relpath(os.path.join(tree.build, file["file"]), tree.src)
                hit = {x["line_number"] for x in file["lines"] if x["count"] > 0 or not reached}
                if hit and not path.startswith(".."):
                    lines[path] = sorted(hit | set(lines.get(path, [])))
        return lines

    def reach(self, tree, mirror, program, name):
        for top, _, files in os.walk(mirror):
            for file in files:
                if file.endswith(".gcda"):
                    os.remove(os.path.join(top, file))
        status, seconds, text = tree.run(program, name, 600, {"GCOV_PREFIX": mirror})
        data = [os.path.join(top, file) for top, _, files in os.walk(mirror) for file in files if file.endswith(".gcda")]
        return status, seconds, text, self.lines_of(tree, data, reached=True)

    def reaching(self, mutant):
        """Units that reach one of the mutant's lines; for a table outside functions, units that reach its file, or any file of its
        folder if its own has no code."""
        found, known = [], self.known.get(mutant.file, [])
        beside = [f for f in self.known if os.path.dirname(f) == os.path.dirname(mutant.file)] if not known else [mutant.file]
        first, last = mutant.first, mutant.last
        if known and not any(first <= n <= last for n in known):    # a line without code: the nearest one with code
            first = last = min(known, key=lambda n: abs(n - first))
        for program, unit in self.units.items():
            for name, test in unit["tests"].items():
                lines = test["lines"].get(mutant.file, [])
                if mutant.file.endswith(".sql"):
                    reached = "results/store.c" in test["lines"]
                elif mutant.last == 0:
                    reached = any(f in test["lines"] for f in beside)
                else:
                    reached = any(first <= n <= last for n in lines)
                if reached:
                    found.append((program, name, test["seconds"]))
        return found
