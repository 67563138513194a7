"""The table `[[channels]]`: what it makes, and how what is wrong in it is told."""

from __future__ import annotations

from pathlib import Path

import pytest

from spar import Agent
from spar.errors import ConfigError

CHANNEL = """
from spar.ports.channel import ChannelLimits
from spar.testing import MemoryChannel

class Mine(MemoryChannel):
    def __init__(self, *, most: int = 100) -> None:
        super().__init__(ChannelLimits(text=most))

class NoChannel:
    pass
"""


def agent_of(folder: Path, text: str) -> Agent:
    (folder / "my_channels.py").write_text(CHANNEL)
    path = folder / "config.toml"
    path.write_text(text)
    return Agent.from_config(str(path))


async def test_a_channel_is_made_from_its_table(tmp_path: Path) -> None:
    agent = agent_of(tmp_path, """
[[channels]]
use = "my_channels:Mine"
name = "mine"
mode = "steer"
give_up_after = "2h"
options = { most = 7 }
""")  # fmt: skip
    async with agent:
        spec = agent.attachments.get("channels").supervisors["mine"].spec
    assert (spec.name, spec.mode, spec.give_up_after, spec.channel.limits.text) == ("mine", "steer", 7200.0, 7)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ('use = "smoke"', r"config.toml:2: channels\[0\].use: no channel named 'smoke'; known: "),
        ('use = "my_channels:NoChannel"', r"channels\[0\].use: ChannelSpec\('my_channels:NoChannel', channel\): a"),
        ('use = "my_channels:Mine"\nmode = "shout"', r"channels\[0\].mode = 'shout': must be 'followup'"),
        ('use = "my_channels:Mine"\nnmae = "x"', r"channels\[0\].nmae: unknown key; .*did you mean 'name'"),
        ('use = "my_channels:Mine"\noptions = { most = "x" }', r"channels\[0\].options.most = 'x': must be"),
        ('use = "my_channels:Mine"\n[[channels]]\nuse = "my_channels:Mine"',
         r"channels\[1\].use = 'my_channels:Mine': is the name of another channel already"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, table: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        agent_of(tmp_path, f"[[channels]]\n{table}\n")
