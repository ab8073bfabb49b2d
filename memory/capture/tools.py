"""
What a tool call is about: its family, the paths it names, its command line. By name and shape, for every host.

Imports nothing: the hook client loads this file under ``python -I -S``, where ``re`` alone would cost as much as the
interpreter's start.
"""

from __future__ import annotations

FILE, SEARCH, SHELL, WEB, MCP, AGENT, UNKNOWN = "file", "search", "shell", "web", "mcp", "agent", "unknown"

WRITES = frozenset(
    "write edit multiedit notebookedit applypatch createfile deletefile remove removefile renamefile movefile replace"
    " replaceall writetofile replacefilecontent fswrite writefile editfile patch strreplaceeditor strreplace"
    " insertedit inserteditintofile create delete deletepath editnotebook editnotebookfile searchreplace"
    " replacestringinfile multireplacestringinfile afterfileedit".split()
)
READS = frozenset(
    "read viewfile fsread readfile view notebookread readmanyfiles readnotebook opennotebook readfiles viewimage"
    " getnotebooksummary beforereadfile".split()
)
SEARCHES = frozenset(
    "search grep glob find list ls listfiles readdir listdir listdirectory grepsearch searchfiles searchfilecontent"
    " codebasesearch filesearch findfiles semanticsearch searchcodebase findtextinfiles textsearch rg".split()
)
SHELLS = frozenset(
    "bash shell shellcommand execute runcommand terminal executebash executecmd execcommand runshellcommand"
    " runinterminal runterminalcmd runterminalcommand localshell exec powershell unifiedexec writestdin bashoutput"
    " aftershellexecution beforeshellexecution".split()
)
WEBS = frozenset("websearch webfetch fetch fetchwebpage googlewebsearch browser openurl urlfetch".split())
AGENTS = frozenset("task agent runsubagent subagent delegate delegatetoagent spawnagent todowrite".split())

PATH_KEYS = (
    "file_path", "filePath", "path", "absolute_path", "absolutePath", "AbsolutePath", "notebook_path", "notebookPath",
    "TargetFile", "target_file", "filename", "old_path", "new_path", "dir_path", "directory", "target_directory",
)  # fmt: skip
PATH_LIST_KEYS = ("paths", "file_paths", "filePaths", "files", "targets")
NESTED_KEYS = ("edits", "replacements", "operations", "changes", "attachments")
_NAMING = frozenset((*PATH_KEYS, *PATH_LIST_KEYS, *NESTED_KEYS))
COMMAND_KEYS = ("command", "cmd", "CommandLine", "script", "commandLine")
MAX_PATHS = 32
MAX_PATH_CHARS = 4096
PATCH_MARKS = ("*** Add File: ", "*** Update File: ", "*** Delete File: ", "*** Move to: ")
PERSONAL_KEYS = frozenset(("user_email", "userEmail", "email", "account_email", "user_name", "userName", "account_id"))


NAMES = 4096
"""Names that are remembered with what they mean. An agent has a few dozen tools."""
_families: dict[str, str] = {}


def family(tool: str) -> str:
    """The family of a tool by its name: file, search, shell, web, mcp, agent or unknown. Case and separators are free."""
    known = _families.get(tool)
    if known is None:
        known = _family(tool)
        if len(_families) < NAMES and len(tool) < 100:
            _families[tool] = known
    return known


def _family(tool: str) -> str:
    if tool.startswith(("mcp__", "mcp_", "MCP:")):
        return MCP
    name = plain(tool)
    if name in WRITES or name in READS:
        return FILE
    if name in SHELLS:
        return SHELL
    if name in SEARCHES:
        return SEARCH
    if name in WEBS:
        return WEB
    return AGENT if name in AGENTS else UNKNOWN


def plain(tool: str) -> str:
    """A tool's name in lower case without separators: ``run_shell_command`` and ``runShellCommand`` are one tool."""
    return tool.replace("_", "").replace("-", "").replace(".", "").replace(" ", "").lower()


