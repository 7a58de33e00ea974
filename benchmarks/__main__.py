"""The program `dlscale`; `python -m dlscale.benchmarks` is the same."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line and exit."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        # Until the command line handles it: an interrupted import would print a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from dlscale.benchmarks import cli

    cli.main()


if __name__ == "__main__":
    main()
