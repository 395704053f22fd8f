"""Exit codes: 0 done; 2 for what the user can fix, in one line; 130 interrupted."""

from collections.abc import Callable
from typing import Any

import typer

from involutive.cli.interrupts import INTERRUPTED, patience
from involutive.cli.speech import complain
from involutive.core.errors import InputError


def guarded(command: Callable[[], Any]) -> int:
    """Run `command` and return its exit code; an error that is not the user's is raised."""
    try:
        code = command()
        if code == INTERRUPTED:
            patience.say()
        return code if isinstance(code, int) else 0
    except InputError as error:
        complain(error)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        patience.say()
        return INTERRUPTED
    except typer.Exit as stop:
        return stop.exit_code
    except OSError as error:
        if error.filename is None:
            raise
        complain(f"{error.filename}: {error.strerror}; check the path and its permissions")
        return 2
    except Exception as error:
        message = getattr(error, "format_message", None)  # an option or argument that is wrong
        if message is None:
            raise
        if not message():  # the help was printed because nothing was asked for
            return 2
        complain(f"{message().rstrip('.')}; see involutive --help")
        return 2
