"""Whole models with random weights, each as a program with live sizes; the packages they come from are optional."""

from tests.support.packages import declare_libraries

declare_libraries()
