"""The network that tests of addresses have: nobody is in it, and the thread leaves it again."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from tests.offline import OWN, has_route_outside, no_route_outside


def test_in_a_network_without_a_route_only_the_loopback_is_reached_by_this_thread_and_those_it_starts(
    offline: None,
) -> None:
    refused: list[OSError] = []

    def reach_out() -> None:
        for family, address in ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1")):
            with socket.socket(family, socket.SOCK_STREAM) as outside:
                try:
                    outside.connect((address, 80))
                except OSError as error:
                    refused.append(error)

    assert not has_route_outside()
    reach_out()
    thread = threading.Thread(target=reach_out)
    thread.start()
    thread.join()
    assert len(refused) == 4
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()):
        pass


def test_the_thread_comes_back_to_the_network_it_came_from(offline: None) -> None:
    before = Path(OWN).readlink()
    with no_route_outside():  # nothing to be done: it is in one already
        assert Path(OWN).readlink() == before
    assert Path(OWN).readlink() == before
