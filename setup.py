"""Installs `ultra_tfr`: `pip install .`, or `pip install '.[test]'`."""

import pathlib
import re

from setuptools import find_packages
from setuptools import setup

_ROOT = pathlib.Path(__file__).parent


def _read(path):
  return (_ROOT / path).read_text(encoding="utf-8")


def _version():
  # Read, not imported: importing the package needs its dependencies.
  return re.search(
      r'^__version__ = "([^"]+)"', _read("ultra_tfr/version.py"), re.MULTILINE
  ).group(1)


# TensorFlow 2.21 has no Python 3.9 wheels; 2.15 is the newest TensorFlow that
# TensorFlow Ranking 0.5.5 was released for. There Keras 2 is `keras` itself.
_MODERN = 'python_version >= "3.10"'
_PYTHON_39 = 'python_version < "3.10"'

# The usual wheel of XGBoost brings 350 MB for GPUs along; on macOS there is no
# other.
_PEERS = [
    "lightgbm>=4.6,<5",
    'xgboost-cpu>=2.1,<4; sys_platform != "darwin"',
    'xgboost>=2.1,<4; sys_platform == "darwin"',
]

# tensorflow-datasets 4.9 imports the second and does not ask for it.
_TFDS = ["tensorflow-datasets", "importlib-resources"]

# CLAX is for these Pythons. It asks for a Flax that later JAX does not import.
_BENCH = [f"clax-models>=0.1.1; {_MODERN}", f"jax<0.7.2; {_MODERN}"]

# Those that its wheels and TensorFlow's are both for.
_BEAM = ('apache-beam>=2.60; python_version >= "3.10" and '
         'python_version < "3.13"')

setup(
    name="ultra_tfr",
    version=_version(),
    description="Unbiased learning to rank for TensorFlow Ranking",
    long_description=_read("README.md"),
    long_description_content_type="text/markdown",
    author="The ultra_tfr authors",
    license="Apache-2.0",
    license_files=["LICENSE"],
    keywords=["learning to rank", "unbiased", "position bias", "click models",
              "recommender systems", "TensorFlow Ranking"],
    project_urls={
        "Paper": "https://arxiv.org/abs/2111.12929",
        "TensorFlow Ranking": "https://github.com/tensorflow/ranking",
    },
    packages=find_packages(include=["ultra_tfr", "ultra_tfr.*"]),
    py_modules=["ultra_tfr_start"],
    package_data={"ultra_tfr": ["py.typed"]},
    python_requires=">=3.9,<3.14",
    install_requires=[
        f"tensorflow>=2.21,<2.22; {_MODERN}",
        f"tf-keras>=2.21,<2.22; {_MODERN}",
        f"tensorflow-ranking==0.5.3; {_MODERN}",
        f"tensorflow>=2.15,<2.16; {_PYTHON_39}",
        f"tensorflow-ranking==0.5.5; {_PYTHON_39}",
        "tensorboard",
        "numpy",
        "absl-py",
        "h5py",
        # Older ones do not pass `group` on in a search.
        "scikit-learn>=1.6",
        "scipy",
        # Older ones unpickle what a Parquet file holds.
        "pyarrow>=14.0.1",
        "matplotlib",
        "tqdm",
    ],
    extras_require={
        "beam": [_BEAM],
        "bench": _BENCH,
        "docs": ["sphinx", "furo", "myst-nb", "ipykernel", "latex2mathml",
                 "pandas"],
        "peers": _PEERS,
        "test": ["pytest", "pytest-xdist", "hypothesis", "ruff", "pandas",
                 f"mypy>=2; {_MODERN}", _BEAM, *_PEERS, *_TFDS],
        "tfds": _TFDS,
    },
    entry_points={
        "console_scripts": ["ultra-tfr = ultra_tfr_start:run"],
    },
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Operating System :: POSIX :: Linux",
        "Programming Language :: Python :: 3",
        *(f"Programming Language :: Python :: 3.{minor}"
          for minor in range(9, 14)),
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Scientific/Engineering :: Information Analysis",
        "Typing :: Typed",
    ],
)
