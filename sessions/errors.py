"""What can go wrong in a session, as one tree. The codes are those of the realtime protocol."""

from __future__ import annotations


class SessionError(Exception):
    """Base of everything that `sessions/` raises on purpose."""


class ClientEventError(SessionError):
    """A client event that cannot be carried out; it becomes an `error` event and the session lives on.

    `code` is one of the protocol's: invalid_json, missing_required_parameter, invalid_value, unknown_parameter,
    unsupported_content_type, conversation_already_has_active_response, response_cancel_not_active,
    input_audio_buffer_commit_empty, item_truncate_invalid_item_id, item_delete_invalid_item_id,
    item_retrieve_invalid_item_id, item_create_duplicate_item_id, cannot_update_voice, session_expired,
    rate_limit_exceeded. `param` is a dotted path such as `session.tools[0].name`; `event_id` is the offending event's, so
    that the client can tell which of its events failed.
    """

    def __init__(
        self,
        code: str,
        message: str,
        param: str | None = None,
        event_id: str | None = None,
        type: str = "invalid_request_error",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.param = param
        self.event_id = event_id
        self.type = type

    def __repr__(self) -> str:
        return f"ClientEventError(code={self.code!r}, message={self.message!r}, param={self.param!r}, event_id={self.event_id!r})"


class DuplicateSession(SessionError):
    """The registry already knows a session of this id."""


class BadRecording(SessionError):
    """A file is no recording of this server, or one of a format that it does not read."""
