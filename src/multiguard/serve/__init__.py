"""The live page: an image whose answer grows draw by draw, a slider, and an attack on it. Served on this machine."""

from multiguard.serve.app import Service, make_app
from multiguard.serve.limits import ServePart
from multiguard.serve.server import listen, run_server

__all__ = ["ServePart", "Service", "listen", "make_app", "run_server"]
