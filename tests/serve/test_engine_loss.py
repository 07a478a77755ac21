"""A device that goes away under the engine: each request hears of it once, and the next has the model loaded anew."""

import json
import subprocess
import sys

CHILD = """
import faulthandler, itertools, json, sys, threading
faulthandler.dump_traceback_later(150, exit=True)  # where it hangs is told
import llamay
from llamay.errors import LlamayError
model = llamay.Llama(sys.argv[1], device="webgpu")
want = model.complete("a b c", max_tokens=20, temperature=0).tokens
context = model.context(text="a b c")
executor, gone, sent = model._loaded.executor, threading.Event(), itertools.count()
submit = executor.submit
executor.submit = lambda *given: (next(sent) < 2 or gone.wait(60)) and submit(*given)  # it goes in the middle
stream = model.complete("a b c", max_tokens=200, ignore_end=True, temperature=0, stream=True)
others = [model.complete("d e", max_tokens=200, ignore_end=True, stream=True) for _ in range(3)]
stream.ticket.get()  # an iterator that is given up would cancel it
found = {}
executor.device.handle.destroy()
gone.set()
for name, one in (("first", stream), *enumerate(others)):
    try:
        found[name] = [one.completion.reason]
    except LlamayError as error:
        found[name] = [type(error).__name__, str(error)]
found["again"] = model.complete("a b c", max_tokens=20, temperature=0).tokens == want
found["context"] = context.generate(max_tokens=20, temperature=0).tokens == want
model.close()
print(json.dumps(found))
"""


def test_a_lost_device(adapter, named_case) -> None:
    """In a process of its own: a mistake would abort it."""
    path = named_case("llama-gqa.f16").path
    done = subprocess.run([sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("again") and found.pop("context")
    assert set(found) == {"first", "0", "1", "2"}
    assert found["first"][0] == "DeviceLost" and "was lost" in found["first"][1], found
    assert {kind for kind, *_ in found.values()} <= {"DeviceLost", "length"}  # who still waited was answered in the end
