"""Every exception llamay raises on purpose, each with its exit code and HTTP status.

The command line and the server translate this one table; no other module knows an
exit code or a status.  A message says what was found, what was expected and what
would work.
"""


class LlamayError(Exception):
    """Root of all errors llamay raises on purpose."""

    exit_code = 1
    http_status = 500


class UsageError(LlamayError):
    """The caller asked for something that cannot be: a bad flag, range or combination."""

    exit_code = 2
    http_status = 400


class SettingsError(UsageError):
    """A setting is unknown or malformed; the message names where it came from."""


class ContextTooLong(UsageError):
    """A model was to be loaded with a context beyond the one it was made for; the message gives both.

    Over HTTP that is nothing the client did: the server was started so.
    """

    http_status = 500


class ModelFileError(LlamayError):
    """A model file was refused: nothing of it was used."""

    exit_code = 3
    http_status = 400


class MalformedFile(ModelFileError):
    """The bytes contradict the format: a length beyond the file, a bad magic, an overlap."""


class Unsupported(ModelFileError):
    """The file is sound, but holds something llamay does not run; the message says what it does."""


class NotInstalled(LlamayError):
    """A model name that is not in the store; the message carries the pull line."""

    exit_code = 4
    http_status = 404


class StoreError(LlamayError):
    """The model store could not do what was asked (full disk, bad name, broken manifest)."""

    exit_code = 5


class PullError(StoreError):
    """A download failed; what was received is kept and resumes."""

    http_status = 502


class DigestMismatch(PullError):
    """The finished bytes do not hash to the digest they were announced under."""


class DeviceError(LlamayError):
    """The compute device could not do what was asked."""

    exit_code = 6
    http_status = 503


class NoAdapter(DeviceError):
    """No usable adapter; the message names the package or driver that brings one."""


class DeviceLost(DeviceError):
    """The device went away; the message names the driver's cause."""


class OutOfMemory(DeviceError):
    """A budget would be exceeded; the message gives both numbers."""

    http_status = 507


class WrongNumbers(DeviceError):
    """The adapter failed the start-up self-test: it computes wrong results."""


class ContextFull(LlamayError):
    """A prompt or a generation does not fit the context; the message gives the counts."""

    exit_code = 7
    http_status = 400

    def __init__(self, message: str, prompt: int = 0, context: int = 0) -> None:
        """`prompt` and `context` are in tokens, where a prompt is what does not fit."""
        super().__init__(message)
        self.prompt, self.context = prompt, context


class TemplateError(LlamayError):
    """A chat template failed on these messages; the message quotes the template's words."""

    exit_code = 8
    http_status = 400


class QueueFull(LlamayError):
    """More requests wait than the queue holds; the message gives the count.  Trying again later helps."""

    http_status = 429


class Closed(LlamayError):
    """The engine was closed before the request was answered."""

    http_status = 503


class NoServer(LlamayError):
    """No llamay server answers where one was expected; the message says how one is started."""

    exit_code = 10
    http_status = 502


class Refused(LlamayError):
    """A server did not do what it was asked; the message is the server's own."""

    http_status = 502


class ContextFileError(LlamayError):
    """A saved context was refused, or could not be written; nothing that was there before has changed."""

    exit_code = 9
    http_status = 400


class MalformedContext(ContextFileError):
    """The bytes contradict the format or a checksum; nothing of them was used."""


class ContextMismatch(ContextFileError):
    """A sound saved context of other weights, another KV format or other numerics; the message names both."""

    http_status = 409


class NoSuchContext(ContextFileError):
    """No context is saved under that name; the message names those near it."""

    http_status = 404


class NotUnderWay(LlamayError):
    """A request that is over, or never was; it cannot be ended."""

    http_status = 404


class ContextLost(LlamayError):
    """A context that the server does not keep, or keeps no more; asking again does not bring it back."""

    http_status = 404
    code = "context_lost"


class ContextBusy(LlamayError):
    """A context that a request is still making."""

    http_status = 409
    code = "context_busy"


class ShelfFull(LlamayError):
    """Every context that is kept is pinned; the message gives the count."""

    http_status = 409
    code = "contexts_full"


class PinsFull(ShelfFull):
    """One client has pinned as many contexts as it may; the message gives the count."""

    code = "pins_full"
