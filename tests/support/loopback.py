"""A server on the loopback interface, in a thread of the tests' process."""

import asyncio
import threading
from functools import partial

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState


class CuttableProtocol(H11Protocol):
    """uvicorn's, with the connection in the request's state: ASGI itself knows no way to hang up."""

    def connection_made(self, transport):
        super().connection_made(transport)
        self.app_state = {**self.app_state, "transport": transport}


class Loopback:
    """A context manager that listens at `url` and answers by `_serve`, an ASGI application."""

    def __enter__(self):
        # Not by `uvicorn.Server`, which needs 0.2 s to stop; nor with a socket of `socket.create_server`, on which
        # asyncio sets no TCP_NODELAY, and each answer is 40 ms late. A client that comes before the loop runs waits.
        quiet = {"log_config": None, "log_level": "critical"}
        config = uvicorn.Config(self._serve, interface="asgi3", lifespan="off", ws="none", **quiet)
        self._loop, self._state = asyncio.new_event_loop(), ServerState()
        protocol = partial(CuttableProtocol, config, self._state, {}, self._loop)
        self._listener = self._loop.run_until_complete(self._loop.create_server(protocol, "127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.sockets[0].getsockname()[1]}"
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        return self

    async def _hang_up(self):
        self._listener.close()
        for connection in list(self._state.connections):
            connection.transport.abort()
        late = [task for task in self._state.tasks if task.cancel()]  # answers that are delayed
        await asyncio.gather(*late, return_exceptions=True)

    def __exit__(self, *error):
        asyncio.run_coroutine_threadsafe(self._hang_up(), self._loop).result(timeout=10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(timeout=10)
        self._loop.close()
