"""Planning by declarative rules, which stand in the configuration as tables `[[rules]]`.

Words of this folder. A rule *matches* a perception that meets its conditions; then it *fires*: its calls are filled
with values of the perception and join the plan. What is *learnt* from earlier calls (experiences, and abilities: how
often a tool works at a kind of task) may choose among the tools of a call, or leave a call out. Untrusted text comes
from strangers; a call that holds some is *tainted*.

planner      the planner: finds the rules that match, and lets them fire
firing       decides by one rule on one perception: its calls and their taint; joins all decisions in one action; pure
cooldowns    keeps when each rule last fired for a subject
remembered   recalls a situation, and finds and follows a known sequence of calls in an episode
verification looks later whether the effect of a rule has lasted
parse        reads the tables of the configuration, makes rules of them, and reports mistakes in them; pure
rule         a rule that is ready to be matched; pure
conditions   matches a perception against a rule's conditions; pure
templates    fills templates: `{content:.80}`; pure
tool_choice  chooses among tools by what was learnt; pure
"""
