"""Planning by declarative rules.

planner      the rules planner: the same decision for the same perceptions
draft        what the rules of one plan decided, which becomes one action; pure
firing       the decision of one rule on one perception; pure
cooldowns    when each rule was last used for a subject
remembered   what the memory says of a situation, and the sequence of calls that is followed in an episode
verification looks later whether what a rule did lasted
parse        makes rules of the tables; pure
tables       the tables of the configuration as they are written, and what is wrong with them; pure
rule         a rule that is ready to be asked, as a value; pure
conditions   matches a perception against a rule's conditions; pure
templates    fills templates: `{content:.80}`; pure
tool_choice  chooses among tools by their learnt ability; pure
"""
