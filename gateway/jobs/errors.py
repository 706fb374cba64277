"""What can go wrong with a job, as the parts of this folder tell each other."""

from __future__ import annotations


class JobError(Exception):
    """The root of this folder's errors. `code` is stable and for programs; the message is a sentence."""

    code = "job_error"


class JobLimitError(JobError):
    """The key has as many unfinished jobs as it may have, or submits too fast. `retry_after` in seconds."""

    code = "job_limit_reached"

    def __init__(self, message: str, retry_after: float) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class IdempotencyConflictError(JobError):
    """The idempotency key was used before, with another body."""

    code = "idempotency_key_reused"


class AttemptLostError(JobError):
    """This attempt may not write any more: its lease ran out and another worker took the job, or the job has ended."""

    code = "attempt_lost"


class JobCancelledError(JobError):
    """Somebody asked for the job to be cancelled."""

    code = "cancelled"


class JobFailedError(JobError):
    """The job cannot be done, and trying again would not help. `code` and the message become the job's fault."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class StoreUnavailableError(JobError):
    """The database cannot be reached, is locked, or its disk is full. `retry_after` in seconds."""

    code = "store_unavailable"

    def __init__(self, message: str, retry_after: float = 2.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class SchemaError(JobError):
    """The tables were made by a newer version."""

    code = "schema_too_new"


class UnknownCursorError(JobError):
    """A page was asked for after a job that is not there (any more)."""

    code = "unknown_cursor"
