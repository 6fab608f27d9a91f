"""files - inputs that are never read without a limit, outputs that appear whole (core/files/input.h and part.h). It
needs the standard library alone.
"""

import contextlib
import errno
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO, Any

from speclab.command import Fault, placed

SETTINGS = 256 << 20  # bytes: limit of a file of settings, a template
TEXTS = 2 << 30  # bytes: limit of a file or stream of texts that is read whole


def open_input(path: str, stream: bool = False) -> IO[bytes]:
    """Opens a regular file; with `stream` also a pipe, and "-" for stdin. Raises Fault."""
    if path == "-" and stream:
        return open(0, "rb", closefd=False)
    try:
        with placed(f"{path}: "):  # a FIFO without a writer opens at once, and is refused below
            fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | (0 if stream else os.O_NONBLOCK))
    except ValueError:
        raise Fault(f"{path}: expected a file name, found a NUL in it") from None
    mode = os.fstat(fd).st_mode
    if stat.S_ISREG(mode) or (stream and (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode))):
        return open(fd, "rb")
    os.close(fd)
    raise Fault(f"{path}: expected a file, found {'a folder' if stat.S_ISDIR(mode) else 'a device or pipe'}")


def read(path: str, most: int = SETTINGS, stream: bool = False) -> bytes:
    """Returns the whole content, of at most `most` bytes. Raises Fault."""
    name = "stdin" if path == "-" and stream else path
    with open_input(path, stream) as f, placed(f"{name}: "):
        content = f.read(most + 1)
    if len(content) > most:
        raise Fault(f"{name}: expected at most {most >> 20} MiB, found more")
    return content


def read_text(path: str, most: int = SETTINGS, stream: bool = False) -> str:
    """Reads UTF-8, without a byte order mark, with the limits of `read`. Raises Fault."""
    content = read(path, most, stream).removeprefix(b"\xef\xbb\xbf")
    try:
        return content.decode()
    except UnicodeDecodeError as why:
        line = content.count(b"\n", 0, why.start) + 1
        raise Fault(f"{path}:{line}: expected UTF-8, found byte 0x{content[why.start]:02X}") from None


def same(a: str, b: str) -> bool:
    """Returns whether both exist, and are one file."""
    return os.path.exists(a) and os.path.exists(b) and os.path.samefile(a, b)


def is_database(path: str | os.PathLike) -> bool:
    """Returns whether a file begins as SQLite's do."""
    with contextlib.suppress(OSError), open(path, "rb") as f:
        return stat.S_ISREG(os.fstat(f.fileno()).st_mode) and f.read(16) == b"SQLite format 3\0"
    return False


def _partial(path: str, make: Callable[[str], Any]) -> tuple[Any, str]:
    """Returns what `make` makes of the first free name of a partial file, and the name."""
    for number in range(1 << 20):
        name = f"{path}.{os.getpid()}-{number}.part"
        with placed(f"{name}: cannot be written: "), contextlib.suppress(FileExistsError):
            return make(name), name
    raise Fault(f"{path}: cannot be written: too many partial forms of it")


@contextlib.contextmanager
def writing(path: str) -> Iterator[IO[bytes]]:
    """Opens a file that appears under its name when the block ends without an exception.

    If the name is a link, the file that it leads to is replaced; a device or a pipe is written in place; "-" is stdout.
    A database is not replaced. Raises Fault.
    """
    if path == "-":
        path = "/dev/stdout"
    if not path or (path.endswith("/") and not os.path.isdir(path)):
        found = "one that ends with a slash" if path else "an empty one"
        raise Fault(f"{path or 'output'}: expected the name of a file, found {found}")
    try:
        mode = os.stat(path).st_mode
    except OSError:
        mode = stat.S_IFREG
    try:
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            with open(path, "wb") as f:
                yield f
            return
        final = os.path.realpath(path)
        if is_database(final):
            raise Fault(f"{path}: expected a name for a new file, found a database, which is not replaced")
        fd, name = _partial(final, lambda new: os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666))
        try:
            with open(fd, "wb") as f:
                yield f
            os.rename(name, final)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except BrokenPipeError:
        raise
    except OSError as why:
        if why.filename not in (None, path) and why.errno not in (errno.ENOSPC, errno.EFBIG):
            raise
        raise Fault(f"{path}: cannot be written: {why.strerror}") from None


def write(path: str, content: str | bytes) -> None:
    """Writes a whole file. Raises Fault."""
    with writing(path) as f:
        f.write(content.encode(errors="surrogateescape") if isinstance(content, str) else content)


def checkout() -> Path | None:
    """Returns the folder of the sources, if the package is used from there."""
    root = Path(__file__).resolve().parents[2]
    return root if (root / "CMakeLists.txt").is_file() and (root / "results").is_dir() else None


def program() -> str:
    """Returns the engine's program: SPECLAB_PROGRAM, the checkout's release build, or the one installed with the
    package. Raises Fault."""
    root = checkout()
    known = [os.environ.get("SPECLAB_PROGRAM"), root and str(root / "build/release/speclab"), str(Path(__file__).parent / "bin/speclab")]
    for path in known:
        if path and os.access(path, os.X_OK):
            return path
    raise Fault("expected the program speclab: ./run builds it, SPECLAB_PROGRAM names another")


def library() -> str:
    """The engine as a library: SPECLAB_LIBRARY, or the one beside the program. Raises Fault."""
    beside = os.path.join(os.path.dirname(os.path.realpath(program())), "libspeclab_program.so")
    path = os.environ.get("SPECLAB_LIBRARY") or beside
    if not os.path.isfile(path):
        raise Fault(f"{path}: expected the engine's library: ./run builds it, SPECLAB_LIBRARY names another")
    return path


def shared(name: str) -> Path:
    """Returns the path of a file that program and package share, such as "results/schema.sql". Raises Fault."""
    root = checkout()
    path = root / name if root else Path(__file__).parent / "share" / Path(name).name
    if not path.is_file():
        raise Fault(f"{path}: expected a file of speclab's; is the installation complete?")
    return path


def make_folder(path: str) -> None:
    """Makes a folder, but not its parents, if there is none. Raises Fault."""
    with placed(f"{path}: could not be created: "):
        Path(path).mkdir(exist_ok=True)


@contextlib.contextmanager
def folder(path: str) -> Iterator[str]:
    """Makes a new folder that appears under its name when the block ends without an exception. Yields its name until
    then. Raises Fault."""
    if os.path.lexists(path):
        raise Fault(f"{path}: exists already; it is not overwritten")
    _, name = _partial(path.rstrip("/"), os.mkdir)
    try:
        yield name
        os.rename(name, path)
    except BaseException as why:
        shutil.rmtree(name, ignore_errors=True)
        if isinstance(why, OSError) and not isinstance(why, BrokenPipeError):
            raise Fault(f"{path}: cannot be written: {why.strerror}") from None
        raise
