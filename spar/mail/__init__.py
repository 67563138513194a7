"""Mail as a channel: read over IMAP, sent over SMTP. Needs the extra `mail`.

channel    the channel: which mails are handed over, acknowledged, refused, passed over; senders that write too often
notifier   hands mails to an SMTP server (aiosmtplib); sends notices by mail
message    the message of a person in a mail, its conversation, its saved attachments; composes an answer in its thread
origin     the proof that the From address sent a mail, from the results of the own server; bounces, automatic answers,
           lists, the agent's own mails; pure
text       the text of HTML; the new part of a text, without quotes and signature; pure
incoming   parses a mail; bounded; pure
mailbox    a folder on an IMAP server (imapclient)
servers    servers as the configuration names them: TLS, passwords
"""

from importlib.util import find_spec

if missing := [name for name in ("aiosmtplib", "imapclient", "selectolax") if find_spec(name) is None]:
    raise ImportError(
        f"mail needs libraries that are not installed ({', '.join(missing)}); install them with: "
        "pip install 'spar-agent[mail]'"
    )
