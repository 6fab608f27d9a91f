"""model - downloads a model of the Hugging Face hub into its cache, where the engine finds it by name."""

import fnmatch
import os
import re
import sys

from speclab.command import Fault, Misuse, Options, note

# The files of a repository that the engine reads (models/paths.h, tokenizers, formats).
READ = ["config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
        "tokenizer.model", "tekken.json", "*.tiktoken", "chat_template.jinja"]  # fmt: skip
WEIGHTS = ["*.safetensors", "*.safetensors.index.json"]
PICKLED = ["*.bin", "*.pt", "*.pth", "*.bin.index.json"]  # `convert` reads these


def options() -> Options:
    about = ("Downloads a model from the Hugging Face hub: only the files that the engine reads, each once. A connection that breaks\n"
             "is taken up where it was; files that are complete stay. Models of ./run demo have names without a slash:\n"
             "smollm2-135m-instruct, smollm2-135m-pruned.")  # fmt: skip
    o = Options("model", about,
                "  ./run model Qwen/Qwen3-0.6B\n  ./run model Qwen/Qwen3-0.6B-GGUF --file Qwen3-0.6B-Q8_0.gguf\n"
                "  HF_TOKEN=hf_... ./run model meta-llama/Llama-3.2-1B-Instruct\n")  # fmt: skip
    o.add_argument("name", metavar="ORG/NAME[@REVISION]", help="REVISION: a branch, a tag or a commit; default: main")
    o.option("--file", metavar="NAME", help="of a repository with several GGUF files, the one to take")
    o.option("--endpoint", metavar="URL", help="another hub; default: HF_ENDPOINT, or huggingface.co")
    return o


def chosen(files: list[str], name: str, one: str | None) -> list[str]:
    """Returns which of a repository's files to download. Raises Fault."""
    top = [f for f in files if "/" not in f]
    ggufs = [f for f in files if f.endswith(".gguf")]
    if one is not None:
        if one not in files:
            raise Fault(f'{name}: --file: expected one of its files, {", ".join(ggufs) or ", ".join(top)}, found "{one}"')
        # A model in parts needs all of them.
        parts = re.sub(r"-[0-9]{5}-of-([0-9]{5})\.gguf$", r"-?????-of-\1.gguf", one)
        return [f for f in files if fnmatch.fnmatchcase(f, parts)]

    def matching(patterns: list[str]) -> list[str]:
        return [f for f in top if any(fnmatch.fnmatchcase(f, p) for p in patterns)]

    weights = matching(WEIGHTS) or matching(PICKLED)
    if weights:
        return matching(READ) + weights
    if len(ggufs) == 1:
        return ggufs
    if ggufs:
        raise Misuse(f"{name}: it has {len(ggufs)} GGUF files; choose one by --file: {', '.join(ggufs)}")
    raise Fault(f"{name}: expected safetensors, GGUF or PyTorch files in the repository, found {', '.join(top[:8]) or 'none'}")


def _explained(why: Exception, name: str, revision: str) -> str:
    from huggingface_hub import constants, errors

    said = str(why).strip().splitlines()[0] if str(why).strip() else type(why).__name__
    if isinstance(why, errors.GatedRepoError):
        return f"{name}: its owner asks for an agreement: accept it on {constants.ENDPOINT}/{name}, then give a token by HF_TOKEN or `hf auth login`"
    if isinstance(why, errors.RepositoryNotFoundError):
        return f"{name}: {constants.ENDPOINT} has no such model, or shows it to a token only (HF_TOKEN)"
    if isinstance(why, errors.RevisionNotFoundError):
        return f'{name}: expected a branch, tag or commit of it, found "{revision}"'
    if isinstance(why, errors.HfHubHTTPError) and why.response is not None:
        return f"{name}: {constants.ENDPOINT} answers {why.response.status_code}: {said}"
    if isinstance(why, OSError) and not isinstance(why, errors.HfHubHTTPError) and why.errno is not None and why.filename is not None:
        return f"{why.filename}: {why.strerror}"
    return f"{name}: cannot be fetched from {constants.ENDPOINT}: {said}; files that are complete are kept"


def main(words: list[str]) -> int:
    given = options().read(words)
    match = re.fullmatch(r"([A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*)(?:@((?!.*\.\.)[\w][\w./-]*))?", given.name)
    if match is None:
        raise Misuse(f'expected ORG/NAME or ORG/NAME@REVISION, or a model of the demo (./run --help), found "{given.name}"')
    name, revision = match[1], match[2] or "main"
    if given.endpoint:
        os.environ["HF_ENDPOINT"] = given.endpoint
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    import huggingface_hub

    try:
        info = huggingface_hub.HfApi().model_info(name, revision=revision, timeout=30)
        files = chosen([s.rfilename for s in info.siblings or []], name, given.file)
        folder = huggingface_hub.snapshot_download(name, revision=revision, allow_patterns=files, max_workers=4)
    except Fault:
        raise
    except Exception as why:  # the library's HTTP client has its own exceptions
        http = type(why).__module__.split(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub", "hf_xet")
        if not http and not isinstance(why, (OSError, ValueError)):
            raise
        raise Fault(_explained(why, name, revision)) from None
    commit, pickled = os.path.basename(folder), [f for f in files if any(fnmatch.fnmatchcase(f, p) for p in PICKLED)]
    note("model", f"{name} is in {folder}; this commit by name: {name}@{commit}")
    if pickled:
        note("model", f"its weights are pickled ({pickled[0]}): the engine reads what `./run convert {folder} --out FOLDER` writes")
    print(f"{name}@{commit}")
    return 0
