"""`recalld top`: the daemon at a glance. A function of what the source tells, looked at once a second."""

from __future__ import annotations

import time
from typing import ClassVar

from rich.text import Text
from textual import on, work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Footer, Input, OptionList, Sparkline, Static
from textual.widgets.option_list import Option

from ...protocol.messages.control import Status
from ...protocol.messages.recall import Answer, Hit
from ..terminal import clean, one_line
from . import panels
from .source import Source

LOOK_S = 1.0
LOG_LINES = 5

HELP = """\
[bold]recalld top[/]

/   ask your notes; Enter on a hit opens the note
r   restart a process
p   pause or resume indexing
q   leave (the daemon goes on)

[bold]process[/]: state, generation (how often it was started), restarts, lag of its event loop, memory.
[bold]degraded[/] names what is missing; recall goes on without it. What to do stands at the top.
"""


class StatusApp(App[None]):
    """The screen. Give it a source."""

    TITLE = "recalld"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #advice { color: $warning; height: auto; }
    #processes, #index, #activity, #queues, #recent { height: auto; }
    #recent, #log { margin-top: 1; }
    #log { color: $text-muted; height: 1fr; }
    Sparkline { height: 1; width: 1fr; }
    .dialog { border: round $primary; background: $surface; padding: 0 1; width: 90%; height: 80%; }
    ModalScreen { align: center middle; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "ask", "Ask", tooltip="Ask your notes"),
        Binding("r", "restart", "Restart", tooltip="Restart a process"),
        Binding("p", "pause", "Pause", tooltip="Pause or resume indexing"),
        Binding("question_mark", "help", "Help"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, source: Source, look_s: float = LOOK_S) -> None:
        super().__init__()
        self.source = source
        self._look_s = look_s
        self._before: Status | None = None
        self._before_at = 0.0
        self._history: tuple[float, ...] = ()

    def compose(self) -> ComposeResult:
        yield Static(id="headline")
        yield Static(id="advice")
        with Vertical(id="body"):
            yield Static(id="processes")
            yield Static(id="index")
            yield Static(id="activity")
            yield Sparkline([0.0], id="latency")
            yield Static(id="queues")
            yield Static(id="recent")
            yield Static(id="log")
        yield Footer()

    def on_mount(self) -> None:
        self.look()
        self.set_interval(self._look_s, self.look)

    @work(exclusive=True, group="look", exit_on_error=False)
    async def look(self) -> None:
        """Ask the daemon and show what it says; a daemon that is away is shown as such."""
        status = await self.source.status()
        lines = await self.source.log_tail(LOG_LINES)
        now = time.monotonic()
        self.show(status, lines, now - self._before_at if self._before else 0.0)
        self._before, self._before_at = status, now

    def show(self, status: Status | None, log_lines: list[str], seconds: float) -> None:
        """Put one look on the screen."""
        self._set("headline", panels.headline(status))
        self._set("advice", Text("\n".join(f"! {one_line(line)}" for line in panels.advice(status))))
        self.query_one("#advice", Static).display = bool(panels.advice(status))
        self._set("log", Text("\n".join(one_line(line) for line in log_lines), overflow="ellipsis", no_wrap=True))
        self.query_one("#latency", Sparkline).display = status is not None
        for name in ("processes", "index", "activity", "queues", "recent"):
            self.query_one(f"#{name}", Static).display = status is not None
        if status is None:
            return
        rates = panels.rates(self._before, status, seconds, self._history)
        self._history = rates.latencies_ms
        self._set("processes", panels.processes(status))
        self._set("index", panels.index_line(status, rates))
        self._set("activity", Text(panels.activity_line(status, rates)))
        self.query_one("#latency", Sparkline).data = list(rates.latencies_ms)
        quiet = [*panels.queue_lines(status), *map(one_line, panels.past_problem(status))]
        self._set("queues", Text("\n".join(quiet), style="dim"))
        recent = [one_line(line) for line in panels.recent_lines(status)]
        self._set("recent", Text("\n".join(recent), overflow="ellipsis", no_wrap=True))

    def _set(self, name: str, content: object) -> None:
        self.query_one(f"#{name}", Static).update(content)  # type: ignore[arg-type]  # any rich renderable

    def action_ask(self) -> None:
        self.push_screen(Ask(self.source))

    def action_help(self) -> None:
        self.push_screen(Reading(HELP, markup=True))

    def action_restart(self) -> None:
        names = list(self._before.actors) if self._before is not None else []
        if names:
            self.push_screen(Choose("Restart which process?", names), self._chosen)

    def _chosen(self, name: str | None) -> None:
        if name:
            self._restart(name)

    @work(exit_on_error=False)
    async def _restart(self, name: str) -> None:
        problem = await self.source.restart(name)
        text = problem or f"{name} is restarted"
        self.notify(clean(text), severity="error" if problem else "information", markup=False)

    @work(exit_on_error=False)
    async def action_pause(self) -> None:
        paused = self._before is not None and not self._before.paused
        problem = await self.source.pause(paused)
        word = "indexing is paused; recall goes on" if paused else "indexing goes on"
        self.notify(clean(problem or word), severity="error" if problem else "information", markup=False)
        self.look()


