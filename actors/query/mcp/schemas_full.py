"""The tools that are listed with ``toolset = "full"``, and the one that is never listed. All of them can be called."""

from __future__ import annotations

from .toolkit import PROJECT, A, B, I, O, S, Tool, flag, number, text, texts

BRIEFING = Tool(
    "briefing",
    "Briefing",
    "What an agent should know when it starts in this project: open handoff, rules, pinned pages, recent sessions.",
    properties={"max_chars": number("default 4000", 200, 10_000), "project": PROJECT},
    output={"text": S, "project": O, "handoff": S},
    output_required=("text", "project"),
    listed="full",
)

HANDOFF_LIST = Tool(
    "handoff_list",
    "List handoffs",
    "Handoffs of this project, or of all, newest first. Claims nothing.",
    properties={
        "all_projects": flag("Of every project"),
        "limit": number("default 50", 1, 200),
        "project": PROJECT,
    },
    output={"items": A, "project": O},
    output_required=("items", "project"),
    listed="full",
)

HANDOFF_CANCEL = Tool(
    "handoff_cancel",
    "Cancel a handoff",
    "Withdraw a handoff that nobody should take any more.",
    properties={"id": text("From handoff_list")},
    required=("id",),
    output={"handoff": O, "project": O},
    output_required=("project",),
    writes=True,
    destructive=True,
    listed="full",
)

DELETE_PAGE = Tool(
    "delete_page",
    "Delete a memory page",
    "Remove a page from the project's memory wiki. Its history stays in the wiki's git repository.",
    properties={
        "path": text("As written"),
        "expect_hash": text("Fail if the page has another hash"),
        "project": PROJECT,
    },
    required=("path",),
    output={"path": S, "existed": B, "project": O},
    output_required=("path", "existed", "project"),
    writes=True,
    destructive=True,
    listed="full",
)

SESSION_EVENTS = Tool(
    "session_events",
    "Events of a session",
    "Raw captured events of an agent session (prompts, commands, outcomes): the given one, else the last one here. For "
    "details that the session's page leaves out.",
    properties={
        "session": text("Session id"),
        "query": text("Only events with these words"),
        "kinds": texts("Such as user-prompt, post-tool-use"),
        "after_seq": number("Only events after this number", -1, 2**53),
        "limit": number("default 50", 1, 200),
        "offset": number("Skip so many", 0, 1_000_000),
        "max_chars": number("Per text, default 4000", 100, 16_384),
        "project": PROJECT,
    },
    output={"items": A, "total": I, "session": S},
    output_required=("items", "total"),
    listed="full",
)

FEEDBACK = Tool(
    "feedback",
    "Feedback on a note",
    "Say whether a note or page helped. One that is stale or wrong stands below its equals until somebody changes it; say "
    "why, so that they can.",
    properties={
        "path": text("Path as in a hit"),
        "signal": text(enum=["helpful", "not_helpful", "stale", "wrong"]),
        "reason": text("What is wrong with it", maxLength=500),
        "vault": text("When a path is in several vaults"),
    },
    required=("path", "signal"),
    output={"path": S, "vault": S, "signal": S, "tally": O},
    output_required=("path", "signal", "tally"),
    writes=True,
    listed="full",
)

MESSAGE_SEND = Tool(
    "message_send",
    "Send a message",
    "Leave a message to the agents of another project, such as that an interface changed. Exactly one will read it; work to "
    "take over in this project is a handoff instead.",
    properties={
        "to_project": text("Its name, as in status or a hit"),
        "body": text("At most 16 KB; secrets are removed"),
        "subject": text("One line"),
        "project": PROJECT,
    },
    required=("to_project", "body"),
    output={"message": O, "project": O, "note": S},
    output_required=("project",),
    writes=True,
    idempotent=False,
    listed="full",
)

MESSAGE_LIST = Tool(
    "message_list",
    "List messages",
    "Messages from other projects that wait for this one, oldest first, or that this one sent. Takes none of them.",
    properties={
        "box": text("default inbox", enum=["inbox", "outbox"]),
        "limit": number("default 50", 1, 200),
        "project": PROJECT,
    },
    output={"items": A, "waiting": I, "project": O, "note": S},
    output_required=("items", "waiting", "project"),
    listed="full",
)

MESSAGE_POP = Tool(
    "message_pop",
    "Read a message",
    "Take a message out of this project's inbox: the given one, else the oldest. Nobody else gets it. message is absent when "
    "there is none.",
    properties={"id": text("From message_list"), "project": PROJECT},
    output={"message": O, "project": O, "note": S},
    output_required=("project",),
    writes=True,
    idempotent=False,
    listed="full",
)

MESSAGE_CANCEL = Tool(
    "message_cancel",
    "Cancel messages",
    "Withdraw a message that this project sent and nobody has read, or all of them.",
    properties={"id": text("Default: all"), "project": PROJECT},
    output={"count": I, "project": O},
    output_required=("count", "project"),
    writes=True,
    destructive=True,
    listed="full",
)

LINT = Tool(
    "lint",
    "Lint the memory",
    "What is wrong with notes and pages as a memory, by rule: duplicate titles, broken links, contradictions, what feedback "
    "calls stale or wrong, links to superseded notes. Changes nothing.",
    properties={
        "project": text("Only its notes and pages"),
        "vault": text("Only this vault"),
        "kinds": texts("Such as contradiction, flagged"),
        "cold": flag("Add session pages that nobody needs any more"),
        "limit": number("default 50", 1, 500),
    },
    output={"findings": A, "counts": O, "warnings": I, "note": S},
    output_required=("findings", "counts", "warnings"),
    listed="full",
)

TOOLS = (
    BRIEFING, HANDOFF_LIST, HANDOFF_CANCEL, DELETE_PAGE, SESSION_EVENTS, FEEDBACK, MESSAGE_SEND, MESSAGE_LIST, MESSAGE_POP,
    MESSAGE_CANCEL, LINT,
)  # fmt: skip
