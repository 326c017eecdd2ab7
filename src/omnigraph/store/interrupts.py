"""Recognises a keyboard interrupt that passed through an Arrow stream.

Python runs the handler of a signal in the main thread. When that runs a native library that
reads an Arrow stream, the exception has to pass a C interface that knows only text,
and comes out as a failure of the stream. The data is not at fault: the user wants to stop.
"""

from __future__ import annotations

import re
from typing import Final

_INTERRUPT: Final = re.compile(r"^(?:.*\bExternal error: )?KeyboardInterrupt(?::|$)", re.MULTILINE)
"""How the stream spells it, or how the stack trace of the code that feeds the stream ends."""


def raise_interrupt(error: BaseException | None) -> None:
    """Raise the interrupt that this error was, if it was one."""
    if error is not None and _INTERRUPT.search(str(error)):
        raise KeyboardInterrupt from None