class Dialog(ModalScreen[str | None]):
    """A screen over the screen; Escape leaves it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss(None)", "Back")]


class Reading(Dialog):
    """A text to read."""

    def __init__(self, text: str, *, markup: bool = False) -> None:
        super().__init__()
        self._text = text if markup else clean(text)
        self._markup = markup

    def compose(self) -> ComposeResult:
        with VerticalScroll(classes="dialog"):
            # Not escaped instead: that shows a backslash in [[links]].
            yield Static(self._text, markup=self._markup)


class Choose(Dialog):
    """One of a few names."""

    def __init__(self, title: str, names: list[str]) -> None:
        super().__init__()
        self._title = title
        self._names = names

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Static(self._title)
            yield OptionList(*(Option(name, id=name) for name in self._names))

    @on(OptionList.OptionSelected)
    def chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)


class Ask(Dialog):
    """A question, its hits with their reasons, and the note behind a hit."""

    def __init__(self, source: Source) -> None:
        super().__init__()
        self._source = source
        self._hits: tuple[Hit, ...] = ()

    def compose(self) -> ComposeResult:
        with Vertical(classes="dialog"):
            yield Input(placeholder="Ask your notes …")
            yield Static(id="said")
            yield OptionList()

    @on(Input.Submitted)
    def submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.ask(event.value)

    @work(exclusive=True, group="ask", exit_on_error=False)
    async def ask(self, question: str) -> None:
        """The newest question wins; an older answer that comes late is not shown."""
        self._show(await self._source.recall(question))

    def _show(self, answer: Answer | str) -> None:
        options = self.query_one(OptionList)
        options.clear_options()
        said = self.query_one("#said", Static)
        if isinstance(answer, str):
            said.update(Text(clean(answer)))
            return
        known = "" if answer.known else "The notes do not seem to contain this; nearest: "
        degraded = f", degraded: {', '.join(answer.degraded)}" if answer.degraded else ""
        said.update(Text(f"{known}{len(answer.hits)} hits in {answer.took_ms:.0f} ms{degraded}"))
        self._hits = answer.hits
        for number, hit in enumerate(answer.hits):
            options.add_option(Option(_hit_text(hit), id=str(number)))
        if answer.hits:
            options.highlighted = 0
            options.focus()

    @on(OptionList.OptionSelected)
    def opened(self, event: OptionList.OptionSelected) -> None:
        self.open(self._hits[int(event.option.id or 0)])

    @work(exit_on_error=False)
    async def open(self, hit: Hit) -> None:
        text = await self._source.read(hit.path, hit.vault)
        self.app.push_screen(Reading(text))


def _hit_text(hit: Hit) -> Text:
    text = Text(f"{clean(hit.title)}  ", style="bold")
    text.append(f"{clean(hit.path)}:{hit.lines[0]}\n", style="cyan")
    text.append(f"{clean(' '.join((hit.sentence or hit.passage).split())[:200])}\n", style="")
    streams = ", ".join(f"{name} #{stream.rank}" for name, stream in hit.streams.items())
    text.append(f"{hit.why or 'found'} ({streams})", style="dim")
    return text
