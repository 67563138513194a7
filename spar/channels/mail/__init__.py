"""Mail as a channel: read over IMAP, sent over SMTP. Needs the extra `mail`.

channel    the channel: which mails are handed over, acknowledged, refused, passed over; senders that write too often
notifier   sends notices by mail
message    the message of a person in a mail, and its conversation; composes an answer in its thread; pure
content    the content of a mail: parsed, its HTML as text, its quotes left out, its attachments saved
origin     the proof that the From address sent a mail, from the results of the own server; bounces, automatic answers,
           lists, the agent's own mails; pure
mailbox    a folder on an IMAP server (imapclient)
sending    hands mails to an SMTP server (aiosmtplib)
servers    servers as the configuration names them: TLS, passwords
"""

from importlib.util import find_spec

if missing := [name for name in ("aiosmtplib", "imapclient", "selectolax") if find_spec(name) is None]:
    raise ImportError(
        f"mail needs libraries that are not installed ({', '.join(missing)}); install them with: "
        "pip install 'spar-agent[mail]'"
    )
