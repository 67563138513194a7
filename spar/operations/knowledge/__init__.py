"""Operations on what decisions rest on.

reasons    why a past cycle went as it did
rules      the rules: how often each fired, why one did not, the last backtest
examples   the examples that perception learns from
abilities  the abilities of tools, now and over time
"""
