"""Sources of settings and their priority: pydantic-settings merges them, pydantic validates the result.

Only a loaded configuration needs this module: an agent made by hand reads no source. `spar.config.given` reads the
texts of the command line and of the environment first, because it reports all errors in them, and knows how to read a
part's own keys, which no table describes.
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

#: Reserved arguments for the sources of lower priority than the command line.
_ENVIRONMENT, _FILE = "_environment", "_file"


class FileSource(TomlConfigSettingsSource):
    """Source with the table of `config.toml`, which was read before."""

    def __init__(self, settings_cls: type[BaseSettings], file: ConfigFile) -> None:
        self._file = file
        super().__init__(settings_cls, file.path)

    def _read_files(self, files: object, deep_merge: bool = False) -> dict[str, Any]:
        return self._file.table  # already read; this also supports files that are not regular


class MergedSettings(BaseSettings):
    """Merged values of all sources, not yet validated."""

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
        """Return the sources of one call of `merged`, the one with the highest priority first."""
        assert isinstance(init_settings, InitSettingsSource)
        environment, file = (init_settings.init_kwargs.pop(name) for name in (_ENVIRONMENT, _FILE))
        below: tuple[PydanticBaseSettingsSource, ...] = () if file is None else (FileSource(settings_cls, file),)
        return (init_settings, InitSettingsSource(settings_cls, environment), *below)


def merged(command_line: dict[str, Any], environment: dict[str, Any], file: ConfigFile | None) -> dict[str, Any]:
    """Return the merged values of these sources; an earlier argument has priority over a later one."""
    values: Any = {**command_line, _ENVIRONMENT: environment, _FILE: file}
    return MergedSettings(**values).model_extra or {}
