"""Placeholder until the kernels land: the package without its extension."""

from setuptools import setup

setup()
