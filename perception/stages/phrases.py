"""Phrases by which the built-in intents are recognised: English, cheap to find, and hard to mistake.

The module holds only tables. The patterns are for Python's `re`, because they need look-around. A test checks that the
time of each grows only with the length of the text.
"""

from __future__ import annotations

from typing import Any

from perception.stages.dedup import MESSAGE

SAYS = [MESSAGE, ""]  # kinds of perceptions that may hold the words of a person

_VERBS = (
    "activate|add|adjust|allow|analy[sz]e|answer|append|apply|archive|arrange|ask|assign|attach|backup|back up|block|"
    "book|build|buy|calculate|call|cancel|change|check|clean|clear|close|collect|compare|compile|compute|configure|"
    "confirm|connect|convert|copy|create|cut|deactivate|decrease|define|delete|deploy|describe|disable|disconnect|"
    "download|draft|drain|drop|edit|email|empty|enable|erase|estimate|execute|explain|export|extend|fetch|file|fill|"
    "filter|find|fix|follow|forward|free|freeze|generate|get|give|go|grant|help|hold|ignore|import|increase|inform|"
    "install|invite|keep|kill|launch|let|limit|list|load|lock|log|look|lower|mail|make|mark|merge|message|migrate|"
    "monitor|mount|move|mute|name|notify|open|order|pause|pay|ping|play|post|prepare|print|promote|provide|publish|"
    "pull|purge|push|put|raise|read|reboot|rebuild|recommend|record|redeploy|redirect|reduce|refresh|reject|release|"
    "reload|remind|remove|rename|renew|replace|reply|report|request|reschedule|reserve|reset|resize|resolve|respond|"
    "restart|restore|resume|retry|return|revert|review|revoke|roll back|rollback|rotate|run|save|scale|scan|schedule|"
    "search|select|send|set|share|shorten|show|shut down|silence|skip|snooze|speak|start|stop|submit|subscribe|suggest|"
    "summari[sz]e|swap|switch|sync|take|tell|terminate|test|text|toggle|track|transfer|translate|trigger|try|turn|turn "
    "off|turn on|undo|uninstall|unlock|unmount|unmute|unsubscribe|update|upgrade|upload|use|validate|verify|wait|wake|"
    "warn|watch|write"
)
# Words before the request or question itself.
_LEAD = r"(?:(?:hi|hello|hey|ok|okay|so|and|but|now|then|well|also|just|quick question|excuse me)\b[,:]?\s{1,3}){0,2}"
# The object: up to the end of the line or a question mark, without "please" and the full stop.
_OBJECT = r"(?P<what>[^\n?]{1,1000}?)(?:,? please)?(?=[.!\s]{0,3}(?:[?\n]|\Z))"
# "restart failed" is no order to restart something.
_NOT_AN_OBJECT = (
    "(?:is|are|was|were|has|have|had|did|does|failed|fails|failing|completed|succeeded|finished|timed|aborted|errors?|"
    "went|will|takes|took|keeps|stopped|hangs|jobs? (?:failed|crashed)|(?:job|run|script|pipeline) (?:is|was|failed))"
)
_WHAT = "who|whom|whose|what|why|how"
_AUX = (
    "is|are|was|were|am|do|does|did|has|have|had|can|could|will|would|should|shall|may|might|must|isn['’]?t|aren['’]?t|"
    "wasn['’]?t|weren['’]?t|don['’]?t|doesn['’]?t|didn['’]?t|hasn['’]?t|haven['’]?t|can['’]?t|couldn['’]?t|won['’]?t|"
    "wouldn['’]?t|shouldn['’]?t"
)
_SUBJECT = (
    "i|you|we|he|she|it|they|this|that|these|those|there|the|my|your|our|his|her|its|their|any|anyone|anybody|anything|"
    "all|someone|somebody|everything|everyone|a|an"
)
# When adding words to `_TROUBLE` or `_RECOVERY`, also add their first letters to the rule that uses them: the set of
# first letters there makes the rule three times as fast.
_TROUBLE = (
    "errors?|fail(?:s|ed|ing|ures?)?|crash(?:ed|es|ing)?|outage|unreachable|time(?:d |-)?outs?|exhausted|firing|broken|"
    "(?:connection|access) refused|not (?:working|responding|reachable|available)|(?:doesn|isn)['’]t work(?:ing)?|"
    "does not work|panic(?:ked)?|exception|traceback|corrupt(?:ed|ion)?|overload(?:ed)?|out of (?:memory|disk|space)|"
    "no space left|(?:is|are|was|went|goes|gone) (?:down|offline|full|dead)|(?:almost|nearly) full|segmentation fault"
)
# Other complaints of people; they are not searched for in log lines, because there are many of those.
_COMPLAINT = (
    "permission denied|connection lost|not (?:loading|starting)|(?:is|are|was|went|got) (?:stuck|frozen|missing|lost|"
    "slow|damaged|stolen|hacked|compromised|declined)|"
    "(?:doesn|isn|don|didn)['’]?t (?:work|respond|load|start|open|connect|answer)(?:ing)?|"
    "does not (?:respond|load|start|open)|"
    "(?:can['’]?t|cannot|can not|couldn['’]?t|could not|unable to) "
    "(?:log in|login|sign in|connect|reach|open|access|load|start|send|save|find|read|write|"
    "print)|(?:won['’]?t|will not) (?:start|stop|open|load|boot|connect|work|respond|turn on|close|go away)|"
    "(?:keeps?|kept) (?:failing|crashing|restarting|hanging|dropping|disconnecting|losing|freezing|rebooting)|"
    "(?:stopped|quit) (?:working|responding)|hangs|hung|freezes|leak(?:s|ing)?|"
    "(?:very|extremely|too|unusually|terribly|really|so) slow|something (?:is )?wrong|went wrong|"
    "(?:was|been) (?:stolen|hacked)|bugs?|(?:lost|misplaced) my|nobody can|no one can"
)
_RECOVERY = (
    "recovered|resolved|back (?:to normal|online|up)|(?:up|works|working|healthy|reachable|running|fine) again|"
    "restored|(?:has|have|had|was|were)(?: now)? been fixed|(?:is|are|was|got) (?:now )?fixed|"
    "no longer (?:failing|firing|down|broken|slow)|all clear"
)
_YES = (
    "y|yes|yep|yeah|yup|ok|okay|sure|correct|right|exactly|agreed|approved?|confirm(?:ed)?|go ahead|do it|sounds good|"
    "please do|of course|absolutely|definitely|that(?: i|['’]?)s (?:right|correct|true|fine|ok(?:ay)?)|"
    "fine(?: by me| with me)?|looks good(?: to me)?|lgtm|i agree"
)
_NO = (
    "n|no|nope|nah|never|no way|not (?:now|yet|today)|don['’]?t(?: do (?:it|that))?|do not(?: do (?:it|that))?|"
    "den(?:y|ied)|reject(?:ed)?|declined?|absolutely not|certainly not|better not|i disagree|negative|"
    "that(?:['’]?s| is) (?:wrong|false|incorrect|not (?:right|correct|true))|that isn['’]?t (?:right|correct|true)"
)


