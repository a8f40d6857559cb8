"""The session behind the Python tab: runs what was written, shows its last value, and says what went wrong and where.

Runs in Pyodide, from worker.js. What a person defines stays, until the session is started anew.
"""

import asyncio
import linecache
import sys
import traceback

from pyodide.code import eval_code_async

SOURCE = "<editor>"

names = {"__name__": "__main__"}
running = None


async def run(code):
    """Run code; how it ended: `done`, `failed` or `stopped`."""
    global running
    # Where tracebacks look for the lines that they show.
    linecache.cache[SOURCE] = (len(code), None, code.splitlines(keepends=True), SOURCE)
    running = asyncio.ensure_future(_evaluate(code))
    try:
        return await running
    except asyncio.CancelledError:
        return "stopped"
    finally:
        running = None


async def _evaluate(code):
    try:
        value = await eval_code_async(code, names, filename=SOURCE)
        if value is not None:
            print(repr(value))
        return "done"
    except SystemExit:
        return "done"
    except KeyboardInterrupt:
        return "stopped"
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        shown = traceback.TracebackException.from_exception(error)
        own = [frame for frame in shown.stack if not frame.filename.startswith(("/lib", __file__))]
        shown.stack = traceback.StackSummary.from_list(own)
        print("".join(shown.format()), end="", file=sys.stderr)
        return "failed"


def stop():
    """Cancel what runs, where it waits for something."""
    if running is not None:
        running.cancel()
