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
gymnasium_env  environments of Gymnasium with discrete actions (`pip install gymnasium`)
textworld_env  games of TextWorld, each command a tool (`make servers` installs it)
"""

from benchmarks.environments.adapter import EnvironmentAdapter
from benchmarks.environments.bandits import DriftingTools
from benchmarks.environments.environment import Change, Environment, LivedEpisode, Observation, Offer, TakenStep
from benchmarks.environments.hosts import SimulatedHost
from benchmarks.environments.lake import FrozenLake
from benchmarks.environments.living import agent_in, live, settings_for
from benchmarks.environments.remedies import AlertsAndRemedies
from benchmarks.environments.texts import TextsToTools

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
