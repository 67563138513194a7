"""Any value to ASCII JSON and back: the texts in the rows of the file.

encoding  encodes any value as ASCII JSON
bounded   cuts a value that is too large or too deep
decoding  decodes a text as a value of a given type
columns   texts, times and bodies as the columns of a row take them

ASCII, because then no text can break the database, a log or a terminal: lone surrogates, control characters
and everything else outside ASCII stand as `\\uXXXX`. Values without a form in JSON have this one:

- NaN and infinities are `null`; a struct's field that must be a number reads `null` as NaN;
- datetimes are ISO 8601, bytes base64, sets and tuples lists, keys text, anything unknown its `repr`;
- what is too large or too deep (160 levels) is cut: a text ends in `… truncated`, a list in `"truncated"`, a dict
  has the key `truncated`, and so has the outermost object of a struct.

No module here knows rows or tables.
"""
