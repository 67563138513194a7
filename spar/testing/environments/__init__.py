"""Environments in which a real agent senses and acts, to measure the results of its decisions.

    outcomes = await live(AlertsAndRemedies(), 600, learning="on", seed=1, memory="sqlite:///memory.db")

An `Environment` defines observations and tools. `live` makes an agent of the ordinary configuration, with a sensor and
tools that belong to the environment, lets it run there in virtual time, and returns a `LivedEpisode` for each episode.
The agent learns in the ordinary way; the switch `learning` is that of `[memory]`. Each perception has the attributes
`episode`, `step`, `reward` and `done`.

environment    the protocol `Environment`, and the values between it and the agent
adapter        a sensor and tools that belong to an environment
living         `live`: an agent, its memory and an environment in virtual time
bandits        tools whose reliability drifts
texts          texts that belong to one tool each
remedies       alerts with one remedy each
hosts          a host with recurring troubles, each with its own remedies
lake           FrozenLake, the deterministic version
gymnasium_env  environments of Gymnasium with discrete actions (extra `gymnasium`)
textworld_env  games of TextWorld, each command a tool (extra `textworld`)
"""

from spar.testing.environments.adapter import EnvironmentAdapter
from spar.testing.environments.bandits import DriftingTools
from spar.testing.environments.environment import Change, Environment, LivedEpisode, Observation, Offer, TakenStep
from spar.testing.environments.hosts import SimulatedHost
from spar.testing.environments.lake import FrozenLake
from spar.testing.environments.living import agent_in, live, settings_for
from spar.testing.environments.remedies import AlertsAndRemedies
from spar.testing.environments.texts import TextsToTools

__all__ = [
    "AlertsAndRemedies",
    "Change",
    "DriftingTools",
    "Environment",
    "EnvironmentAdapter",
    "FrozenLake",
    "LivedEpisode",
    "Observation",
    "Offer",
    "SimulatedHost",
    "TakenStep",
    "TextsToTools",
    "agent_in",
    "live",
    "settings_for",
]