def _row(intent: str, confidence: float, pattern: str) -> dict[str, Any]:
    """Return a rule for the words of a person."""
    return {"intent": intent, "confidence": confidence, "kind": SAYS, "pattern": pattern}


#: Rules for short words with one meaning, which apply before learnt intents. In both tables the first rule that fits
#: decides.
SHORT: tuple[dict[str, Any], ...] = (
    {"intent": "inform", "confidence": 0.9, "kind": ["file.*", "schedule.tick"]},
    _row("greeting", 0.9,
         r"(?i)\A\W{0,3}(?:hi|hiya|hello|hey|howdy|greetings|good (?:morning|afternoon|evening|day|night)|"
         r"bye|goodbye|see you)(?:,? (?:there|all|everyone|everybody|team|again|folks|later|tomorrow))?\W{0,5}\Z"),
    _row("confirm", 0.9, rf"(?i)\A\W{{0,3}}(?:{_YES})"
         rf"(?:[ ,.!]{{1,3}}(?:please|thanks|thank you|{_YES})){{0,2}}[\s.!]{{0,5}}\Z"),
    _row("deny", 0.9, rf"(?i)\A\W{{0,3}}(?:{_NO})"
         rf"(?:[ ,.!]{{1,3}}(?:please|thanks|thank you|do that|do it|{_NO})){{0,2}}[\s.!]{{0,5}}\Z"),
)  # fmt: skip

