"""The ASGI application: a list of routes over one `Gateway`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from .. import __version__
from . import (
    routes_batches,
    routes_calls,
    routes_console,
    routes_files,
    routes_health,
    routes_images,
    routes_models,
    routes_realtime,
    routes_robot,
    routes_robots,
    routes_sessions,
    routes_speech,
    routes_videos,
)
from .errors import install_error_handlers
from .openapi import describe_errors
from .service import Gateway
from .settings import Settings

ROUTERS = tuple(
    routes.router
    for routes in (
        routes_realtime,
        routes_robot,
        routes_robots,
        routes_calls,
        routes_sessions,
        routes_speech,
        routes_videos,
        routes_images,
        routes_batches,
        routes_files,
        routes_models,
        routes_health,
        routes_console,
    )
)

EXPOSED = ("Location", "ETag", "Content-Range", "Retry-After", "openai-poll-after-ms", "x-image-id", "x-video-id")
"""Headers of answers that pages of other origins may read."""


def create_app(settings: Settings) -> FastAPI:
    """The application for `settings`. Its lifespan opens the engines and closes them, unless somebody else has (`server`)."""
    gateway = Gateway(settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        opened_here = not gateway.started
        if opened_here:
            await gateway.open()
        try:
            yield
        finally:
            if opened_here:
                await gateway.close()

    app = FastAPI(title="Antiphon", version=__version__, lifespan=lifespan, redoc_url=None)
    app.state.gateway = gateway
    install_error_handlers(app, [route for router in ROUTERS for route in router.routes])
    if settings.server.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.server.cors_origins),
            allow_methods=["*"],
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )
    for router in ROUTERS:
        app.include_router(router)
    describe_errors(app)
    return app
