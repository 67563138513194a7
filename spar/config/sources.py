"""Sources of settings and their order: pydantic-settings merges them, `spar.config.judge` judges the whole.

Only who loads a configuration imports this: an agent made by hand looks nowhere. Texts of the command line and of the
environment are read by `spar.config.given` first, which finds everything that is wrong with them, and what a key of a
part's own means, of which no table knows.
"""

from __future__ import annotations

from typing import Any

from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from spar.config.lines import ConfigFile

#: The reserved arguments that bring what lies below the command line.
_ENVIRONMENT, _FILE = "_environment", "_file"


class FileSource(TomlConfigSettingsSource):
    """`config.toml`, as it was read with an eye on its lines."""

    def __init__(self, settings_cls: type[BaseSettings], file: ConfigFile) -> None:
        self._file = file
        super().__init__(settings_cls, file.path)

    def _read_files(self, files: object, deep_merge: bool = False) -> dict[str, Any]:
        return self._file.table  # read already, also where it is no regular file


class MergedSettings(BaseSettings):
    """Values as their sources say together, not yet judged."""

    model_config = SettingsConfigDict(extra="allow")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources of one call of `merged`, the highest first."""
        assert isinstance(init_settings, InitSettingsSource)
        environment, file = (init_settings.init_kwargs.pop(name) for name in (_ENVIRONMENT, _FILE))
        below: tuple[PydanticBaseSettingsSource, ...] = () if file is None else (FileSource(settings_cls, file),)
        return (init_settings, InitSettingsSource(settings_cls, environment), *below)


def merged(command_line: dict[str, Any], environment: dict[str, Any], file: ConfigFile | None) -> dict[str, Any]:
    """Return what these sources say together, each before the next."""
    given: Any = {**command_line, _ENVIRONMENT: environment, _FILE: file}
    return MergedSettings(**given).model_extra or {}