#: Rules that apply after everything else, in the format of the configuration.
BUILT_IN: tuple[dict[str, Any], ...] = (
    _row("question", 0.9, rf"(?i)\A\W{{0,3}}{_LEAD}(?:{_WHAT}|when|where|which)(?:['’]s|['’]re)?\b[^\n]{{0,300}}\?"),
    _row("question", 0.8, r"(?i)\b(?:(?:can|could|would|will) you |please )?(?:tell me|let me know|"
         r"i(?: want|['’]d like| would like| need) to know|i(?: a|['’])?m wondering|"
         r"i wonder|(?:do|does|did) (?:you|anyone|anybody) (?:happen to )?know|"
         r"any idea|explain(?: to me)?) (?:if|whether|who|what|whats|what['’]s|when|where|why|which|how)\b"),
    _row("request", 0.85, rf"(?i)\b(?:c(?:an|ould)|w(?:ould|ill)) you (?:please |kindly |just |maybe |also )?"
         rf"(?P<verb>\w{{1,30}})(?: {_OBJECT})?"),
    _row("request", 0.85,
         rf"(?i)\b(?:I(?: need| want| would like|['’]d like)|(?:can|could|may|shall) i (?:ask|get)) you to "
         rf"(?P<verb>\w{{1,30}})(?: {_OBJECT})?"),
    _row("request", 0.85, rf"(?i)\A\W{{0,3}}{_LEAD}(?:please|pls|kindly),? (?P<verb>\w{{1,30}})(?: {_OBJECT})?"),
    _row("request", 0.75, rf"(?i)\A\W{{0,3}}{_LEAD}(?:go ahead and |let['’]?s |you (?:should|must|have to|need to) |"
         rf"we (?:should|must|have to|need to) |(?:do not|don['’]?t|never) )?"
         rf"(?P<verb>{_VERBS}) (?!{_NOT_AN_OBJECT}\b)(?:{_OBJECT})?"),
    _row("request", 0.75,
         r"(?i)\A\W{0,3}(?P<verb>stop|cancel|abort|pause|resume|continue|retry|undo|help|status)\W{0,5}\Z"),
    _row("question", 0.8, r"\?[\s)\"'!?]{0,5}\Z"),
    _row("question", 0.75, rf"(?i)\A\W{{0,3}}{_LEAD}(?:(?:{_WHAT})(?:['’]?(?:s|re|d|ll) | (?!(?:an?|ever)\b))|"
         rf"(?:when|where|which)(?:['’]?s)? (?:\w{{1,30}} )?(?:{_AUX})\b|(?:{_AUX}) (?:{_SUBJECT})\b|"
         rf"(?:do|does|did|is|are) [a-z]{{2,30}} [a-z])"),
    {"intent": "report_recovered", "confidence": 0.75,
     "pattern": rf"(?i)\b(?=[abfghilnruw])(?<!not )(?<!yet )(?<!be )(?<!never )(?:{_RECOVERY})\b"},
    {"intent": "report_problem", "confidence": 0.7,
     "pattern": rf"(?i)\b(?=[a-gin-pstuw])(?<!no )(?<!\b0 )(?<!zero )(?<!without )(?<!not )(?:{_TROUBLE})\b"},
    _row("report_problem", 0.7, rf"(?i)\b(?:{_COMPLAINT})\b"),
    {"intent": "report_problem", "confidence": 0.7, "kind": ["log.error", "alert"]},
    _row("request", 0.65, r"(?i)\bi(?: am|['’]?m)?(?: really| just| also)? "
         r"(?:need|want|wanna|would (?:like|love)|['’]?d (?:like|love)|(?:looking|hoping|trying) (?:for|to))\b"
         rf"(?: (?:to )?(?P<verb>{_VERBS})\b)?"),
    _row("question", 0.6, rf"(?i)(?:\b(?:how (?:many|much|long|far|often|old)|what (?:is|are|was|were|time|day|kind)|"
         rf"where (?:is|are|can|do|did)|which \w{{1,30}} (?:is|are|do|does))\b|, (?:{_AUX}) (?:{_SUBJECT})\b)"),
    _row("request", 0.65, r"(?i)\b(?:please|pls|asap)[\s.!]{0,5}\Z|\bi['’]d (?:like|love) |"
         r"\bneed (?:a|an|the|some|my|more|help)\b"),
)  # fmt: skip
