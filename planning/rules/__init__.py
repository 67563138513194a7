"""Planning by declarative rules.

planner      the rules planner: the same decision for the same perceptions
firing       the decision of one rule on one perception; pure
verification looks later whether what a rule did lasted
parse        parses rules; pure
conditions   matches a perception against a rule's conditions; pure
templates    fills templates: `{content:.80}`; pure
tool_choice  chooses among tools by their learnt ability; pure
"""
