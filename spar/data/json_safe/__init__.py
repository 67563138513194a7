"""Copies of what tools return, fit to keep: JSON values only, bounded. Pure.

A result goes to state, to the store and to a model, so nothing that one of them chokes on may pass: lone
surrogates become U+FFFD, nan and infinity null, unknown objects their text. `whole` copies a value that something
is computed from: it copies all of it, or raises. `plain` and `shortened` copy a value that is shown: one that is too
large keeps its head and tail with a mark between them; they never raise. What has been through one of these only
needs `copied`.

copies    copies a value: small values of JSON in a short way, others in the long one; says how large one is
copier    copies a value of any kind, item by item
bounds    judges whether a value is small or bounded, and replaces lone surrogates
"""

from spar.data.json_safe.bounds import is_bounded, is_flat, text
from spar.data.json_safe.copier import NotJsonError
from spar.data.json_safe.copies import MAX_OUTPUT, UNBOUNDED, copied, plain, shortened, shown, size_of, sized, whole

__all__ = [
    "MAX_OUTPUT",
    "UNBOUNDED",
    "NotJsonError",
    "copied",
    "is_bounded",
    "is_flat",
    "plain",
    "shortened",
    "shown",
    "size_of",
    "sized",
    "text",
    "whole",
]
