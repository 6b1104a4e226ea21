"""The live page: an image whose answer grows draw by draw, a slider, and an attack on it. Served on this machine."""

from typing import TYPE_CHECKING

from multiguard.lazy import lazy_names

if TYPE_CHECKING:
    from multiguard.serve.app import Service, make_app, serve
    from multiguard.serve.config import ServeConfig

__all__ = ["ServeConfig", "Service", "make_app", "serve"]

__getattr__ = lazy_names("multiguard.serve", {"app": ["Service", "make_app", "serve"], "config": ["ServeConfig"]})