def writes(tool: str) -> bool:
    """Whether a tool of this name changes the files it names."""
    return plain(tool) in WRITES


def command_of(given: object) -> str:
    """The command line in a tool's input, or ''. A list of words is joined, quoted where a word has spaces."""
    if not isinstance(given, dict):
        return ""
    for key in COMMAND_KEYS:
        value = given.get(key)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            # Codex runs ["bash", "-lc", "the command"]: the third word is what the agent wrote.
            if len(value) == 3 and value[1] in ("-lc", "-c") and value[0].rsplit("/", 1)[-1] in ("bash", "sh", "zsh"):
                return str(value[2])
            return " ".join(f"'{word}'" if " " in word else word for word in value)
    return ""


def paths_of(given: object) -> list[str]:
    """Every path that a tool's input names, as written, in order, each once; at most ``MAX_PATHS``."""
    found: list[str] = []
    _collect(given, found, 0)
    return list(dict.fromkeys(found))[:MAX_PATHS]


def _collect(given: object, found: list[str], depth: int) -> None:
    if isinstance(given, str):
        found.extend(_patched(given))
        return
    if not isinstance(given, dict) or depth > 3:
        return
    # Most inputs are a command and its description: one look at the keys spares thirty.
    if not _NAMING.isdisjoint(given):
        _collect_named(given, found, depth)
    for key in ("patch", "input", "patchText", "command"):
        value = given.get(key)
        if isinstance(value, str):
            found.extend(_patched(value))


def _collect_named(given: dict[str, object], found: list[str], depth: int) -> None:
    for key in PATH_KEYS:
        _add(given.get(key), found)
    for key in PATH_LIST_KEYS:
        value = given.get(key)
        if isinstance(value, list):
            for item in value[:MAX_PATHS]:
                _add(item, found)
                _collect(item if isinstance(item, dict) else None, found, depth + 1)
    for key in NESTED_KEYS:
        value = given.get(key)
        if isinstance(value, list):
            for item in value[:MAX_PATHS]:
                _collect(item if isinstance(item, dict) else None, found, depth + 1)
        elif isinstance(value, dict):  # Codex: {"changes": {"path": {...}}}
            for path in list(value)[:MAX_PATHS]:
                _add(path, found)


def _add(value: object, found: list[str]) -> None:
    if isinstance(value, str) and value and len(value) <= MAX_PATH_CHARS and "\n" not in value:
        found.append(value.removeprefix("file://"))


def _patched(text: str) -> list[str]:
    """The files that an apply_patch envelope names."""
    if "*** " not in text:
        return []
    marked = (line.partition(": ") for line in text.splitlines() if line.startswith(PATCH_MARKS))
    return [path.strip() for _, _, path in marked][:MAX_PATHS]


def words_of(command: str, limit: int = 256) -> list[str]:
    """
    The lexical words of a shell command, quotes removed, ``key=value`` and ``>file`` split; at most ``limit``.

    Variables, ``cd`` and globs are not evaluated: this tells what a command names, not what it reads.
    """
    found: list[str] = []
    word: list[str] = []
    quote = ""
    previous = ""
    for char in command[:65536]:
        if quote:
            if char == quote and previous != "\\":
                quote = ""
            else:
                word.append(char)
        elif char in "'\"`" and previous != "\\":
            quote = char
        elif char in " \t\r\n;|&<>()=,":
            if word:
                found.append("".join(word))
                word = []
        elif char != "\\":
            word.append(char)
        previous = char
        if len(found) >= limit:
            return found
    if word:
        found.append("".join(word))
    # A quoted word may itself be a command line (bash -c "cat x"): its words count too.
    inner = [part for item in found if " " in item for part in item.split()]
    return (found + inner)[:limit]


def without_personal(payload: object, depth: int = 0) -> object:
    """``payload`` without fields that name the person (Cursor sends ``user_email``). Top level and one level below."""
    if not isinstance(payload, dict):
        return payload
    return {
        key: without_personal(value, depth + 1) if depth < 1 else value
        for key, value in payload.items()
        if key not in PERSONAL_KEYS
    }
