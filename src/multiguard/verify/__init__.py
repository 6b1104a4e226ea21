"""An audit of certificates: what can be computed again is, and compared bit by bit with what is stored."""

from multiguard.verify.checks import verify
from multiguard.verify.config import Check, VerifyConfig

__all__ = ["Check", "VerifyConfig", "verify"]
