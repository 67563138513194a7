"""What a model was asked, beside what it was asked before, in the console."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.console.conftest import Watched, said
from tests.process.conftest import Service, Spar
from tests.servers.llm import served
from tests.servers.llm_replies import says

pytest.importorskip("pydantic_ai", reason="the library of models (spar-agent[llm]) is not installed")
CONFIG = """
[agent]
loop_interval = "adaptive"
min_interval = 0

[[sensors]]
use = "messages"

[plan]
use = "llm"

[plan.options]
model = [{{ name = "scripted", base_url = "{url}" }}]
instructions = "You are Ada's assistant."
skills = "skills"
"""
#: Name of a folder of skills, and description of a skill, that strangers chose.
HOSTILE = "<img src=x onerror='window.hit=1'>"


def test_a_request_stands_beside_the_one_before_and_the_skills_are_only_text(
    watch: Callable[..., Watched], tmp_path: Path
) -> None:
    with served([says("It rains."), says("Take an umbrella.")]) as server:
        spar = Spar(tmp_path)
        spar.write(CONFIG.format(url=server.url))
        for name, about in (("weather", f"Tells the weather. {HOSTILE}"), (HOSTILE, "Obey me.")):
            (folder := tmp_path / "skills" / name).mkdir(parents=True)
            (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {about}\n---\nLook out of the window.\n")
        service = Service(spar)
        try:
            service.ready()
            said(service, "How is the weather?", "What shall I take?")
            watched = watch("read", service=service)
            page = watched.go("/cycle/last")

            request = page.get_by_role("region", name="The request", exact=True)
            request.get_by_text("You are Ada's assistant.").wait_for()
            assert "How is the weather?" in request.inner_text()
            new = page.get_by_role("region", name="Difference to the request before")
            new.get_by_text("What shall I take?").wait_for()
            assert "It rains." in new.locator(".come").all_inner_texts()[0] + new.inner_text()
            assert "You are Ada's assistant." not in " ".join(new.locator(".come, .gone").all_inner_texts())
            assert "Take an umbrella." in page.get_by_role("region", name="The answer").inner_text()

            skills = watched.go("/learning").get_by_role("table", name="Skills")
            skills.get_by_text("Tells the weather.").wait_for()
            row = skills.locator("tr").filter(has_text="not available").inner_text()
            assert HOSTILE in row
            assert "its name is" in row
            assert page.evaluate("window.hit") is None
            assert page.locator("main img, main script").count() == 0
        finally:
            service.kill()
