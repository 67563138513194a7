"""Copies of any value as JSON values, bounded, with nothing left out in silence. Pure.

A result goes to the state, the store and a model, so a copy contains nothing that one of them fails on: lone
surrogates become U+FFFD, nan and infinity null, keys text, sets and tuples lists, times and bytes text, unknown objects
their text. Integers stay exact (up to 4,200 digits). `whole` copies a value that a program computes with: it copies all
of it, or raises: for too many bytes, more than 128 levels, a value that contains itself, an object without a text.
`plain` and `shortened` copy a value for people to see: a part that is too large, too deep or unreadable has a mark in
its place or between its head and its tail; they never raise. A value that one of these has made needs only `copied`.

copies    copies a value: small JSON values by a fast way, all others by `copier`; computes how large a value is
slices    copies a whole large value in slices, so that others have their turn meanwhile
canonical writes a value as canonical JSON, and hashes that
copier    judges whether a value is small or bounded; copies any value item by item, in rounds that keep less and less
"""

from spar.data.json_safe.copier import NotJsonError, is_bounded, is_flat, text
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
